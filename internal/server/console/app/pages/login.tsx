import { useEffect, useRef, useState } from 'preact/hooks'
import { asFailure, Failure, get, request } from '../lib/api'
import { session } from '../lib/session'
import type { Session } from '../lib/types'
import { Logo } from '../ui/icons'
import { Button, ErrorBox, Field } from '../ui/parts'

export function Login() {
  const [token, setToken] = useState('')
  const [failure, setFailure] = useState<Failure | null>(null)
  const [busy, setBusy] = useState(false)
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => input.current?.focus(), [])
  const login = async () => {
    setBusy(true)
    setFailure(null)
    try {
      await request('/console/login', { method: 'POST', json: { token: token.trim() } })
      session.set(await get<Session>('/console/session'))
    } catch (e) {
      setFailure(asFailure(e))
      setBusy(false)
      input.current?.select()
    }
  }
  return (
    <main class="login">
      <form
        onSubmit={(e) => {
          e.preventDefault()
          if (token.trim() && !busy) void login()
        }}
      >
        <div class="brand">
          <Logo size={34} />
          <h1>Sandbar</h1>
        </div>
        <Field
          label="Token"
          hint={
            <>
              The daemon’s own token is in <code>/var/lib/sandbar/token</code>, or in <code>~/.local/state/sandbar/token</code> without root. <code>sandbar token create</code> makes others.
            </>
          }
        >
          {(p) => (
            <input
              {...p}
              ref={input}
              type="password"
              name="token"
              autocomplete="current-password"
              spellcheck={false}
              value={token}
              onInput={(e) => setToken(e.currentTarget.value)}
            />
          )}
        </Field>
        {failure && <ErrorBox failure={failure} />}
        <Button kind="primary" type="submit" busy={busy} disabled={!token.trim()}>
          Log in
        </Button>
      </form>
      <p class="foot">The session lasts 12 hours and ends when the token is revoked.</p>
    </main>
  )
}
