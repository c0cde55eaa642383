// What the daemon's sandboxes are at this moment: a list, which follows the daemon's events, and the
// usage of the sandboxes that are in view.
import { aborted, asFailure, Failure, get, of, request, serverEvents } from './api'
import { readOnly } from './session'
import { store } from './store'
import type { Metrics, Notification, Preview, Sandbox } from './types'

export interface Live {
  sandboxes: Map<string, Sandbox>
  loaded: boolean
  failure: Failure | null
  connected: boolean
}

export const live = store<Live>({ sandboxes: new Map(), loaded: false, failure: null, connected: true })

const listeners = new Set<(n: Notification) => void>()

// onEvent calls f for each event while the page is visible.
export function onEvent(f: (n: Notification) => void): () => void {
  listeners.add(f)
  return () => {
    listeners.delete(f)
  }
}

// minPause is the least time between two changes of the list, in milliseconds.
const minPause = 1000

// maxSingle is the most sandboxes that are asked for one by one instead of the whole list.
const maxSingle = 6

// changed has the sandboxes with news, true for those that have ended.
const changed = new Map<string, boolean>()
let whole = false
let timer = 0
let lastRefresh = 0
let stream: AbortController | null = null

// refresh asks for the whole list again.
export function refresh(): void {
  whole = true
  schedule()
}

function schedule(): void {
  if (timer || !stream) return
  timer = window.setTimeout(() => {
    timer = 0
    lastRefresh = Date.now()
    void update()
  }, Math.max(0, lastRefresh + minPause - Date.now()))
}

async function update(): Promise<void> {
  const news = new Map(changed)
  changed.clear()
  try {
    if (whole || news.size > maxSingle) {
      whole = false
      const { sandboxes } = await get<{ sandboxes: Sandbox[] }>('/v1/sandboxes')
      live.update((l) => ({ ...l, sandboxes: new Map(sandboxes.map((s) => [s.id, s])), loaded: true, failure: null }))
      forget()
      return
    }
    const all = await Promise.all(
      [...news].map(async ([id, ended]): Promise<[string, Sandbox | null]> => {
        if (ended) return [id, null]
        try {
          return [id, await get<Sandbox>(of(id))]
        } catch (e) {
          if (e instanceof Failure && (e.status === 404 || e.status === 410)) return [id, null]
          throw e
        }
      }),
    )
    live.update((l) => {
      const next = new Map(l.sandboxes)
      for (const [id, s] of all) {
        if (s) next.set(id, s)
        else next.delete(id)
      }
      return { ...l, sandboxes: next, failure: null }
    })
    forget()
  } catch (e) {
    live.update((l) => ({ ...l, failure: asFailure(e) }))
    whole = true
    window.setTimeout(schedule, 5 * minPause)
  }
}

// put replaces a sandbox by what an answer of the daemon said.
export function put(...all: Sandbox[]): void {
  live.update((l) => {
    const next = new Map(l.sandboxes)
    for (const s of all) next.set(s.id, s)
    return { ...l, sandboxes: next }
  })
}

// remove removes a sandbox that was stopped.
export function remove(id: string): void {
  live.update((l) => {
    const next = new Map(l.sandboxes)
    next.delete(id)
    return { ...l, sandboxes: next }
  })
}

function take(n: Notification): void {
  for (const f of listeners) f(n)
  if (n.type === 'gap') return refresh()
  if (!n.sandbox) return
  if (!n.type.startsWith('sandbox.') && !n.type.startsWith('program.')) return
  changed.set(n.sandbox, n.type === 'sandbox.ended')
  schedule()
}

// follow yields the daemon's events until the signal, and connects again if the connection ends.
// connected is called when that changes.
export async function follow(q: string, after: string, signal: AbortSignal, each: (n: Notification) => void, connected: (ok: boolean, again: boolean) => void): Promise<void> {
  let last = after
  for (let pause = 500, first = true; !signal.aborted; first = false) {
    try {
      const params = new URLSearchParams(q)
      if (last) params.set('after', last)
      const r = await request('/v1/events?' + params.toString(), { signal })
      connected(true, !first)
      pause = 500
      for await (const e of serverEvents(r.body!)) {
        if (e.id) last = e.id
        if (e.data) each(JSON.parse(e.data) as Notification)
      }
    } catch (e) {
      if (signal.aborted || aborted(e)) return
      if (e instanceof Failure && (e.status === 401 || e.status === 403)) return
    }
    if (signal.aborted) return
    connected(false, !first)
    await new Promise((r) => setTimeout(r, pause))
    pause = Math.min(pause * 2, 8000)
  }
}

