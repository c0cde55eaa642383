// Ports of a sandbox under URLs of their own.
import { useEffect, useState } from 'preact/hooks'
import { asFailure, del, Failure, get, of, post } from '../lib/api'
import { readOnly } from '../lib/session'
import type { Preview } from '../lib/types'
import { Icon } from '../ui/icons'
import { Button, Chip, Confirm, Copy, Empty, ErrorBox, Loading, Notice, useLoad } from '../ui/parts'
import type { TabProps } from './sandbox'

export function PreviewsTab(p: TabProps) {
  if (readOnly()) return <Notice kind="warn">The URL of a preview gives access to the sandbox. {readOnly()}</Notice>
  return <Previews {...p} />
}

function Previews({ s }: TabProps) {
  const { value, failure, reload } = useLoad((signal) => get<{ previews: Preview[] }>(of(s.id, '/previews'), signal), [s.id], 10_000)
  const [port, setPort] = useState('')
  const [isPublic, setPublic] = useState(false)
  const [failed, setFailed] = useState<Failure | null>(null)
  const [busy, setBusy] = useState(false)
  const [selected, select] = useState(0)
  const [removing, remove] = useState<Preview | null>(null)
  const all = value?.previews ?? []
  const shown = all.find((p) => p.port === selected) ?? all[0]
  const create = () => {
    setBusy(true)
    setFailed(null)
    post<Preview>(of(s.id, '/previews'), { port: Number(port), public: isPublic })
      .then(
        (p) => {
          select(p.port)
          setPort('')
          reload()
        },
        (e: unknown) => setFailed(asFailure(e)),
      )
      .finally(() => setBusy(false))
  }
  const n = Number(port)
  return (
    <div class="previews">
      <form
        class="line"
        onSubmit={(e) => {
          e.preventDefault()
          if (n && !readOnly()) create()
        }}
      >
        <label>
          <span class="offscreen">Port</span>
          <input type="number" min={1} max={65535} placeholder="Port, such as 8000" value={port} onInput={(e) => setPort(e.currentTarget.value)} disabled={!!readOnly()} />
        </label>
        <label class="check">
          <input type="checkbox" checked={isPublic} onChange={(e) => setPublic(e.currentTarget.checked)} disabled={!!readOnly()} /> Public
        </label>
        <Button kind="primary" icon="plus" type="submit" busy={busy} why={readOnly()} disabled={!(n >= 1 && n <= 65535)}>
          Create
        </Button>
        <span class="muted hint">{isPublic ? 'Everybody who knows the URL may open it.' : 'The URL has a token that opens this port only.'}</span>
      </form>
      {failed && <ErrorBox failure={failed} />}
      {failure && <ErrorBox failure={failure} retry={reload} />}
      {!value ? (
        !failure && <Loading what="previews" />
      ) : !shown ? (
        <Empty title="No previews" icon="link">
          <p>A preview is a port of the sandbox under a host name of its own. Start a server under Processes, such as</p>
          <p>
            <code>python3 -m http.server 8000</code>
          </p>
          <p>and create a preview of its port above.</p>
        </Empty>
      ) : (
        <>
          <div class="ports" role="group" aria-label="Previews">
            {all.map((p) => (
              <button key={p.port} type="button" class="port" aria-pressed={p === shown} onClick={() => select(p.port)}>
                <span class="number">{p.port}</span>
                {p.public && <Chip kind="warn">public</Chip>}
              </button>
            ))}
          </div>
          <Frame key={shown.port} p={shown} onRemove={() => remove(shown)} />
        </>
      )}
      {removing && (
        <Confirm title={`Remove the preview of port ${removing.port}?`} action="Remove" onClose={() => remove(null)} onConfirm={() => del(of(s.id, `/previews/${removing.port}`)).then(reload)}>
          <p>Its URL becomes invalid. The program that listens there goes on.</p>
        </Confirm>
      )}
    </div>
  )
}

function Frame({ p, onRemove }: { p: Preview; onRemove: () => void }) {
  const [n, again] = useState(0)
  const [loading, setLoading] = useState(true)
  useEffect(() => setLoading(true), [n])
  if (!p.url) return <Notice>The URL of this preview is not shown to this session.</Notice>
  const address = new URL(p.url)
  address.search = ''
  return (
    <div class="frame">
      <header class="bar">
        <code class="grow path" title={address.href}>
          {address.host}
        </code>
        <Copy text={p.url} label="Copy the URL" />
        <Button small kind="plain" icon="refresh" label="Load again" onClick={() => again(n + 1)} />
        <a class="button small" href={p.url} target="_blank" rel="noreferrer noopener">
          <Icon name="link" />
          Open
        </a>
        <Button small kind="plain" icon="trash" label="Remove the preview" why={readOnly()} onClick={onRemove} />
      </header>
      {/* The page of the sandbox is untrusted. It has an origin of its own, so that it keeps its cookies and storage. */}
      <iframe key={n} class={loading ? 'loading' : ''} src={p.url} title={`Port ${p.port}`} sandbox="allow-scripts allow-same-origin allow-forms allow-popups allow-modals allow-downloads" referrerpolicy="origin" onLoad={() => setLoading(false)} />
    </div>
  )
}
