// The bodies of the control API (docs/api.md) that the console reads.

export type Amount = number | 'unlimited'

export interface Limits {
  memory?: Amount
  disk?: Amount
  cpus?: Amount
  cpu_shares?: Amount
  pids?: Amount
  inodes?: Amount
  files?: Amount
  timeout?: Amount
  output?: Amount
}

export interface Sandbox {
  id: string
  uuid: string
  name: string
  image: string
  driver: string
  state: 'running' | 'paused'
  tenant?: string
  client?: string
  created_at: string
  last_used_at: string
  paused_at?: string
  expires_at?: string
  idle_timeout: Amount
  running: number
  labels: Record<string, string>
  limits: Limits
  enforced: Record<string, string> | null
  disk_bytes?: number
}

export interface Metrics {
  time: string
  cpu_time_ms: number
  memory_bytes: number
  cache_bytes: number
  file_bytes: number
  processes: number
}

export interface Session {
  name: string
  tenant: string
  role: 'admin' | 'user' | 'read-only'
  version: string
  operator: boolean
}

// Notification is an event of GET /v1/events.
export interface Notification {
  id: string
  type: string
  time: string
  sandbox?: string
  tenant?: string
  client?: string
  reason?: string
  outcome?: string
  exit_code?: number
  signal?: number
  code?: string
  action?: string
  program?: string
  context?: string
  failed?: boolean
  from?: string
  missed?: number
}

export interface Entry {
  name: string
  type: string
  size: number
  mode: string
  modified_at: string
}

export interface Process {
  id: string
  pid: number
  status: 'running' | 'completed' | 'failed' | 'killed'
  command: string
  started_at: string
  completed_at?: string
  exit_code?: number
}

export interface Preview {
  port: number
  public: boolean
  url?: string
}

export interface Context {
  id: string
  language: string
  dir: string
  busy: boolean
  created_at: string
  execution_count: number
}

// CellEvent is an event of a running cell.
export interface CellEvent {
  type: string
  text?: string
  html?: string
  markdown?: string
  svg?: string
  png?: string
  jpeg?: string
  latex?: string
  json?: unknown
  data?: unknown
  name?: string
  value?: string
  traceback?: string
  main?: boolean
  execution_count?: number
  outcome?: string
  failed?: boolean
  lost?: boolean
  duration_ms?: number
  failure?: { code: string; message: string; fix: string }
  error?: { code: string; message: string; fix: string }
}

export interface Pool {
  name: string
  driver: string
  language: string
  image: string
  ready: number
  wanted: number
  hits: number
  misses: number
  failed: number
  lost: number
}

// Status is the answer of GET /v1/status. A tenant's token gets its own part only.
export interface Status {
  version: string
  started_at: string
  driver?: string
  boundary?: string
  drivers?: { name: string; boundary: string; state: string; error?: string }[]
  engine?: { active: number; queued: number; ready: number; sandboxes: number; removing: number; capacity: number }
  ready_pools?: Pool[]
  executions?: {
    total: number
    by_language: Record<string, number>
    by_outcome: Record<string, number>
    window_seconds: number
    p50_ms?: number
    p95_ms?: number
    p99_ms?: number
    rate_1m: number
  }
  errors?: Record<string, number>
  refusals?: Record<string, number>
  kills?: Record<string, number>
  clients: { name: string; tenant: string; sandboxes: number; active: number; queued: number }[]
}