// start follows the daemon. A hidden page does not: browsers open few connections to a host, and
// all tabs share them.
export function start(): () => void {
  const begin = () => {
    if (stream) return
    stream = new AbortController()
    void follow('', '', stream.signal, take, (ok, again) => {
      live.update((l) => ({ ...l, connected: ok }))
      if (ok && again) refresh()
    })
    refresh()
  }
  const end = () => {
    stream?.abort()
    stream = null
    clearTimeout(timer)
    timer = 0
  }
  const visible = () => (document.hidden ? end() : begin())
  document.addEventListener('visibilitychange', visible)
  const minute = window.setInterval(refresh, 60_000)
  const sampling = window.setInterval(sample, sampleEvery)
  visible()
  return () => {
    end()
    clearInterval(minute)
    clearInterval(sampling)
    document.removeEventListener('visibilitychange', visible)
    usage.clear()
    watched.clear()
    live.set({ sandboxes: new Map(), loaded: false, failure: null, connected: true })
  }
}

// ---- usage

// Sample is the usage at one moment. cpu is in processors, from the difference to the sample before.
export interface Sample {
  time: number // seconds since 1970
  cpu: number | null
  memory: number
  files: number
  processes: number
}

export interface Usage {
  samples: Sample[]
  ports: Preview[]
  failure: Failure | null // why it cannot be measured
}

const sampleEvery = 1000
const rowEvery = 10_000
const rowFirst = 500 // a row that only scrolls by is not measured
const portsEvery = 30_000 // previews change rarely
const maxSamples = 900
const maxRequests = 3

interface Watched {
  fast: number // viewers
  slow: number
  next: number
  nextPorts: number
  cpuTime: number
  at: number
  running: boolean
}

const usage = new Map<string, Usage>()
const watched = new Map<string, Watched>()
export const usageChanged = store(0)

export const usageOf = (id: string): Usage | undefined => usage.get(id)

export const latest = (id: string): Sample | undefined => usage.get(id)?.samples.at(-1)

// watch measures a sandbox while it is in view: each second if fast, else each ten seconds.
export function watch(id: string, fast = false): () => void {
  const w = watched.get(id) ?? { fast: 0, slow: 0, next: Date.now() + rowFirst, nextPorts: 0, cpuTime: 0, at: 0, running: false }
  watched.set(id, w)
  w[fast ? 'fast' : 'slow']++
  if (fast) w.next = 0
  return () => {
    w[fast ? 'fast' : 'slow']--
  }
}

// forget removes what is known of sandboxes that have ended and are not in view.
function forget(): void {
  const { sandboxes } = live.get()
  for (const [id, w] of watched) {
    if (sandboxes.has(id) || w.fast || w.slow) continue
    watched.delete(id)
    usage.delete(id)
  }
}

let requests = 0

function sample(): void {
  if (document.hidden) return
  const now = Date.now()
  const { sandboxes } = live.get()
  const due = [...watched]
    .filter(([id, w]) => (w.fast || w.slow) && !w.running && w.next <= now && sandboxes.get(id)?.state === 'running' && !changed.get(id))
    .sort((a, b) => a[1].next - b[1].next)
  const next = () => {
    while (stream && requests < maxRequests) {
      const d = due.shift()
      if (!d) return
      requests++
      void measure(d[0]).finally(() => {
        requests--
        next()
      })
    }
  }
  next()
}

async function measure(id: string): Promise<void> {
  const w = watched.get(id)
  if (!w) return
  w.running = true
  w.next = Date.now() + (w.fast || !w.at ? sampleEvery : rowEvery) - 50 // the second one soon: it gives the load
  const u = usage.get(id) ?? { samples: [], ports: [], failure: null }
  const next: Usage = { ...u }
  try {
    const ports = !readOnly() && (w.fast > 0 || w.nextPorts <= Date.now()) // URLs of previews give access
    if (ports) w.nextPorts = Date.now() + portsEvery
    const [m, p] = await Promise.allSettled([get<Metrics>(of(id, '/metrics')), ports ? get<{ previews: Preview[] }>(of(id, '/previews')) : null])
    if (p.status === 'fulfilled' && p.value) next.ports = p.value.previews
    if (m.status === 'fulfilled') {
      const at = Date.parse(m.value.time) / 1000
      const cpu = w.at && at > w.at ? Math.max(0, (m.value.cpu_time_ms - w.cpuTime) / 1000 / (at - w.at)) : null
      w.at = at
      w.cpuTime = m.value.cpu_time_ms
      next.samples = [...u.samples.slice(1 - maxSamples), { time: at, cpu, memory: m.value.memory_bytes, files: m.value.file_bytes, processes: m.value.processes }]
      next.failure = null
    } else {
      next.failure = asFailure(m.reason)
      if (next.failure.code === 'unsupported') w.next = Date.now() + 60_000
    }
  } finally {
    w.running = false
  }
  usage.set(id, next)
  announce()
}

let announced = false

// announce renders what shows usage, at most once a second: each rendering of the list costs the
// browser some milliseconds.
function announce(): void {
  if (announced) return
  announced = true
  const fast = [...watched.values()].some((w) => w.fast > 0)
  setTimeout(
    () => {
      announced = false
      usageChanged.update((n) => n + 1)
    },
    fast ? 100 : 1000,
  )
}
