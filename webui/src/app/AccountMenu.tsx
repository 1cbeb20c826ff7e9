import { DownOutlined, UserOutlined } from '@ant-design/icons'
import { Button, Dropdown, type MenuProps } from 'antd'
import { useState } from 'react'
import { useSavePreferences, useSession, useSignOut, useSwitchTeam } from '@/api/session'
import { useText } from '@/i18n'
import { useAct } from '@/ui/useAct'
import { PasswordDialog } from './PasswordDialog'
import { type Language, preferences, type Theme, usePreferences } from './preferences'

/** Values the server keeps for a language: those of its own translation settings. */
const SERVER_LANGUAGE: Record<Language, string> = { en: 'en', zh: 'zh-hans' }

export function AccountMenu() {
  const t = useText()
  const act = useAct()
  const { user, team, teams } = useSession()
  const { language, theme } = usePreferences()
  const signOut = useSignOut()
  const switchTeam = useSwitchTeam()
  const save = useSavePreferences()
  const [passwordOpen, setPasswordOpen] = useState(false)

  const chooseLanguage = (choice: Language) => {
    preferences.set({ language: choice })
    save.mutate({ language: SERVER_LANGUAGE[choice] }, { onError: act.failed })
  }
  const chooseTheme = (choice: Theme) => {
    preferences.set({ theme: choice })
    save.mutate({ theme: choice }, { onError: act.failed })
  }

  const choices: Record<string, () => void> = {
    'language:en': () => chooseLanguage('en'),
    'language:zh': () => chooseLanguage('zh'),
    'theme:system': () => chooseTheme('system'),
    'theme:light': () => chooseTheme('light'),
    'theme:dark': () => chooseTheme('dark'),
    password: () => setPasswordOpen(true),
    out: () => signOut.mutate(undefined, { onError: act.failed }),
  }
  const items: MenuProps['items'] = [
    {
      key: 'language',
      type: 'group',
      label: t.account.language,
      children: [
        { key: 'language:en', label: 'English' },
        { key: 'language:zh', label: '简体中文' },
      ],
    },
    {
      key: 'theme',
      type: 'group',
      label: t.account.theme,
      children: [
        { key: 'theme:system', label: t.account.system },
        { key: 'theme:light', label: t.account.light },
        { key: 'theme:dark', label: t.account.dark },
      ],
    },
    {
      key: 'teams',
      type: 'group',
      label: t.account.team,
      children: teams.map((one) => ({
        key: `team:${one.id}`,
        label: `${one.name} (${t.account.roles[one.role]})`,
      })),
    },
    { type: 'divider' },
    { key: 'password', label: t.account.changePassword },
    { key: 'out', label: t.account.signOut },
  ]
  const onClick: MenuProps['onClick'] = ({ key }) => {
    if (key.startsWith('team:')) switchTeam.mutate(key.slice(5), { onError: act.failed })
    else choices[key]?.()
  }
  return (
    <>
      <Dropdown
        trigger={['click']}
        placement="bottomRight"
        menu={{
          items,
          onClick,
          selectable: true,
          selectedKeys: [`language:${language}`, `theme:${theme}`, `team:${team?.id ?? ''}`],
        }}
      >
        <Button type="text" className="account" icon={<UserOutlined />}>
          <span className="visually-hidden">{t.account.menu}: </span>
          <span className="account-name">
            {user.username}
            {team && <span className="muted"> · {team.name}</span>}
          </span>
          <DownOutlined className="small" />
        </Button>
      </Dropdown>
      <PasswordDialog open={passwordOpen} onClose={() => setPasswordOpen(false)} />
    </>
  )
}
