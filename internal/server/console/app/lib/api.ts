// Requests to the daemon that served the page. The browser sends the session's cookie by itself.

// Failure is an error of the daemon, or of the connection to it.
export class Failure extends Error {
  constructor(
    message: string,
    readonly fix: string,
    readonly code: string,
    readonly status: number,
    readonly field = '',
    readonly retryAfter = 0,
  ) {
    super(message)
  }
}

// asFailure converts what a promise was rejected with.
export function asFailure(e: unknown): Failure {
  if (e instanceof Failure) return e
  return new Failure(e instanceof Error ? e.message : String(e), 'Reload the page. If it happens again, report it with this message.', 'page', 0)
}

// aborted reports whether an error is the end of a request that the page itself cancelled.
export const aborted = (e: unknown): boolean => e instanceof DOMException && e.name === 'AbortError'

let onUnauthenticated: () => void = () => {}

// whenUnauthenticated sets what happens if the session has ended.
export function whenUnauthenticated(f: () => void): void {
  onUnauthenticated = f
}

export interface Options {
  method?: string
  json?: unknown
  body?: BodyInit
  signal?: AbortSignal | undefined
}

// request sends a request and returns the response, or throws a Failure.
export async function request(path: string, o: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { 'Sandbar-Console': '1' }
  const init: RequestInit = { method: o.method ?? 'GET', headers, credentials: 'same-origin', cache: 'no-store', redirect: 'error' }
  if (o.json !== undefined) {
    headers['Content-Type'] = 'application/json'
    init.body = JSON.stringify(o.json)
  } else if (o.body !== undefined) {
    headers['Content-Type'] = 'application/octet-stream'
    init.body = o.body
  }
  if (o.signal) init.signal = o.signal
  let r: Response
  try {
    r = await fetch(path, init)
  } catch (e) {
    if (aborted(e)) throw e
    throw new Failure('The daemon does not answer.', 'Check that it runs (sandbar serve, systemctl status sandbar) and that the network reaches it.', 'offline', 0)
  }
  if (r.ok) return r
  const f = await failureOf(r)
  if (r.status === 401 && path !== '/console/login' && path !== '/console/session') onUnauthenticated()
  throw f
}

async function failureOf(r: Response): Promise<Failure> {
  const text = await r.text().catch(() => '')
  const wait = Number(r.headers.get('Retry-After') ?? '') || 0
  try {
    const b = JSON.parse(text) as { error?: unknown }
    if (b.error && typeof b.error === 'object') {
      const e = b.error as { code?: string; message?: string; fix?: string; field?: string }
      return new Failure(e.message ?? r.statusText, e.fix ?? '', e.code ?? '', r.status, e.field, wait)
    }
    if (typeof b.error === 'string') return new Failure(b.error, '', '', r.status, '', wait)
  } catch {
    // an answer of something in front of the daemon
  }
  return new Failure(text.trim().slice(0, 400) || `The daemon answered ${r.status}.`, '', '', r.status, '', wait)
}

// get returns the JSON of an answer.
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal })).json() as Promise<T>
}

// post sends JSON and returns the JSON of the answer, or undefined if it has no body.
export async function post<T = void>(path: string, json?: unknown, signal?: AbortSignal): Promise<T> {
  const r = await request(path, { method: 'POST', json, signal })
  const text = await r.text()
  return (text ? JSON.parse(text) : undefined) as T
}

// del sends DELETE.
export async function del(path: string): Promise<void> {
  await request(path, { method: 'DELETE' })
}

// done sends a request of the executor, whose answer says whether it succeeded.
export async function done(path: string, json: unknown): Promise<void> {
  const r = await post<{ success?: boolean; error?: string } | undefined>(path, json)
  if (r && r.success === false) throw new Failure(r.error ?? 'The sandbox refused it.', '', '', 200)
}

// of returns the path of a sandbox's resource.
export const of = (id: string, rest = ''): string => `/v1/sandboxes/${encodeURIComponent(id)}${rest}`

// query returns a query string with the parameters that are set.
export function query(all: Record<string, string | number | undefined>): string {
  const q = new URLSearchParams()
  for (const [name, v] of Object.entries(all)) if (v !== undefined && v !== '') q.set(name, String(v))
  const s = q.toString()
  return s ? '?' + s : ''
}

// lines yields the lines of a stream, without their ends.
export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) break
      const all = (rest + value).split('\n')
      rest = all.pop() ?? ''
      for (const l of all) yield l.endsWith('\r') ? l.slice(0, -1) : l
    }
    if (rest) yield rest
  } finally {
    reader.cancel().catch(() => {})
  }
}

export interface ServerEvent {
  event: string
  id: string
  data: string
}

// serverEvents yields the events of a text/event-stream. An id without an event is yielded too,
// with data "".
export async function* serverEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  let e: ServerEvent = { event: '', id: '', data: '' }
  for await (const line of lines(body)) {
    if (line === '') {
      if (e.data || e.id || e.event) yield e
      e = { event: '', id: '', data: '' }
      continue
    }
    if (line.startsWith(':')) continue
    const at = line.indexOf(':')
    const name = at < 0 ? line : line.slice(0, at)
    const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '')
    if (name === 'data') e.data += (e.data ? '\n' : '') + value
    else if (name === 'event') e.event = value
    else if (name === 'id') e.id = value
  }
}

