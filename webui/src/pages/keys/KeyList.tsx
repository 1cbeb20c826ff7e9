import { KeyOutlined, PlusOutlined } from '@ant-design/icons'
import { Button, Switch } from 'antd'
import { useKeys } from '@/api/operations'
import { useMayChange } from '@/api/session'
import { useText } from '@/i18n'
import { EmptyState } from '@/ui/EmptyState'
import { Loaded, Page } from '@/ui/Page'
import { useUrlState } from '@/ui/useUrlState'
import { CreateKey } from './CreateKey'
import { KeyTable } from './KeyTable'

export function KeyList() {
  const t = useText()
  const keys = useKeys()
  const mayChange = useMayChange()
  const [create, setCreate] = useUrlState('create')
  const [revoked, setRevoked] = useUrlState('revoked')
  const open = () => setCreate('1')
  return (
    <Page
      title={t.keys.title}
      lead={t.keys.lead}
      actions={
        <Button type="primary" icon={<PlusOutlined />} disabled={!mayChange} onClick={open}>
          {t.keys.create}
        </Button>
      }
    >
      <Loaded query={keys}>
        {(page) => {
          if (page.results.length === 0) {
            return (
              <EmptyState
                icon={<KeyOutlined />}
                title={t.keys.emptyTitle}
                text={t.keys.emptyText}
                action={
                  <Button type="primary" disabled={!mayChange} onClick={open}>
                    {t.keys.create}
                  </Button>
                }
              />
            )
          }
          const shown = page.results.filter((key) => revoked !== '' || key.revoked_at === null)
          return (
            <>
              {page.results.some((key) => key.revoked_at !== null) && (
                <div className="filters">
                  <span className="switch">
                    <Switch
                      size="small"
                      checked={revoked !== ''}
                      onChange={(on) => setRevoked(on ? '1' : '')}
                      aria-label={t.keys.showRevoked}
                    />{' '}
                    {t.keys.showRevoked}
                  </span>
                </div>
              )}
              <KeyTable keys={shown} />
            </>
          )
        }}
      </Loaded>
      <CreateKey open={create !== ''} onClose={() => setCreate('')} />
    </Page>
  )
}
