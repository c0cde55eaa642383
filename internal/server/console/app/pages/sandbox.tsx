// One sandbox: its header, and the tabs.
import { useEffect, useState } from 'preact/hooks'
import { asFailure, Failure, get, of } from '../lib/api'
import { amount, bytes, clock, count, duration, moment, plural, since } from '../lib/format'
import { follow, live, onEvent, put, usageChanged, usageOf, watch } from '../lib/live'
import { go, href } from '../lib/route'
import { useStore } from '../lib/store'
import type { Notification, Sandbox } from '../lib/types'
import { Actions, fork, pause, renew, resume, stop, whyNot } from '../ui/actions'
import { Plot } from '../ui/plot'
import { Button, Copy, Empty, ErrorBox, Fact, Facts, Labels, Loading, Notice, State, Tabs, useAction, useNow } from '../ui/parts'
import { Lazy } from './app'
import { describe } from './describe'
import { deadline } from './sandboxes'

const tabs = [
  { id: 'overview', title: 'Overview' },
  { id: 'terminal', title: 'Terminal' },
  { id: 'processes', title: 'Processes' },
  { id: 'files', title: 'Files' },
  { id: 'previews', title: 'Previews' },
  { id: 'notebook', title: 'Notebook' },
  { id: 'snapshots', title: 'Snapshots' },
]

export function SandboxPage({ id, tab }: { id: string; tab: string }) {
  const l = useStore(live)
  const [ended, setEnded] = useState('')
  const [failure, setFailure] = useState<Failure | null>(null)
  const [last, setLast] = useState<Sandbox | null>(null)
  const [busy, run] = useAction()
  const s = l.sandboxes.get(id) ?? null
  useEffect(() => {
    if (s) {
      setLast(s)
      setFailure(null)
    } else if ((l.loaded || l.failure) && !ended)
      get<Sandbox>(of(id)).then(
        (s) => {
          if (s.id !== id) go('/sandboxes/' + s.id, true)
          put(s)
        },
        (e: unknown) => setFailure(asFailure(e)),
      )
  }, [s, l.loaded])
  useEffect(() => onEvent((n) => n.sandbox === id && n.type === 'sandbox.ended' && setEnded(n.reason ?? 'stopped')), [id])
  useEffect(() => watch(id, true), [id])
  const shown = s ?? last
  const missing = (
    <header class="page">
      <h1>Sandbox</h1>
    </header>
  )
  if (!shown)
    return failure ? (
      <>
        {missing}
        {failure.status === 404 ? (
          <Empty title="There is no such sandbox">
            <p>
              <code>{id}</code> was stopped, has expired, or belongs to another tenant. <a href={href('sandboxes')}>Show all sandboxes</a>.
            </p>
          </Empty>
        ) : (
          <ErrorBox failure={failure} />
        )}
      </>
    ) : (
      <Loading what="the sandbox" />
    )
  const gone = !s && (ended !== '' || failure?.status === 404 || failure?.status === 410)
  const selected = tabs.find((t) => t.id === tab)?.id ?? 'overview'
  const props = { s: shown, gone }
  return (
    <>
      <header class="page sandbox">
        <a class="back" href={href('sandboxes')} aria-label="All sandboxes">
          ‹
        </a>
        <h1>{shown.name || <code>{shown.id}</code>}</h1>
        {gone ? <span class="state bad"><span class="dot" aria-hidden="true" />ended</span> : <State state={shown.state} />}
        <span class="sub">
          {shown.name && <code>{shown.id}</code>}
          <Copy text={shown.id} label="Copy the id" />
        </span>
        {!gone && (
          <div class="tools">
            <Button icon="clock" why={whyNot(shown, 'renew')} onClick={() => renew(shown)}>
              Renew
            </Button>
            {shown.state === 'paused' ? (
              <Button icon="play" kind="primary" busy={busy === 'resume'} why={whyNot(shown, 'resume')} onClick={() => run('resume', () => resume(shown))}>
                Resume
              </Button>
            ) : (
              <Button icon="pause" busy={busy === 'pause'} why={whyNot(shown, 'pause')} onClick={() => run('pause', () => pause(shown))}>
                Pause
              </Button>
            )}
            <Button icon="fork" why={whyNot(shown, 'fork')} onClick={() => fork(shown)}>
              Fork
            </Button>
            <Button icon="stop" kind="danger" why={whyNot(shown, 'stop')} onClick={() => stop(shown)}>
              Stop
            </Button>
          </div>
        )}
      </header>
      {gone && (
        <Notice kind="warn">
          This sandbox has ended{ended ? ` (${reasons[ended] ?? ended})` : ''}. Its files and programs are gone. <a href={href('sandboxes')}>Show all sandboxes</a>.
        </Notice>
      )}
      <Tabs all={tabs} selected={selected} onSelect={(t) => go(`/sandboxes/${id}${t === 'overview' ? '' : '/' + t}`, true)} label="Parts of the sandbox" />
      <section id="panel" role="tabpanel" aria-labelledby={'tab-' + selected} class="panel" tabIndex={selected === 'terminal' ? -1 : 0}>
        {gone && selected !== 'overview' ? (
          <Empty title="The sandbox has ended">
            <p>There is nothing to show here any more.</p>
          </Empty>
        ) : shown.state === 'paused' && !['overview', 'snapshots'].includes(selected) ? (
          <Empty title="The sandbox is paused" icon="pause">
            <p>Its state is on disk, and no program runs. Resume it to continue.</p>
            <p>
              <Button kind="primary" icon="play" busy={busy === 'resume'} why={whyNot(shown, 'resume')} onClick={() => run('resume', () => resume(shown))}>
                Resume
              </Button>
            </p>
          </Empty>
        ) : selected === 'overview' ? (
          <Overview {...props} />
        ) : selected === 'terminal' ? (
          <Lazy key={selected} load={() => import('./terminal').then((m) => m.TerminalTab)} props={props} what="the terminal" />
        ) : selected === 'processes' ? (
          <Lazy key={selected} load={() => import('./processes').then((m) => m.ProcessesTab)} props={props} what="processes" />
        ) : selected === 'files' ? (
          <Lazy key={selected} load={() => import('./files').then((m) => m.FilesTab)} props={props} what="files" />
        ) : selected === 'previews' ? (
          <Lazy key={selected} load={() => import('./previews').then((m) => m.PreviewsTab)} props={props} what="previews" />
        ) : selected === 'notebook' ? (
          <Lazy key={selected} load={() => import('./notebook').then((m) => m.NotebookTab)} props={props} what="the notebook" />
        ) : (
          <Lazy key={selected} load={() => import('./snapshots').then((m) => m.SnapshotsTab)} props={props} what="snapshots" />
        )}
      </section>
      <Actions />
    </>
  )
}

