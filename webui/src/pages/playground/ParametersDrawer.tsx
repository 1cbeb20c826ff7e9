import { Button, Drawer, Form, Input, InputNumber, Select } from 'antd'
import type { ReactNode } from 'react'
import { useText } from '@/i18n'
import { conversation } from './conversation'
import { DEFAULT_PARAMETERS, type Parameters } from './parameters'

type NumberName = 'temperature' | 'top_p' | 'max_tokens' | 'seed' | 'frequency_penalty' | 'presence_penalty'

/** Changes count from the next message on. */
export function ParametersDrawer(props: { open: boolean; parameters: Parameters; onClose: () => void }) {
  const t = useText()
  const { parameters } = props
  const text = t.playground
  const set = (change: Partial<Parameters>) => conversation.setParameters(change)
  const number = (
    name: NumberName,
    label: string,
    limits: { min?: number; max?: number; step?: number; precision?: number },
    extra?: ReactNode,
  ) => (
    <Form.Item label={label} extra={extra} htmlFor={`parameter-${name}`}>
      <InputNumber
        id={`parameter-${name}`}
        {...limits}
        value={parameters[name]}
        placeholder={text.fromModel}
        className="full-width"
        onChange={(value) => set({ [name]: value })}
      />
    </Form.Item>
  )
  return (
    <Drawer
      open={props.open}
      title={text.parameters}
      size={380}
      onClose={props.onClose}
      extra={<Button onClick={() => set(DEFAULT_PARAMETERS)}>{text.reset}</Button>}
    >
      <Form layout="vertical">
        <Form.Item label={text.system} extra={text.systemHint} htmlFor="parameter-system">
          <Input.TextArea
            id="parameter-system"
            value={parameters.system}
            autoSize={{ minRows: 2, maxRows: 8 }}
            onChange={(change) => set({ system: change.target.value })}
          />
        </Form.Item>
        {number('temperature', text.temperature, { min: 0, max: 2, step: 0.1 }, text.temperatureHint)}
        {number('top_p', text.topP, { min: 0.01, max: 1, step: 0.05 }, text.topPHint)}
        {number('max_tokens', `${text.maxTokens} (${text.tokens})`, { min: 1, precision: 0 })}
        {number('seed', text.seed, { min: 0, precision: 0 }, text.seedHint)}
        {number('frequency_penalty', text.frequencyPenalty, { min: -2, max: 2, step: 0.1 })}
        {number('presence_penalty', text.presencePenalty, { min: -2, max: 2, step: 0.1 })}
        <Form.Item label={text.stopStrings} extra={text.stopStringsHint} htmlFor="parameter-stop">
          <Select
            id="parameter-stop"
            mode="tags"
            open={false}
            suffixIcon={null}
            maxCount={4}
            value={parameters.stop}
            onChange={(stop) => set({ stop })}
          />
        </Form.Item>
      </Form>
    </Drawer>
  )
}
