/** Times that people mostly want; the night leaves the machines free. */
export const CRON_PRESETS = { nightly: '30 2 * * *', weekly: '30 2 * * 1', hourly: '0 * * * *' }

export function presetOf(cron: string): string {
  return Object.entries(CRON_PRESETS).find(([, text]) => text === cron)?.[0] ?? 'own'
}

/** Whether it has the form of a cron expression; the platform reads it and names what is wrong in it. */
export function isCron(text: string): boolean {
  const fields = text.trim().split(/\s+/)
  return fields.length === 5 && fields.every((field) => /^[\d*,/A-Za-z-]+$/.test(field))
}

/** Names of the IANA database that the browser knows, with UTC, which it leaves out. */
export function zones(): string[] {
  return ['UTC', ...Intl.supportedValuesOf('timeZone').filter((zone) => zone !== 'UTC')]
}
