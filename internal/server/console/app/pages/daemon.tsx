// The pages of the daemon: status, events, doctor and configuration.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { get } from '../lib/api'
import { clock, count, duration, millis, moment, percent, plural, shortID, since } from '../lib/format'
import { follow, live } from '../lib/live'
import { go, href, route } from '../lib/route'
import { session } from '../lib/session'
import { store, useStore } from '../lib/store'
import type { Notification, Status } from '../lib/types'
import { Icon } from '../ui/icons'
import { Button, Chip, Copy, Empty, ErrorBox, Loading, Notice, sentence, useLoad, useNow } from '../ui/parts'
import { Plot } from '../ui/plot'
import { describe, severity } from './describe'

// ---- status

interface Point {
  time: number
  rate: number | null
  p50: number | null
  p95: number | null
  p99: number | null
  active: number | null
  queued: number | null
  sandboxes: number | null
  ready: number | null
}

// The history stays as long as the page is open.
const history = store<Point[]>([])
const statusEvery = 2000

export function StatusPage() {
  const { value: v, failure, reload } = useLoad((signal) => get<Status>('/v1/status', signal), [], statusEvery)
  const points = useStore(history)
  const now = useNow()
  useEffect(() => {
    if (!v) return
    const x = v.executions
    const e = v.engine
    history.update((all) => [
      ...all.slice(-899),
      { time: Date.now() / 1000, rate: x?.rate_1m ?? null, p50: x?.p50_ms ?? null, p95: x?.p95_ms ?? null, p99: x?.p99_ms ?? null, active: e?.active ?? null, queued: e?.queued ?? null, sandboxes: e?.sandboxes ?? null, ready: e?.ready ?? null },
    ])
  }, [v])
  const times = points.map((p) => p.time)
  return (
    <>
      <header class="page">
        <h1>Status</h1>
        {v && (
          <span class="sub">
            Sandbar {v.version}
            {v.started_at && `, up ${duration(since(v.started_at, now))}`}
          </span>
        )}
      </header>
      {failure && <ErrorBox failure={failure} retry={reload} title="The status cannot be read." />}
      {!v ? (
        !failure && <Loading what="the status" />
      ) : (
        <div class="status">
          {v.engine && (
            <div class="tiles">
              <Tile name="Slots in use" value={v.engine.active + v.engine.sandboxes + v.engine.ready} of={v.engine.capacity} />
              <Tile name="Executions now" value={v.engine.active} />
              <Tile name="Waiting" value={v.engine.queued} bad={v.engine.queued > 0} />
              <Tile name="Sandboxes" value={v.engine.sandboxes} />
              <Tile name="Ready" value={v.engine.ready} />
              {v.engine.removing > 0 && <Tile name="Not removed yet" value={v.engine.removing} bad />}
              {v.executions && <Tile name="Programs ended" value={v.executions.total} />}
            </div>
          )}
          {v.executions && (
            <div class="plots">
              <Plot title="Programs per second" times={times} series={[{ name: 'rate', color: 1, values: points.map((p) => p.rate) }]} text={(x) => (x >= 10 ? x.toFixed(0) : x.toFixed(2))} top={1} />
              <Plot
                title="Time of a program"
                times={times}
                series={[
                  { name: 'p50', color: 1, values: points.map((p) => p.p50) },
                  { name: 'p95', color: 2, values: points.map((p) => p.p95) },
                  { name: 'p99', color: 3, values: points.map((p) => p.p99) },
                ]}
                text={millis}
                top={10}
              />
              <Plot
                title="Executions"
                times={times}
                series={[
                  { name: 'running', color: 1, values: points.map((p) => p.active) },
                  { name: 'waiting', color: 3, values: points.map((p) => p.queued) },
                ]}
                text={(x) => String(Math.round(x))}
                top={4}
              />
              <Plot
                title="Sandboxes"
                times={times}
                series={[
                  { name: 'live', color: 2, values: points.map((p) => p.sandboxes) },
                  { name: 'ready', color: 4, values: points.map((p) => p.ready) },
                ]}
                text={(x) => String(Math.round(x))}
                top={4}
              />
            </div>
          )}
          <div class="columns2">
            {v.executions && <Counts title="Programs by language" all={v.executions.by_language} none="No program has ended yet." />}
            {v.executions && <Counts title="Programs by outcome" all={v.executions.by_outcome} none="No program has ended yet." />}
            {v.errors && <Counts title="Failures of the platform" all={v.errors} none="No execution was refused or failed." />}
            {v.refusals && <Counts title="Refusals" all={v.refusals} none="No request was refused." />}
            {v.kills && <Counts title="Kills" all={v.kills} none="No program was killed at a limit." />}
            {v.ready_pools && (
              <section class="card">
                <h2>Ready sandboxes</h2>
                {v.ready_pools.length ? (
                  <table class="plain">
                    <thead>
                      <tr>
                        <th scope="col">Driver</th>
                        <th scope="col">Language</th>
                        <th scope="col">Image</th>
                        <th scope="col" class="number">
                          Ready
                        </th>
                        <th scope="col" class="number">
                          Wanted
                        </th>
                        <th scope="col" class="number">
                          Hits
                        </th>
                      </tr>
                    </thead>
                    <tbody>
                      {v.ready_pools.map((p, i) => (
                        <tr key={i}>
                          <td>{p.driver}</td>
                          <td>{p.language || '–'}</td>
                          <td>{p.image || 'host'}</td>
                          <td class="number">{p.ready}</td>
                          <td class="number">{p.wanted}</td>
                          <td class="number" title={`${p.hits} requests got a ready sandbox, ${p.misses} did not`}>
                            {p.hits + p.misses ? percent((100 * p.hits) / (p.hits + p.misses)) : '–'}
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                ) : (
                  <p class="muted">
                    None are kept. The setting <code>templates</code> selects which ones the daemon keeps.
                  </p>
                )}
              </section>
            )}
            {v.drivers && (
              <section class="card">
                <h2>Drivers</h2>
                <table class="plain">
                  <thead>
                    <tr>
                      <th scope="col">Driver</th>
                      <th scope="col">Boundary</th>
                      <th scope="col">State</th>
                    </tr>
                  </thead>
                  <tbody>
                    {v.drivers.map((d) => (
                      <tr key={d.name}>
                        <td>
                          {d.name} {d.name === v.driver && <span class="muted">default</span>}
                        </td>
                        <td>{d.boundary || '–'}</td>
                        <td>
                          {d.state}
                          {d.error && <div class="bad">{d.error}</div>}
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </section>
            )}
            <section class="card">
              <h2>Clients</h2>
              {v.clients?.length ? (
                <table class="plain">
                  <thead>
                    <tr>
                      <th scope="col">Client</th>
                      <th scope="col">Tenant</th>
                      <th scope="col" class="number">
                        Sandboxes
                      </th>
                      <th scope="col" class="number">
                        Running
                      </th>
                      <th scope="col" class="number">
                        Waiting
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {v.clients.map((c) => (
                      <tr key={c.tenant + '/' + c.name}>
                        <td>{c.name || <span class="muted">daemon’s token</span>}</td>
                        <td>{c.tenant || 'default'}</td>
                        <td class="number">{count(c.sandboxes)}</td>
                        <td class="number">{count(c.active)}</td>
                        <td class="number">{count(c.queued)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              ) : (
                <p class="muted">No client uses the daemon now.</p>
              )}
            </section>
          </div>
        </div>
      )}
    </>
  )
}

function Tile({ name, value, of, bad }: { name: string; value: number; of?: number; bad?: boolean }) {
  return (
    <div class={'tile' + (bad ? ' bad' : '')}>
      <span class="name">{name}</span>
      <span class="value number">
        {count(value)}
        {of ? <span class="muted"> of {count(of)}</span> : null}
      </span>
    </div>
  )
}

// Counts shows numbers by reason, with bars.
function Counts({ title, all, none }: { title: string; all: Record<string, number>; none: string }) {
  const rows = Object.entries(all)
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1])
  const most = rows[0]?.[1] ?? 1
  return (
    <section class="card">
      <h2>{title}</h2>
      {rows.length ? (
        <table class="plain bars">
          <thead class="offscreen">
            <tr>
              <th scope="col">Reason</th>
              <th scope="col">Number</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, n]) => (
              <tr key={name}>
                <th scope="row">{name.replace(/_/g, ' ')}</th>
                <td class="number">
                  {count(n)}
                  <svg viewBox="0 0 100 3" preserveAspectRatio="none" aria-hidden="true">
                    <rect class="value" width={(100 * n) / most} height="3" />
                  </svg>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="muted">{none}</p>
      )}
    </section>
  )
}

// ---- events

const maxEvents = 4096
const maxShown = 400

const kinds = [
  { id: '', title: 'All' },
  { id: 'sandbox', title: 'Sandboxes' },
  { id: 'program', title: 'Programs' },
  { id: 'execution', title: 'Executions' },
  { id: 'cell', title: 'Cells' },
  { id: 'refused', title: 'Refused' },
]

export function EventsPage() {
  const r = useStore(route)
  const l = useStore(live)
  const who = useStore(session)
  const all = useRef<Notification[]>([])
  const [n, again] = useState(0)
  const [paused, setPaused] = useState(false)
  const [ok, setOK] = useState(true)
  const frozen = useRef<Notification[] | null>(null)
  const kind = r.query.get('type') ?? ''
  const q = r.query.get('q') ?? ''
  useEffect(() => {
    const a = new AbortController()
    let timer = 0
    const take = (e: Notification) => {
      all.current.push(e)
      if (all.current.length > maxEvents) all.current.splice(0, all.current.length - maxEvents)
      timer ||= window.setTimeout(() => {
        timer = 0
        again((n) => n + 1)
      }, 200)
    }
    void follow('', 'oldest', a.signal, take, (ok) => {
      setOK(ok)
      again((n) => n + 1)
    })
    return () => {
      a.abort()
      clearTimeout(timer)
    }
  }, [])
  const set = (name: string, v: string) => {
    const next = new URLSearchParams(r.query)
    if (v) next.set(name, v)
    else next.delete(name)
    go('/events' + (next.toString() ? '?' + next.toString() : ''), true)
  }
  const from = frozen.current ?? all.current
  const shown = useMemo(() => {
    const words = q.toLowerCase().split(/\s+/).filter(Boolean)
    const found: Notification[] = []
    let total = 0
    for (let i = from.length - 1; i >= 0; i--) {
      const e = from[i]!
      if (kind && e.type.split('.')[0] !== kind) continue
      const s = e.sandbox ? l.sandboxes.get(e.sandbox) : undefined
      if (words.length) {
        const text = [e.type, e.sandbox, s?.name, e.client, e.tenant, e.reason, e.outcome, e.code, e.action, describe(e)].join(' ').toLowerCase()
        if (!words.every((w) => text.includes(w))) continue
      }
      total++
      if (found.length < maxShown) found.push(e)
    }
    return { found, total }
  }, [n, kind, q, paused])
  return (
    <>
      <header class="page">
        <h1>Events</h1>
        <span class="sub" role="status">
          {!ok ? 'The connection is lost; trying again…' : paused ? 'Stopped. New events are kept.' : 'Live'}
        </span>
        <div class="tools">
          <Button
            icon={paused ? 'play' : 'pause'}
            pressed={paused}
            onClick={() => {
              frozen.current = paused ? null : [...all.current]
              setPaused(!paused)
            }}
          >
            {paused ? 'Continue' : 'Hold'}
          </Button>
        </div>
      </header>
      <div class="filters" role="search">
        <label class="search">
          <Icon name="search" />
          <span class="offscreen">Search events by sandbox, client, reason or code</span>
          <input type="search" placeholder="Search sandbox, client, code …" value={q} onInput={(e) => set('q', e.currentTarget.value)} />
          <kbd aria-hidden="true">/</kbd>
        </label>
        <div class="segments" role="group" aria-label="Type">
          {kinds.map((k) => (
            <button key={k.id} type="button" aria-pressed={kind === k.id} onClick={() => set('type', k.id)}>
              {k.title}
            </button>
          ))}
        </div>
      </div>
      {shown.found.length ? (
        <>
          <div class="scroll" tabIndex={0} role="region" aria-label="Events, latest first">
            <table class="plain events">
              <thead>
                <tr>
                  <th scope="col">Time</th>
                  <th scope="col">Sandbox</th>
                  <th scope="col">Event</th>
                  {who?.operator && <th scope="col">Tenant</th>}
                </tr>
              </thead>
              <tbody>
                {shown.found.map((e) => {
                  const s = e.sandbox ? l.sandboxes.get(e.sandbox) : undefined
                  return (
                    <tr key={e.id + e.type}>
                      <td class="time">
                        <time dateTime={e.time} title={moment(e.time)}>
                          {clock(e.time)}
                        </time>
                      </td>
                      <td class="which">
                        {e.sandbox ? s ? <a href={href('sandboxes', e.sandbox)}>{s.name || <code>{shortID(e.sandbox)}</code>}</a> : <code class="muted">{shortID(e.sandbox)}</code> : <span class="muted">–</span>}
                      </td>
                      <td>
                        <span class={'dot ' + severity(e)} aria-hidden="true" /> {describe(e)}
                      </td>
                      {who?.operator && <td class="muted">{e.tenant ?? 'default'}</td>}
                    </tr>
                  )
                })}
              </tbody>
            </table>
          </div>
          {shown.total > shown.found.length && <p class="muted foot">The latest {count(shown.found.length)} of {count(shown.total)} events. Search to see others.</p>}
        </>
      ) : (
        <Empty title={q || kind ? 'No event matches' : 'No events yet'} icon="events">
          <p>{q || kind ? 'The daemon keeps the latest 4096 events. Change the search or the type.' : 'Events appear here as sandboxes are created, programs run, and requests are refused.'}</p>
        </Empty>
      )}
    </>
  )
}

// ---- doctor

interface Check {
  name: string
  state?: string
  detail?: string
  fix?: string
}

interface Report {
  ok: boolean
  version: string
  driver: string
  system: Record<string, string | number>
  drivers: { name: string; summary: string; available: boolean; boundary?: string; problem?: string; fix?: string; notes?: string[]; enforced?: Record<string, string>; facts?: Check[] }[]
  kernel?: Check[]
  languages?: { name: string; interpreter: string; available: boolean; path?: string; fix?: string; problem?: string }[]
}

export function DoctorPage() {
  const { value: v, failure, reload } = useLoad((signal) => get<Report>('/v1/doctor', signal), [])
  const missing = v ? problems(v) : []
  return (
    <>
      <header class="page">
        <h1>Doctor</h1>
        {v && (
          <span class="sub">
            {String(v.system['os'])}/{String(v.system['arch'])}, kernel {String(v.system['kernel'])}, {plural(Number(v.system['cpus']), 'processor')}
          </span>
        )}
        <div class="tools">
          <Button icon="refresh" onClick={reload}>
            Examine again
          </Button>
        </div>
      </header>
      {failure ? (
        <ErrorBox failure={failure} retry={reload} title="The host cannot be examined." />
      ) : !v ? (
        <Loading what="the report; the daemon examines the host" />
      ) : (
        <div class="doctor">
          <Notice kind={v.ok ? 'good' : 'warn'}>
            {v.ok ? `The driver ${v.driver} works on this host.` : `The driver ${v.driver} does not work on this host.`} {missing.length ? `${plural(missing.length, 'thing is', 'things are')} missing or limited.` : 'Nothing is missing.'}
          </Notice>
          {missing.length > 0 && (
            <section class="card">
              <h2>Missing</h2>
              <ul class="missing">
                {missing.map((m) => (
                  <li key={m.what + m.why}>
                    <div class="grow">
                      <strong>{m.what}</strong> <span class="muted">{m.kind}</span>
                      <div>{sentence(m.why)}</div>
                      {m.fix && (
                        <div class="fixline">
                          <code>{m.fix}</code>
                          <Copy text={m.fix} label={`Copy the fix of ${m.what}`} />
                        </div>
                      )}
                    </div>
                  </li>
                ))}
              </ul>
            </section>
          )}
          <div class="columns2">
            <section class="card">
              <h2>Drivers</h2>
              <ul class="checks">
                {v.drivers.map((d) => (
                  <li key={d.name}>
                    <Mark ok={d.available} />
                    <div class="grow">
                      <strong>{d.name}</strong> {d.boundary && <Chip>{d.boundary}</Chip>}
                      <div class="muted">{sentence(d.summary)}</div>
                    </div>
                  </li>
                ))}
              </ul>
            </section>
            <section class="card">
              <h2>Kernel</h2>
              <ul class="checks">
                {(v.kernel ?? []).map((c) => (
                  <li key={c.name}>
                    <Mark ok={c.state === 'yes'} half={c.state === 'limited'} />
                    <div class="grow">
                      <strong>{c.name}</strong>
                      {c.detail && <div class="muted">{c.detail}</div>}
                    </div>
                  </li>
                ))}
              </ul>
            </section>
            <section class="card">
              <h2>Languages</h2>
              <ul class="checks">
                {(v.languages ?? []).map((c) => (
                  <li key={c.name}>
                    <Mark ok={c.available} />
                    <div class="grow">
                      <strong>{c.name}</strong> <span class="muted">{c.path || c.interpreter}</span>
                    </div>
                  </li>
                ))}
              </ul>
            </section>
          </div>
        </div>
      )}
    </>
  )
}

function Mark({ ok, half }: { ok: boolean; half?: boolean }) {
  const text = ok ? 'available' : half ? 'limited' : 'missing'
  return (
    <span class={'mark ' + (ok ? 'good' : half ? 'warn' : 'bad')} title={text}>
      <Icon name={ok ? 'check' : half ? 'warn' : 'close'} />
      <span class="offscreen">{text}</span>
    </span>
  )
}

function problems(v: Report): { what: string; kind: string; why: string; fix: string }[] {
  const all: { what: string; kind: string; why: string; fix: string }[] = []
  for (const c of v.kernel ?? []) if (c.state !== 'yes' && c.fix) all.push({ what: c.name, kind: 'kernel', why: c.detail || (c.state ?? 'missing'), fix: c.fix })
  for (const d of v.drivers) if (!d.available) all.push({ what: d.name, kind: 'driver', why: d.problem ?? 'not available', fix: d.fix ?? '' })
  for (const l of v.languages ?? []) if (!l.available) all.push({ what: l.name, kind: 'language', why: l.problem ?? `there is no ${l.interpreter}`, fix: l.fix ?? '' })
  return all
}

// ---- configuration

interface Setting {
  name: string
  value: string
  source: string
  secret: boolean
  live: boolean
  variable: string
  help: string
}

export function ConfigurationPage() {
  const { value, failure, reload } = useLoad((signal) => get<{ settings: Setting[] }>('/v1/configuration', signal), [])
  const [q, setQ] = useState('')
  const [only, setOnly] = useState(false)
  const all = value?.settings ?? []
  const shown = all.filter((s) => (!only || s.source !== 'default') && (!q || [s.name, s.value, s.source, s.variable, s.help].join(' ').toLowerCase().includes(q.toLowerCase())))
  return (
    <>
      <header class="page">
        <h1>Configuration</h1>
        <span class="sub">The settings in force. Secrets are not shown.</span>
        <div class="tools">
          <Button icon="refresh" onClick={reload}>
            Read again
          </Button>
        </div>
      </header>
      {failure ? (
        <ErrorBox failure={failure} retry={reload} title="The configuration cannot be read." />
      ) : !value ? (
        <Loading what="the configuration" />
      ) : (
        <>
          <div class="filters" role="search">
            <label class="search">
              <Icon name="search" />
              <span class="offscreen">Search settings</span>
              <input type="search" placeholder="Search settings …" value={q} onInput={(e) => setQ(e.currentTarget.value)} />
              <kbd aria-hidden="true">/</kbd>
            </label>
            <div class="segments" role="group" aria-label="Which settings">
              <button type="button" aria-pressed={!only} onClick={() => setOnly(false)}>
                All
              </button>
              <button type="button" aria-pressed={only} onClick={() => setOnly(true)}>
                Changed
              </button>
            </div>
            <span class="found">
              {shown.length} of {all.length}
            </span>
          </div>
          {shown.length ? (
            <div class="scroll" tabIndex={0} role="region" aria-label="Settings">
              <table class="plain settings">
                <thead>
                  <tr>
                    <th scope="col">Setting</th>
                    <th scope="col">Value</th>
                    <th scope="col">Source</th>
                  </tr>
                </thead>
                <tbody>
                  {shown.map((s) => (
                    <tr key={s.name} class={s.source === 'default' ? '' : 'changed'}>
                      <th scope="row" title={s.variable}>
                        <code>{s.name}</code>
                      </th>
                      <td>
                        {s.secret ? <Chip>secret</Chip> : <code class="value">{s.value.trim() || <span class="muted">–</span>}</code>} {s.live && s.source !== 'default' && <Chip>SIGHUP applies changes</Chip>}
                        <div class="help" title={s.help}>
                          {s.help}
                        </div>
                      </td>
                      <td class={s.source === 'default' ? 'muted' : ''}>{s.source}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <Empty title="No setting matches" icon="config">
              <p>Change the search, or show all settings. docs/configuration.md describes each of them.</p>
            </Empty>
          )}
        </>
      )}
    </>
  )
}
