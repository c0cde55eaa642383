// Changes of one sandbox, with their dialogs.
import { useState } from 'preact/hooks'
import { asFailure, del, Failure, of, post } from '../lib/api'
import { amount, duration, parseDuration, shortID } from '../lib/format'
import { put, refresh, remove } from '../lib/live'
import { go } from '../lib/route'
import { readOnly } from '../lib/session'
import { store, useStore } from '../lib/store'
import type { Sandbox } from '../lib/types'
import { Button, Confirm, Dialog, ErrorBox, fail, Field, toast } from './parts'

export const title = (s: Sandbox): string => s.name || shortID(s.id)

type Open = { what: 'stop' | 'renew' | 'fork'; sandbox: Sandbox } | null

const open = store<Open>(null)

export const stop = (sandbox: Sandbox): void => open.set({ what: 'stop', sandbox })
export const renew = (sandbox: Sandbox): void => open.set({ what: 'renew', sandbox })
export const fork = (sandbox: Sandbox): void => open.set({ what: 'fork', sandbox })

// whyNot returns why an action cannot be done now, or "".
export function whyNot(s: Sandbox, what: 'stop' | 'renew' | 'fork' | 'pause' | 'resume'): string {
  if (readOnly()) return readOnly()
  if (what === 'resume') return s.state === 'paused' ? '' : 'The sandbox is running already.'
  if (what !== 'stop' && s.state === 'paused') return 'The sandbox is paused. Resume it first.'
  return ''
}

export async function pause(s: Sandbox): Promise<void> {
  put(await post<Sandbox>(of(s.id, '/pause')))
  toast('good', `${title(s)} is paused. Its state is on disk.`)
}

export async function resume(s: Sandbox): Promise<void> {
  put(await post<Sandbox>(of(s.id, '/resume')))
  toast('good', `${title(s)} runs again.`)
}

// items returns the actions of a sandbox for a menu.
export function items(s: Sandbox) {
  return [
    { title: 'Renew…', icon: 'clock' as const, why: whyNot(s, 'renew'), onSelect: () => renew(s) },
    s.state === 'paused'
      ? { title: 'Resume', icon: 'play' as const, why: whyNot(s, 'resume'), onSelect: () => void resume(s).catch(fail) }
      : { title: 'Pause', icon: 'pause' as const, why: whyNot(s, 'pause'), onSelect: () => void pause(s).catch(fail) },
    { title: 'Fork…', icon: 'fork' as const, why: whyNot(s, 'fork'), onSelect: () => fork(s) },
    { title: 'Stop…', icon: 'stop' as const, why: whyNot(s, 'stop'), danger: true, onSelect: () => stop(s) },
  ]
}

// Actions shows the open dialog.
export function Actions() {
  const o = useStore(open)
  if (!o) return null
  const close = () => open.set(null)
  if (o.what === 'stop') return <Stop s={o.sandbox} onClose={close} />
  if (o.what === 'renew') return <Renew s={o.sandbox} onClose={close} />
  return <ForkDialog s={o.sandbox} onClose={close} />
}

function Stop({ s, onClose }: { s: Sandbox; onClose: () => void }) {
  return (
    <Confirm
      title={`Stop ${title(s)}?`}
      action="Stop the sandbox"
      onClose={onClose}
      onConfirm={async () => {
        await del(of(s.id))
        remove(s.id)
        toast('good', `${title(s)} is stopped.`)
        if (location.hash.includes(s.id)) go('/sandboxes')
      }}
    >
      <p>
        {s.state === 'paused' ? 'Its saved state is removed from disk.' : `All its programs are killed${s.running ? ` (${s.running} run now)` : ''}, and its files are removed.`} This cannot be undone.
      </p>
    </Confirm>
  )
}

function Renew({ s, onClose }: { s: Sandbox; onClose: () => void }) {
  const [text, setText] = useState(s.idle_timeout === 'unlimited' ? '' : duration(s.idle_timeout).replace(/ (min|h|d).*/, ' $1'))
  const [failure, setFailure] = useState<Failure | null>(null)
  const [busy, setBusy] = useState(false)
  const seconds = parseDuration(text)
  const wrong = text.trim() !== '' && seconds === undefined ? 'Write a number with s, min, h or d, such as “30 min”.' : undefined
  return (
    <Dialog title={`Renew ${title(s)}`} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault()
          if (wrong) return
          setBusy(true)
          post<Sandbox>(of(s.id, '/renew'), seconds === undefined ? {} : { idle_timeout: seconds }).then(
            (n) => {
              put(n)
              toast('good', `${title(s)} is renewed: its idle timeout is ${amount(n.idle_timeout, duration)}.`)
              onClose()
            },
            (e: unknown) => {
              setFailure(asFailure(e))
              setBusy(false)
            },
          )
        }}
      >
        <div class="body">
          <p>Renewal counts as use. A sandbox without use and without programs for its idle timeout is removed.</p>
          <Field label="Idle timeout" hint={`Now ${amount(s.idle_timeout, duration)}. Empty: unchanged.`} error={wrong}>
            {(p) => <input {...p} value={text} onInput={(e) => setText(e.currentTarget.value)} autofocus />}
          </Field>
          {failure && <ErrorBox failure={failure} />}
        </div>
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy} disabled={!!wrong}>
            Renew
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

function ForkDialog({ s, onClose }: { s: Sandbox; onClose: () => void }) {
  const [n, setN] = useState(1)
  return (
    <Confirm
      title={`Fork ${title(s)}`}
      action={n === 1 ? 'Make a copy' : `Make ${n} copies`}
      kind="primary"
      onClose={onClose}
      onConfirm={async () => {
        const { sandboxes } = await post<{ sandboxes: Sandbox[] }>(of(s.id, '/fork'), { count: n })
        put(...sandboxes)
        refresh()
        toast('good', sandboxes.length === 1 ? `The copy is ${shortID(sandboxes[0]!.id)}.` : `${sandboxes.length} copies were made.`)
      }}
    >
      <p>A copy has the files, labels and limits of this sandbox, and a new id.</p>
      <Field label="Copies" hint="1 to 100">
        {(p) => <input {...p} type="number" min={1} max={100} value={n} onInput={(e) => setN(Math.max(1, Math.min(100, Number(e.currentTarget.value) || 1)))} />}
      </Field>
    </Confirm>
  )
}
