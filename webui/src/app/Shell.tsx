import { MenuOutlined } from '@ant-design/icons'
import { Button, Drawer, Layout } from 'antd'
import { useEffect, useState } from 'react'
import { Link, Outlet, useNavigation } from 'react-router'
import { live } from '@/api/live'
import { useSession } from '@/api/session'
import { useText } from '@/i18n'
import { AccountMenu } from './AccountMenu'
import { Brand } from './Brand'
import { LiveMark } from './LiveMark'
import { Navigation } from './Navigation'

export function Shell() {
  const t = useText()
  const { version, team } = useSession()
  const [menuOpen, setMenuOpen] = useState(false)
  const navigation = useNavigation()
  // A subscription, not a request: the feed belongs to the signed-in page and to its team.
  // biome-ignore lint/correctness/useExhaustiveDependencies: another team is another feed
  useEffect(() => live.start(), [team?.id])
  return (
    <Layout className="shell">
      <a href="#content" className="skip-link">
        {t.nav.skip}
      </a>
      <Layout.Sider width={212} className="sider" theme="light">
        <Link to="/" className="brand-link">
          <Brand />
        </Link>
        <Navigation />
        <div className="sider-foot">
          <a href="/api/v1/docs" target="_blank" rel="noreferrer">
            {t.nav.apiDocs}
          </a>
          <span className="muted">{version}</span>
        </div>
      </Layout.Sider>
      <Layout>
        <Layout.Header className="header">
          <Button
            type="text"
            className="menu-button"
            icon={<MenuOutlined />}
            aria-label={t.nav.open}
            onClick={() => setMenuOpen(true)}
          />
          <span className="header-brand">
            <Brand />
          </span>
          <span className="grow" />
          <LiveMark />
          <AccountMenu />
        </Layout.Header>
        <div className={navigation.state === 'idle' ? 'page-progress' : 'page-progress moving'} aria-hidden />
        <main id="content" className="content" tabIndex={-1}>
          <Outlet />
        </main>
      </Layout>
      <Drawer
        open={menuOpen}
        placement="left"
        size={260}
        title={<Brand />}
        onClose={() => setMenuOpen(false)}
      >
        <Navigation onNavigate={() => setMenuOpen(false)} />
      </Drawer>
    </Layout>
  )
}
