import { Skeleton } from 'antd'
import { useNavigate, useParams, useSearchParams } from 'react-router'
import { useCreateDeployment, useDeployment, useEditDeployment } from '@/api/deployments'
import { useVersion } from '@/api/models'
import type { Deployment } from '@/api/types'
import { useText } from '@/i18n'
import { Loaded, Page } from '@/ui/Page'
import { useAct } from '@/ui/useAct'
import { suggestedName } from './fields/names'
import {
  changedFields,
  type FormValues,
  fromDeployment,
  NEW_VALUES,
  restartingFields,
  splitOptions,
  toInput,
} from './formValues'
import { RevisionForm } from './RevisionForm'

function withForce<Body extends object>(body: Body, force: boolean): Body {
  return force ? { ...body, force: true } : body
}

export function NewDeployment() {
  const t = useText()
  const [params] = useSearchParams()
  const asked = params.get('version') ?? undefined
  const version = useVersion(asked)
  return (
    <Page title={t.deployments.form.newTitle} parent={{ title: t.deployments.title, to: '/deployments' }}>
      {asked === undefined ? (
        <Create initial={NEW_VALUES} />
      ) : (
        <Loaded query={version}>
          {({ model_name }) => (
            <Create
              initial={{
                ...NEW_VALUES,
                version: asked,
                name: params.get('name') ?? suggestedName(model_name),
                ...splitOptions(optionsOf(params), params.get('draft')),
              }}
            />
          )}
        </Loaded>
      )}
    </Page>
  )
}

/** Options of the engine that a link asks for: `option.kv_cache_dtype=int8`. A draft version is named beside: `draft`. */
function optionsOf(params: URLSearchParams): FormValues['options'] {
  const named = [...params].filter(([name]) => name.startsWith('option.'))
  return Object.fromEntries(named.map(([name, value]) => [name.slice('option.'.length), value]))
}

function Create({ initial }: { initial: FormValues }) {
  const t = useText()
  const act = useAct()
  const navigate = useNavigate()
  const create = useCreateDeployment()
  return (
    <RevisionForm
      initial={initial}
      error={create.error}
      pending={create.isPending}
      submitText={() => t.deployments.form.submit}
      onSubmit={(values, force) =>
        create.mutate(withForce(toInput(values), force), {
          onSuccess: (deployment) => {
            act.done(t.deployments.form.created(deployment.name))
            navigate(`/deployments/${deployment.id}`)
          },
        })
      }
    />
  )
}

export function EditDeployment() {
  const t = useText()
  const { id = '' } = useParams()
  const deployment = useDeployment(id)
  const name = deployment.data?.name ?? ''
  return (
    <Page
      title={t.deployments.form.editTitle(name)}
      parent={{ title: name || t.deployments.title, to: `/deployments/${id}` }}
    >
      <Loaded query={deployment}>
        {(data) => (data.revision === null ? <Skeleton /> : <Edit deployment={data} />)}
      </Loaded>
    </Page>
  )
}

function Edit({ deployment }: { deployment: Deployment }) {
  const t = useText()
  const act = useAct()
  const navigate = useNavigate()
  const edit = useEditDeployment(deployment.id)
  const initial = fromDeployment(deployment)
  const names = (fields: string[]) => fields.map((field) => t.deployments.fields[field] ?? field).join(', ')
  const running = deployment.instances.filter((instance) => instance.desired === 'running').length
  return (
    <RevisionForm
      initial={initial}
      edits={deployment}
      error={edit.error}
      pending={edit.isPending}
      effect={(values) => {
        const changed = changedFields(initial, values)
        if (changed.length === 0) return t.deployments.form.unchanged
        const restarting = restartingFields(changed)
        return restarting.length > 0
          ? t.deployments.form.restarts(names(restarting), running)
          : t.deployments.form.noRestart
      }}
      submitText={(values) =>
        restartingFields(changedFields(initial, values)).length > 0
          ? t.deployments.form.save
          : t.deployments.form.savePlain
      }
      onSubmit={(values, force) => {
        const changed = new Set(changedFields(initial, values))
        const body = Object.fromEntries(
          Object.entries(toInput(values)).filter(([field]) => changed.has(field)),
        )
        edit.mutate(withForce(body, force), {
          onSuccess: ({ restarts }) => {
            act.done(
              restarts && restarts.length > 0
                ? t.deployments.form.savedRestarts(names(restarts))
                : t.deployments.form.saved,
            )
            navigate(`/deployments/${deployment.id}`)
          },
        })
      }}
    />
  )
}