const reasons: Record<string, string> = { stopped: 'stopped by a request', idle: 'idle for too long', lifetime: 'at the end of its longest lifetime', died: 'its first process or its backend ended by itself', shutdown: 'the daemon shut down' }

export interface TabProps {
  s: Sandbox
  gone: boolean
}

function Overview({ s, gone }: TabProps) {
  const now = useNow()
  useStore(usageChanged)
  const u = usageOf(s.id)
  const samples = u?.samples ?? []
  const times = samples.map((x) => x.time)
  const end = gone ? null : deadline(s)
  const limit = (a: unknown) => (typeof a === 'number' ? a : 0)
  return (
    <div class="overview">
      <div class="plots">
        {u?.failure && !samples.length ? (
          <Notice>
            Usage cannot be measured: {u.failure.message}. {u.failure.fix && u.failure.fix + '.'}
          </Notice>
        ) : (
          <>
            <Plot title="Processors" times={times} series={[{ name: 'processors', color: 1, values: samples.map((x) => x.cpu) }]} text={(v) => v.toFixed(2)} top={Math.min(1, limit(s.limits.cpus) || 1)} />
            <Plot title="Memory" times={times} series={[{ name: 'memory', color: 2, values: samples.map((x) => x.memory) }, { name: 'files', color: 3, values: samples.map((x) => x.files) }]} text={bytes} top={16 << 20} />
            <Plot title="Processes" times={times} series={[{ name: 'processes', color: 4, values: samples.map((x) => x.processes) }]} text={(v) => String(Math.round(v))} top={4} />
          </>
        )}
      </div>
      <div class="columns2">
        <section class="card">
          <h2>Facts</h2>
          <Facts>
            <Fact name="Image">{s.image}</Fact>
            <Fact name="Driver">{s.driver}</Fact>
            {s.tenant && <Fact name="Tenant">{s.tenant}</Fact>}
            {s.client && <Fact name="Client">{s.client}</Fact>}
            <Fact name="Created">
              {moment(s.created_at)} <span class="muted">{duration(since(s.created_at, now))} ago</span>
            </Fact>
            <Fact name="Last used">
              {moment(s.last_used_at)} <span class="muted">{duration(since(s.last_used_at, now))} ago</span>
            </Fact>
            <Fact name="Idle timeout">{amount(s.idle_timeout, duration)}</Fact>
            <Fact name="Ends">
              {end ? (
                <>
                  in {duration((end.at - now) / 1000)} <span class="muted">{end.why}</span>
                </>
              ) : gone ? (
                'ended'
              ) : s.state === 'paused' ? (
                'not while it is paused'
              ) : s.running ? (
                'not while programs run'
              ) : (
                'never'
              )}
            </Fact>
            {s.expires_at && <Fact name="Longest life">until {moment(s.expires_at)}</Fact>}
            <Fact name="Programs">{plural(s.running, 'program')} running</Fact>
            {s.disk_bytes !== undefined && <Fact name="Saved state">{bytes(s.disk_bytes)}</Fact>}
            {Object.keys(s.labels).length > 0 && (
              <Fact name="Labels">
                <Labels labels={s.labels} />
              </Fact>
            )}
            <Fact name="UUID">
              <code>{s.uuid}</code>
            </Fact>
          </Facts>
        </section>
        <section class="card">
          <h2>Limits</h2>
          <Limits s={s} />
        </section>
        <Activity id={s.id} />
      </div>
    </div>
  )
}

