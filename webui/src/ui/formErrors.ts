import type { FormInstance } from 'antd'
import { ApiError } from '@/api/client'

/** Puts what the server said of each field under that field. Names that the form lacks stay for the notice. */
export function showFieldErrors<Values>(
  form: FormInstance<Values>,
  error: unknown,
  said: (text: string) => string,
): void {
  if (!(error instanceof ApiError)) return
  const known = new Set(Object.keys(form.getFieldsValue(true) as object))
  const fields = Object.entries(error.fields).filter(([name]) => known.has(name))
  form.setFields(
    // The names come from the server; antd checks them against the form at run time.
    fields.map(([name, errors]) => ({
      name: name as never,
      errors: [errors].flat(2).map((text) => said(String(text))),
    })),
  )
}
