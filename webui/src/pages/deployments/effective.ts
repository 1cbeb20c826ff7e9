import type { Instance } from '@/api/types'

/** Data types that the running engines report; "auto" has become a real one here. */
export function effectiveDtypes(instances: Instance[]): string[] {
  const found = instances.map((instance) => instance.facts.dtype).filter((dtype) => typeof dtype === 'string')
  return [...new Set(found)].sort()
}

export function instanceName(instance: Pick<Instance, 'role' | 'index'>): string {
  return `${instance.role} ${instance.index}`
}
