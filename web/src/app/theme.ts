import { createStore } from '@/lib/store'

export type Theme = 'system' | 'light' | 'dark'

const KEY = 'steadfast.theme'
const dark = matchMedia('(prefers-color-scheme: dark)')
const saved = localStorage.getItem(KEY)

export const theme = createStore<Theme>(saved === 'light' || saved === 'dark' ? saved : 'system')

function apply(): void {
  const chosen = theme.get()
  document.documentElement.dataset.theme = chosen === 'system' ? (dark.matches ? 'dark' : 'light') : chosen
}

export function nextTheme(): void {
  const order: Theme[] = ['system', 'light', 'dark']
  const chosen = order[(order.indexOf(theme.get()) + 1) % order.length] ?? 'system'
  if (chosen === 'system') localStorage.removeItem(KEY)
  else localStorage.setItem(KEY, chosen)
  theme.set(chosen)
}

theme.subscribe(apply)
dark.addEventListener('change', apply)
apply()
