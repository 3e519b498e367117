import { useState, type FormEvent } from 'react'
import { Button, TextInput } from '@/components/ui'
import { queries } from '@/services/queries'
import { signIn, type Session } from '@/services/session'

const WHY = {
  asked: 'This server wants to know who asks.',
  wrong: 'The server does not know this token. It may have been revoked, or lost a character on the way.',
  expired: 'Your token is no longer good: it has expired or was revoked. What you were looking at opens again after signing in.',
}

/** Takes the place of whatever view was asked for, so that the address stays and opens after signing in. */
export function SignIn({ refused }: { refused: NonNullable<Session['refused']> }) {
  const [token, setToken] = useState('')
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (token.trim() === '') return
    signIn(token.trim())
    void queries.invalidateQueries()
  }
  return (
    <main className="flex grow items-center justify-center p-4">
      <form onSubmit={submit} className="card flex w-full max-w-md flex-col gap-4 p-6 shadow-(--shadow)">
        <div className="flex items-center gap-3">
          <svg viewBox="0 0 32 32" width="30" height="30" aria-hidden>
            <rect width="32" height="32" rx="7" fill="var(--accent)" />
            <path
              d="M7 21h5l3-11 4 15 3-9h3"
              fill="none"
              stroke="var(--on-accent)"
              strokeWidth="2.6"
              strokeLinecap="round"
              strokeLinejoin="round"
            />
          </svg>
          <h1 className="text-[1.35em] font-semibold tracking-tight">Sign in to Steadfast</h1>
        </div>
        <p role={refused === 'asked' ? undefined : 'alert'} className={refused === 'asked' ? 'text-muted' : 'text-failed'}>
          {WHY[refused]}
        </p>
        <label className="flex flex-col gap-1 font-medium">
          Token
          <TextInput
            type="password"
            name="token"
            autoFocus
            value={token}
            onChange={event => setToken(event.target.value)}
            className="h-9 font-mono"
          />
        </label>
        <Button type="submit" look="primary" disabled={token.trim() === ''} className="h-9">
          Sign in
        </Button>
        <p className="text-muted">
          <code>steadfast token create --scope read --name me</code> prints one. It is kept for this tab alone, and only sent to this
          server.
        </p>
      </form>
    </main>
  )
}
