/** The state of a view as it stands in the address. What is not valid is left out, so that an old link still opens. */

type Raw = Record<string, unknown>

export function text(raw: Raw, key: string): string | undefined {
  const value = raw[key]
  if (typeof value === 'number') return String(value)
  return typeof value === 'string' && value !== '' ? value : undefined
}

export function number(raw: Raw, key: string): number | undefined {
  const value = Number(raw[key])
  return raw[key] !== undefined && raw[key] !== '' && Number.isFinite(value) ? value : undefined
}

export function flag(raw: Raw, key: string): true | undefined {
  return raw[key] === true || raw[key] === 'true' || raw[key] === 1 ? true : undefined
}

export function choice<T extends string>(raw: Raw, key: string, choices: readonly T[]): T | undefined {
  return choices.find(candidate => candidate === raw[key])
}

export function choices<T extends string>(raw: Raw, key: string, all: readonly T[]): T[] | undefined {
  const value = raw[key]
  const named = Array.isArray(value) ? value : typeof value === 'string' ? value.split(',') : []
  const found = all.filter(candidate => named.includes(candidate))
  return found.length > 0 ? found : undefined
}

export function texts(raw: Raw, key: string): Record<string, string> | undefined {
  const value = raw[key]
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  const entries = Object.entries(value).map(([name, one]) => [name, String(one)] as const)
  return entries.length > 0 ? Object.fromEntries(entries) : undefined
}

/** Without the keys that are not there, so that links need not name them. */
export function optional<T extends object>(search: T): Partial<T> {
  return Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined)) as Partial<T>
}
