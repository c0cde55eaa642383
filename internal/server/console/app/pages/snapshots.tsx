// Pause, resume and fork of a sandbox.
import { bytes, moment, shortID } from '../lib/format'
import { live } from '../lib/live'
import { href } from '../lib/route'
import { useStore } from '../lib/store'
import type { Notification } from '../lib/types'
import { fork, pause, resume, title, whyNot } from '../ui/actions'
import { Button, Fact, Facts, State, useAction } from '../ui/parts'
import type { TabProps } from './sandbox'
import { useEffect, useState } from 'preact/hooks'
import { follow } from '../lib/live'

export function SnapshotsTab({ s }: TabProps) {
  const l = useStore(live)
  const [busy, run] = useAction()
  const [copies, setCopies] = useState<string[]>([])
  const [source, setSource] = useState('')
  useEffect(() => {
    const a = new AbortController()
    const take = (n: Notification) => {
      if (n.from === s.id && n.sandbox) setCopies((all) => (all.includes(n.sandbox!) ? all : [...all, n.sandbox!]))
      if (n.sandbox === s.id && n.from) setSource(n.from)
    }
    void follow('type=sandbox.forked', 'oldest', a.signal, take, () => {})
    return () => a.abort()
  }, [s.id])
  const link = (id: string) => {
    const x = l.sandboxes.get(id)
    return x ? (
      <a href={href('sandboxes', id)}>{title(x)}</a>
    ) : (
      <span class="muted">
        <code>{shortID(id)}</code> (ended)
      </span>
    )
  }
  return (
    <div class="snapshots">
      <section class="card">
        <h2>{s.state === 'paused' ? 'Paused' : 'Running'}</h2>
        <Facts>
          <Fact name="State">
            <State state={s.state} />
          </Fact>
          {s.paused_at && <Fact name="Paused">{moment(s.paused_at)}</Fact>}
          {s.disk_bytes !== undefined && <Fact name="On disk">{bytes(s.disk_bytes)}</Fact>}
          {source && <Fact name="Copy of">{link(source)}</Fact>}
        </Facts>
        <p class="muted">
          {s.state === 'paused'
            ? 'The state is on disk. It outlives a restart of the daemon, never expires, and is used up when the sandbox is resumed.'
            : s.driver === 'vm'
              ? 'A pause writes the files and the running programs with their memory to disk, and frees the memory and the slot.'
              : 'A pause writes the files to disk, ends all programs, and frees the memory and the slot.'}
        </p>
        <p class="actions">
          {s.state === 'paused' ? (
            <Button kind="primary" icon="play" busy={busy === 'resume'} why={whyNot(s, 'resume')} onClick={() => run('resume', () => resume(s))}>
              Resume
            </Button>
          ) : (
            <Button kind="primary" icon="pause" busy={busy === 'pause'} why={whyNot(s, 'pause')} onClick={() => run('pause', () => pause(s))}>
              Pause
            </Button>
          )}
        </p>
      </section>
      <section class="card">
        <h2>Copies</h2>
        <p class="muted">A fork copies the running sandbox under a new id, with its files, labels and limits{s.driver === 'vm' ? ', and its running programs' : ''}.</p>
        {copies.length > 0 && (
          <ul class="links">
            {copies.map((id) => (
              <li key={id}>{link(id)}</li>
            ))}
          </ul>
        )}
        <p class="actions">
          <Button icon="fork" why={whyNot(s, 'fork')} onClick={() => fork(s)}>
            Fork
          </Button>
        </p>
      </section>
    </div>
  )
}
