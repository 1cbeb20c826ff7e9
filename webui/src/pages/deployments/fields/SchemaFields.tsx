import { Form, Input, InputNumber, Select } from 'antd'
import type { JsonSchema } from '@/api/types'
import { useSaid, useText } from '@/i18n'

/** Fields of a flat JSON Schema: numbers, words, lists of words, choices, switches. Empty: the default that is shown. */
export function SchemaFields({ schema, path }: { schema: JsonSchema; path: string | string[] }) {
  const said = useSaid()
  return (
    <div className="field-grid">
      {Object.entries(schema.properties ?? {}).map(([name, property]) => (
        <Form.Item
          key={name}
          name={[path, name].flat()}
          label={said(property.title ?? name)}
          extra={property.description && said(property.description)}
        >
          <SchemaInput schema={property} />
        </Form.Item>
      ))}
    </div>
  )
}

interface Bound {
  id?: string
  value?: unknown
  onChange?: (value: unknown) => void
}

function SchemaInput({ schema, ...bound }: { schema: JsonSchema } & Bound) {
  const t = useText()
  const byDefault = schema.default === '' ? t.common.auto : schema.default?.toString()
  if (schema.enum) {
    return (
      <Select
        {...bound}
        allowClear
        placeholder={byDefault}
        options={schema.enum
          .filter((value) => value !== '')
          .map((value) => ({ value, label: String(value) }))}
      />
    )
  }
  if (schema.type === 'boolean') {
    return (
      <Select
        {...bound}
        allowClear
        placeholder={schema.default ? t.models.detail.yes : t.models.detail.no}
        options={[
          { value: true, label: t.models.detail.yes },
          { value: false, label: t.models.detail.no },
        ]}
      />
    )
  }
  if (schema.type === 'array') {
    return <Select {...bound} mode="tags" open={false} suffixIcon={null} placeholder={byDefault} />
  }
  if (schema.type === 'integer' || schema.type === 'number') {
    return (
      <InputNumber
        id={bound.id}
        value={bound.value as number | undefined}
        onChange={bound.onChange}
        min={schema.minimum}
        max={schema.maximum}
        precision={schema.type === 'integer' ? 0 : undefined}
        placeholder={byDefault}
        className="full-width"
      />
    )
  }
  return (
    <Input
      id={bound.id}
      value={bound.value as string | undefined}
      onChange={(change) => bound.onChange?.(change.target.value)}
      placeholder={byDefault}
    />
  )
}