const limitNames: [string, keyof Sandbox['limits'], (n: number) => string][] = [
  ['Processors', 'cpus', String],
  ['CPU weight', 'cpu_shares', String],
  ['Memory', 'memory', bytes],
  ['Disk', 'disk', bytes],
  ['Inodes', 'inodes', count],
  ['Processes', 'pids', count],
  ['Open files', 'files', count],
  ['Time of a command', 'timeout', duration],
  ['Output of a command', 'output', bytes],
]

function Limits({ s }: { s: Sandbox }) {
  return (
    <table class="plain">
      <thead>
        <tr>
          <th scope="col">Limit</th>
          <th scope="col" class="number">
            Value
          </th>
          <th scope="col">Enforced by</th>
        </tr>
      </thead>
      <tbody>
        {limitNames.map(([name, key, text]) => {
          const by = s.enforced?.[key]
          return (
            <tr key={key}>
              <th scope="row">{name}</th>
              <td class="number">{amount(s.limits[key], text)}</td>
              <td>{by === 'none' ? <span class="bad">not enforced</span> : (by ?? (key === 'timeout' || key === 'output' ? 'engine' : <span class="muted">–</span>))}</td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}

// Activity shows the latest events of a sandbox.
function Activity({ id }: { id: string }) {
  const [all, set] = useState<Notification[]>([])
  const [failure, setFailure] = useState<Failure | null>(null)
  useEffect(() => {
    const a = new AbortController()
    const add = (n: Notification) => set((all) => (all.some((x) => x.id === n.id) ? all : [n, ...all].sort((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, 12)))
    // The events until now; the page's stream has those after them.
    void follow('sandbox=' + encodeURIComponent(id), 'oldest', a.signal, add, () => {}).catch((e: unknown) => setFailure(asFailure(e)))
    const t = setTimeout(() => a.abort(), 1500)
    const off = onEvent((n) => n.sandbox === id && add(n))
    return () => {
      a.abort()
      clearTimeout(t)
      off()
    }
  }, [id])
  return (
    <section class="card">
      <h2>Activity</h2>
      {failure ? (
        <ErrorBox failure={failure} />
      ) : all.length ? (
        <ol class="activity">
          {all.map((n) => (
            <li key={n.id}>
              <time dateTime={n.time}>{clock(n.time)}</time>
              <span>{describe(n)}</span>
            </li>
          ))}
        </ol>
      ) : (
        <p class="muted">No event of this sandbox is kept. Events appear here as they happen.</p>
      )}
    </section>
  )
}

