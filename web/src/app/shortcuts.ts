/** Keys. Views say what theirs do; the help dialog lists what is there now. */
import { useEffect, useRef } from 'react'
import { createStore } from '@/lib/store'

export interface Shortcut {
  /** `j`, `Enter`, or two in a row: `g j` */
  keys: string
  about: string
  run: () => void
}

export interface ShortcutGroup {
  title: string
  shortcuts: Shortcut[]
}

export const groups = createStore<ShortcutGroup[]>([])
let prefix = ''
let prefixAt = 0
const LONGEST_PAUSE_MS = 1200

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
  if (document.querySelector('[role=dialog]')) return
  if (typing(event.target)) {
    if (event.key === 'Escape') (event.target as HTMLElement).blur()
    return
  }
  // Enter and Space are the focused button's own.
  if ((event.key === 'Enter' || event.key === ' ') && event.target instanceof Element && event.target.closest('button, a, [role=option]'))
    return
  const pressed = prefix && Date.now() - prefixAt < LONGEST_PAUSE_MS ? `${prefix} ${event.key}` : event.key
  prefix = ''
  const all = groups
    .get()
    .flatMap(group => group.shortcuts)
    .reverse()
  const shortcut = all.find(({ keys }) => keys === pressed)
  if (shortcut) {
    event.preventDefault()
    shortcut.run()
  } else if (all.some(({ keys }) => keys.startsWith(`${event.key} `))) {
    prefix = event.key
    prefixAt = Date.now()
  }
}
addEventListener('keydown', onKey)

export function useShortcuts(title: string, shortcuts: Shortcut[]): void {
  const latest = useRef(shortcuts)
  latest.current = shortcuts
  const keys = shortcuts.map(shortcut => shortcut.keys).join()
  useEffect(() => {
    const group = {
      title,
      shortcuts: latest.current.map(({ keys: own, about }) => ({
        keys: own,
        about,
        run: () => latest.current.find(shortcut => shortcut.keys === own)?.run(),
      })),
    }
    groups.set([...groups.get(), group])
    return () => groups.set(groups.get().filter(other => other !== group))
  }, [title, keys])
}
