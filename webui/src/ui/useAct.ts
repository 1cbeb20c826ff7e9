import { App } from 'antd'
import { useExplain } from './ErrorNotice'

/** Tells how an action ended where it has no place of its own on the page. */
export function useAct() {
  const { notification, message } = App.useApp()
  const explained = useExplain()
  return {
    failed: (error: unknown) => {
      const { message: title, hint } = explained(error)
      notification.error({ title, description: hint || undefined, duration: 8, role: 'alert' })
    },
    done: (text: string) => {
      message.success(text)
    },
  }
}
