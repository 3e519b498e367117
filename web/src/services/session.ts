/** The token of this tab: in session storage alone, so that it ends with the tab and no other page has it. */
import { createStore } from '@/lib/store'

const KEY = 'steadfast.token'

export interface Session {
  token: string | null
  /** Why the sign-in page is shown. `asked`: the server wants a token and there was none. */
  refused: 'asked' | 'wrong' | 'expired' | null
}

export const session = createStore<Session>({ token: sessionStorage.getItem(KEY), refused: null })

export function signIn(token: string): void {
  sessionStorage.setItem(KEY, token)
  session.set({ token, refused: null })
}

export function signOut(): void {
  sessionStorage.removeItem(KEY)
  session.set({ token: null, refused: 'asked' })
}

/** The server answered 401. `accepted`: this token was good earlier. */
export function refuse(token: string | null, accepted: boolean): void {
  if (session.get().token !== token) return
  sessionStorage.removeItem(KEY)
  session.set({ token: null, refused: token === null ? 'asked' : accepted ? 'expired' : 'wrong' })
}
