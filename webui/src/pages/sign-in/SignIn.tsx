import { LockOutlined, UserOutlined } from '@ant-design/icons'
import { Alert, Button, Card, Form, Input, Segmented } from 'antd'
import { useEffect, useState } from 'react'
import { ApiError } from '@/api/client'
import { useSignIn } from '@/api/session'
import { Brand } from '@/app/Brand'
import { type Language, preferences, usePreferences } from '@/app/preferences'
import { useText } from '@/i18n'
import { ErrorNotice } from '@/ui/ErrorNotice'

const DEFAULT_WAIT_S = 60

export function SignIn() {
  const t = useText()
  const { language } = usePreferences()
  const signIn = useSignIn()
  const [blockedUntil, setBlockedUntil] = useState(0)
  const wait = useSecondsUntil(blockedUntil)

  const submit = (values: { username: string; password: string }) =>
    signIn.mutate(values, {
      onError: (error) => {
        if (error instanceof ApiError && error.status === 429) {
          setBlockedUntil(Date.now() + 1_000 * (error.retryAfter ?? DEFAULT_WAIT_S))
        }
      },
    })
  return (
    <main className="sign-in">
      <title>{`${t.signIn.title} · Tursiops`}</title>
      <Card className="sign-in-card">
        <div className="sign-in-head">
          <Brand />
          <Segmented<Language>
            size="small"
            aria-label={t.account.language}
            value={language}
            onChange={(choice) => preferences.set({ language: choice })}
            options={[
              { value: 'en', label: 'English' },
              { value: 'zh', label: '中文' },
            ]}
          />
        </div>
        <h1>{t.signIn.title}</h1>
        <p className="muted">{t.signIn.lead}</p>
        <Form layout="vertical" onFinish={submit} requiredMark={false} disabled={signIn.isPending}>
          <Form.Item
            name="username"
            label={t.signIn.username}
            rules={[{ required: true, message: t.common.required(t.signIn.username) }]}
          >
            <Input prefix={<UserOutlined />} autoComplete="username" autoFocus size="large" />
          </Form.Item>
          <Form.Item
            name="password"
            label={t.signIn.password}
            rules={[{ required: true, message: t.common.required(t.signIn.password) }]}
          >
            <Input.Password prefix={<LockOutlined />} autoComplete="current-password" size="large" />
          </Form.Item>
          <SignInError error={signIn.error} wait={wait} />
          <Button
            type="primary"
            htmlType="submit"
            block
            size="large"
            loading={signIn.isPending}
            disabled={wait > 0}
          >
            {t.signIn.submit}
          </Button>
        </Form>
        <p className="muted small sign-in-foot">{t.signIn.lostPassword}</p>
      </Card>
    </main>
  )
}

function SignInError({ error, wait }: { error: Error | null; wait: number }) {
  const t = useText()
  if (error === null) return null
  if (error instanceof ApiError && error.status === 429) {
    return (
      <Alert
        type="warning"
        showIcon
        role="alert"
        className="notice"
        title={t.signIn.limited}
        description={wait > 0 ? t.signIn.limitedHint(wait) : undefined}
      />
    )
  }
  if (error instanceof ApiError && (error.status === 400 || error.status === 401)) {
    return (
      <Alert
        type="error"
        showIcon
        role="alert"
        className="notice"
        title={t.signIn.wrong}
        description={t.signIn.wrongHint}
      />
    )
  }
  return <ErrorNotice error={error} />
}

/** Seconds left until `end` (unix ms), counting down. */
function useSecondsUntil(end: number): number {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    if (end <= Date.now()) return
    setNow(Date.now())
    const timer = setInterval(() => {
      setNow(Date.now())
      if (Date.now() >= end) clearInterval(timer)
    }, 500)
    return () => clearInterval(timer)
  }, [end])
  return Math.max(0, Math.ceil((end - now) / 1_000))
}
