// Who is logged in.
import { store } from './store'
import type { Session } from './types'

// session is undefined until the daemon has answered, and null without a session.
export const session = store<Session | null | undefined>(undefined)

// readOnly is why the session may change nothing, or "" if it may.
export function readOnly(): string {
  return session.get()?.role === 'read-only' ? 'The token of this session is read-only. Log in with a token of the role user or admin.' : ''
}

// Theme is the colour scheme that was selected; "" follows the system.
export type Theme = '' | 'light' | 'dark'

const key = 'sandbar.theme'

export const theme = store<Theme>(readTheme())

function readTheme(): Theme {
  const t = localStorage.getItem(key)
  return t === 'light' || t === 'dark' ? t : ''
}

export function selectTheme(t: Theme): void {
  theme.set(t)
  if (t) localStorage.setItem(key, t)
  else localStorage.removeItem(key)
  showTheme()
}

export function showTheme(): void {
  const t = theme.get()
  if (t) document.documentElement.dataset['theme'] = t
  else delete document.documentElement.dataset['theme']
}

// dark reports whether the page is dark now.
export const dark = (): boolean => (theme.get() || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark'
