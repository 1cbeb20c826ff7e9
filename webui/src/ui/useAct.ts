import { App } from 'antd'
import { useText } from '@/i18n'
import { explain } from './ErrorNotice'

/** Tells how an action ended where it has no place of its own on the page. */
export function useAct() {
  const { notification, message } = App.useApp()
  const t = useText()
  return {
    failed: (error: unknown) => {
      const { message: title, hint } = explain(error, t)
      notification.error({ title, description: hint || undefined, duration: 8, role: 'alert' })
    },
    done: (text: string) => {
      message.success(text)
    },
  }
}
