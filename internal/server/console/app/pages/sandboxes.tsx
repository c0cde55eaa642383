// The list of sandboxes. It renders only the rows in view.
import { memo } from '../ui/memo'
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { amount, bytes, count, duration, moment, plural, short, shortID } from '../lib/format'
import { latest, live, refresh, usageChanged, usageOf, watch } from '../lib/live'
import { go, href, route } from '../lib/route'
import { readOnly, session } from '../lib/session'
import { store, useStore } from '../lib/store'
import type { Sandbox } from '../lib/types'
import { Actions, items, title } from '../ui/actions'
import { Icon } from '../ui/icons'
import { announce, Button, Empty, ErrorBox, Labels, Loading, Menu, Meter, useNow } from '../ui/parts'
import { Create } from './create'

const times = new WeakMap<Sandbox, number>()

// made returns the time of a sandbox's creation, in milliseconds. It parses each time once: a list
// of a thousand is sorted at each change.
function made(s: Sandbox): number {
  let t = times.get(s)
  if (t === undefined) times.set(s, (t = Date.parse(s.created_at)))
  return t
}

const sorts = {
  name: (a: Sandbox, b: Sandbox) => title(a).localeCompare(title(b)),
  image: (a: Sandbox, b: Sandbox) => (a.image + a.driver).localeCompare(b.image + b.driver),
  owner: (a: Sandbox, b: Sandbox) => owner(a).localeCompare(owner(b)),
  cpu: (a: Sandbox, b: Sandbox) => (latest(b.id)?.cpu ?? -1) - (latest(a.id)?.cpu ?? -1),
  memory: (a: Sandbox, b: Sandbox) => (latest(b.id)?.memory ?? -1) - (latest(a.id)?.memory ?? -1),
  processes: (a: Sandbox, b: Sandbox) => b.running - a.running,
  age: (a: Sandbox, b: Sandbox) => made(b) - made(a),
  deadline: (a: Sandbox, b: Sandbox) => (deadline(a)?.at ?? Infinity) - (deadline(b)?.at ?? Infinity),
}

type Sort = keyof typeof sorts

const still = store(0) // for orders that do not depend on usage

const owner = (s: Sandbox): string => [s.tenant, s.client].filter(Boolean).join(' / ')

// deadline returns when a sandbox ends if nothing happens, and why.
export function deadline(s: Sandbox): { at: number; why: string } | null {
  if (s.state === 'paused') return null
  const idle = s.running > 0 || s.idle_timeout === 'unlimited' ? Infinity : Date.parse(s.last_used_at) + s.idle_timeout * 1000
  const end = s.expires_at ? Date.parse(s.expires_at) : Infinity
  if (idle === Infinity && end === Infinity) return null
  return idle < end ? { at: idle, why: 'idle timeout' } : { at: end, why: 'longest lifetime' }
}

function matches(s: Sandbox, words: string[]): boolean {
  if (!words.length) return true
  const text = [s.id, s.uuid, s.name, s.image, s.driver, s.tenant ?? '', s.client ?? '', s.state, ...Object.entries(s.labels).map(([k, v]) => `${k}=${v}`)].join('\n').toLowerCase()
  return words.every((w) => text.includes(w))
}

export function Sandboxes() {
  const l = useStore(live)
  const r = useStore(route)
  const who = useStore(session)
  const [creating, setCreating] = useState(false)
  const q = r.query.get('q') ?? ''
  const state = r.query.get('state') ?? ''
  const driver = r.query.get('driver') ?? ''
  const tenant = r.query.get('tenant') ?? ''
  const sort = (r.query.get('sort') ?? 'age') as Sort
  const set = (name: string, value: string) => {
    const next = new URLSearchParams(r.query)
    if (value) next.set(name, value)
    else next.delete(name)
    const s = next.toString()
    go('/sandboxes' + (s ? '?' + s : ''), true)
    document.querySelector('.table')?.scrollTo({ top: 0 })
  }
  const moving = sort === 'cpu' || sort === 'memory'
  const tick = useStore(moving ? usageChanged : still)
  const all = useMemo(() => [...l.sandboxes.values()], [l.sandboxes])
  const shown = useMemo(() => {
    const words = q.toLowerCase().split(/\s+/).filter(Boolean)
    return all
      .filter((s) => (!state || s.state === state) && (!driver || s.driver === driver) && (!tenant || (s.tenant ?? 'default') === tenant) && matches(s, words))
      .sort(sorts[sort] ?? sorts.age)
  }, [all, q, state, driver, tenant, sort, tick])
  const drivers = useMemo(() => [...new Set(all.map((s) => s.driver))].sort(), [all])
  const tenants = useMemo(() => [...new Set(all.map((s) => s.tenant ?? 'default'))].sort(), [all])
  const owners = useMemo(() => all.some((s) => s.client || (s.tenant && who?.operator)), [all, who])
  const filtered = !!(q || state || driver || tenant)
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      const t = e.target as HTMLElement
      if (e.key === 'n' && !e.ctrlKey && !e.metaKey && !e.altKey && !t.closest('input, textarea, select, dialog')) {
        e.preventDefault()
        if (!readOnly()) setCreating(true)
      }
    }
    document.addEventListener('keydown', keys)
    return () => document.removeEventListener('keydown', keys)
  }, [])
  useEffect(() => {
    if (l.loaded) performance.mark('ready') // for the benchmark of the page
  }, [l.loaded])
  useEffect(() => {
    if (filtered) announce(plural(shown.length, 'sandbox', 'sandboxes') + ' found.')
  }, [shown.length, filtered])
  const paused = all.reduce((n, s) => n + (s.state === 'paused' ? 1 : 0), 0)
  return (
    <>
      <header class="page">
        <h1>Sandboxes</h1>
        <span class="sub">{l.loaded && (all.length ? `${count(all.length - paused)} running${paused ? `, ${count(paused)} paused` : ''}` : '')}</span>
        <div class="tools">
          <Button kind="primary" icon="plus" why={readOnly()} onClick={() => setCreating(true)}>
            Create
          </Button>
        </div>
      </header>
      {(all.length > 0 || filtered) && (
        <div class="filters" role="search">
          <label class="search">
            <Icon name="search" />
            <span class="offscreen">Search by id, name, image, driver, client or label</span>
            <input
              type="search"
              placeholder="Search id, name, label=value …"
              value={q}
              onInput={(e) => set('q', e.currentTarget.value)}
              onKeyDown={(e) => {
                if (e.key === 'ArrowDown' || e.key === 'Enter') {
                  document.querySelector<HTMLElement>('.rows [role=row]')?.focus()
                  e.preventDefault()
                }
              }}
            />
            <kbd aria-hidden="true">/</kbd>
          </label>
          <div class="segments" role="group" aria-label="State">
            {['', 'running', 'paused'].map((v) => (
              <button key={v} type="button" aria-pressed={state === v} onClick={() => set('state', v)}>
                {v ? v[0]!.toUpperCase() + v.slice(1) : 'All'}
              </button>
            ))}
          </div>
          {(drivers.length > 1 || driver) && <Select label="Driver" value={driver} all={drivers} onSelect={(v) => set('driver', v)} />}
          {who?.operator && (tenants.length > 1 || tenant) && <Select label="Tenant" value={tenant} all={tenants} onSelect={(v) => set('tenant', v)} />}
          {filtered && (
            <span class="found">
              {count(shown.length)} of {count(all.length)}
            </span>
          )}
        </div>
      )}
      {!l.loaded ? (
        l.failure ? (
          <ErrorBox failure={l.failure} retry={refresh} title="The sandboxes cannot be listed." />
        ) : (
          <Loading what="sandboxes" />
        )
      ) : shown.length ? (
        <Table shown={shown} sort={sort} onSort={(v) => set('sort', v === 'age' ? '' : v)} onSearch={(v) => set('q', v)} owners={owners} />
      ) : filtered ? (
        <Empty title="No sandbox matches" icon="search">
          <p>
            None of {plural(all.length, 'sandbox', 'sandboxes')} has all of these. <a href={href('sandboxes')}>Show all</a>.
          </p>
        </Empty>
      ) : (
        <Empty title="No sandboxes">
          <p>{readOnly() ? 'Nobody has created one in this tenant yet.' : 'Create one here, with the command line, or from a program.'}</p>
          {!readOnly() && (
            <>
              <p>
                <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
                  Create a sandbox
                </Button>
              </p>
              <p>
                <code>sandbar create</code>
              </p>
            </>
          )}
        </Empty>
      )}
      {creating && <Create onClose={() => setCreating(false)} />}
      <Actions />
    </>
  )
}

function Select({ label, value, all, onSelect }: { label: string; value: string; all: string[]; onSelect: (v: string) => void }) {
  return (
    <select aria-label={label} value={value} onChange={(e) => onSelect(e.currentTarget.value)}>
      <option value="">{label}: all</option>
      {all.map((v) => (
        <option key={v} value={v}>
          {v}
        </option>
      ))}
    </select>
  )
}

const columns: { id: string; title: string; sort?: Sort; number?: boolean; help?: string }[] = [
  { id: 'name', title: 'Sandbox', sort: 'name' },
  { id: 'image', title: 'Image and driver', sort: 'image' },
  { id: 'owner', title: 'Client', sort: 'owner', help: 'Tenant and client' },
  { id: 'cpu', title: 'CPU', sort: 'cpu', number: true, help: 'Processors in use' },
  { id: 'memory', title: 'Memory', sort: 'memory', number: true },
  { id: 'disk', title: 'Disk', number: true, help: 'Files in memory that programs have written; of a paused one, its saved state' },
  { id: 'processes', title: 'Procs', sort: 'processes', number: true, help: 'Processes and threads; programs that were started' },
  { id: 'ports', title: 'Ports', help: 'Previews' },
  { id: 'age', title: 'Age', sort: 'age', number: true },
  { id: 'deadline', title: 'Ends in', sort: 'deadline', number: true, help: 'Without further use' },
  { id: 'labels', title: 'Labels' },
  { id: 'menu', title: '' },
]

const narrow = matchMedia('(max-width: 760px)')

// owners reports whether a sandbox has a client or a tenant to show.
function Table({ shown, sort, onSort, onSearch, owners }: { shown: Sandbox[]; sort: Sort; onSort: (s: Sort) => void; onSearch: (q: string) => void; owners: boolean }) {
  const box = useRef<HTMLDivElement>(null)
  const [view, setView] = useState({ top: 0, height: 800 })
  const [phone, setPhone] = useState(narrow.matches)
  const [focus, setFocus] = useState('')
  const want = useRef('')
  const now = useNow(phone ? 5000 : 1000) // shows new usage, too
  const height = phone ? 84 : 34
  useLayoutEffect(() => {
    const el = box.current!
    const read = () => setView((v) => (Math.abs(v.top - el.scrollTop) >= height || v.height !== el.clientHeight ? { top: el.scrollTop, height: el.clientHeight } : v))
    const changed = () => setPhone(narrow.matches)
    const size = new ResizeObserver(read)
    size.observe(el)
    el.addEventListener('scroll', read, { passive: true })
    narrow.addEventListener('change', changed)
    read()
    return () => {
      size.disconnect()
      el.removeEventListener('scroll', read)
      narrow.removeEventListener('change', changed)
    }
  }, [height])
  const from = Math.max(0, Math.floor(view.top / height) - 4)
  const to = Math.min(shown.length, Math.ceil((view.top + view.height) / height) + 4)
  const at = Math.max(0, shown.findIndex((s) => s.id === focus))
  const current = shown[at]?.id ?? ''
  useLayoutEffect(() => {
    if (!want.current) return
    box.current!.querySelector<HTMLElement>(`[data-id="${want.current}"]`)?.focus()
    want.current = ''
  })
  const move = (e: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / height) - 1)
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity, j: 1, k: -1 }[e.key]
    if ((e.target as HTMLElement).getAttribute('role') !== 'row') return
    if (e.key === 'Enter') return go('/sandboxes/' + current)
    if (!step || e.ctrlKey || e.altKey || e.metaKey) return
    e.preventDefault()
    const next = Math.max(0, Math.min(shown.length - 1, at + step))
    const id = shown[next]!.id
    const el = box.current!
    const head = phone ? 0 : 32
    if (next * height < el.scrollTop) el.scrollTop = next * height
    else if ((next + 1) * height + head > el.scrollTop + el.clientHeight) el.scrollTop = (next + 1) * height + head - el.clientHeight
    setFocus(id)
    want.current = id
    setView({ top: el.scrollTop, height: el.clientHeight })
  }
  return (
    <div class={'table' + (owners ? '' : ' ownerless')} role="grid" aria-label="Sandboxes" aria-rowcount={shown.length + 1} ref={box} onKeyDown={move}>
      <div class="head" role="rowgroup">
        <div role="row" aria-rowindex={1} class="columns">
          {columns.map((c) => (
            <div key={c.id} role="columnheader" class={'c-' + c.id + (c.number ? ' number' : '')} aria-sort={c.sort === sort ? 'ascending' : undefined} title={c.help}>
              {c.sort ? (
                <button type="button" class={c.sort === sort ? 'sorted' : ''} onClick={() => onSort(c.sort!)}>
                  {c.title}
                </button>
              ) : c.title ? (
                c.title
              ) : (
                <span class="offscreen">Actions</span>
              )}
            </div>
          ))}
        </div>
      </div>
      <div class="rows" role="rowgroup" ref={(el) => void (el && (el.style.height = shown.length * height + 'px'))}>
        {shown.slice(from, to).map((s, i) => (
          <Row
            key={s.id}
            s={s}
            index={from + i}
            top={(from + i) * height}
            now={Math.floor(now / 1000)}
            usage={usageOf(s.id)}
            current={s.id === current}
            onFocus={setFocus}
            onSearch={onSearch}
          />
        ))}
      </div>
    </div>
  )
}

interface RowProps {
  s: Sandbox
  index: number
  top: number
  now: number // seconds
  usage: ReturnType<typeof usageOf>
  current: boolean
  onFocus: (id: string) => void
  onSearch: (q: string) => void
}

const Row = memo(
  function Row({ s, index, top, now, usage, current, onFocus, onSearch }: RowProps) {
    useEffect(() => watch(s.id), [s.id])
    return (
      <div
        role="row"
        aria-rowindex={index + 2}
        class={'columns row' + (s.state === 'paused' ? ' paused' : '')}
        data-id={s.id}
        tabIndex={current ? 0 : -1}
        ref={(el) => void (el && (el.style.transform = `translateY(${top}px)`))}
        onFocus={() => onFocus(s.id)}
        onClick={(e) => {
          const t = e.target as HTMLElement
          if (!t.closest('button, a, [role=menu]')) go('/sandboxes/' + s.id)
        }}
      >
        <Cells s={s} now={now} usage={usage} onSearch={onSearch} />
      </div>
    )
  },
  (a, b) => a.top === b.top && a.current === b.current && a.index === b.index && sameCells(a, b),
)

type CellsProps = Pick<RowProps, 's' | 'now' | 'usage' | 'onSearch'>

// Cells are apart from their row: a new sandbox moves all rows, and changes no other cell.
const Cells = memo(function Cells({ s, now, usage, onSearch }: CellsProps) {
  const u = usage?.samples.at(-1)
  const end = deadline(s)
  const paused = s.state === 'paused'
  const limit = (a: unknown) => (typeof a === 'number' && a > 0 ? a : null)
  const left = end ? end.at / 1000 - now : null
  const none = usage?.failure ? <abbr title={usage.failure.message}>n/a</abbr> : '–'
  return (
    <>
      <div role="gridcell" class="c-name">
        <span class={'dot ' + (paused ? 'still' : s.running ? 'busy' : 'good')} title={paused ? 'paused' : s.running ? plural(s.running, 'program runs', 'programs run') : 'running, no program'} />
        <a href={href('sandboxes', s.id)} tabIndex={-1}>
          {s.name ? <strong>{s.name}</strong> : <code>{shortID(s.id)}</code>}
        </a>
        {s.name && <code class="muted">{s.id.slice(3, 9)}</code>}
      </div>
      <div role="gridcell" class="c-image">
        {s.image} <span class="muted">{s.driver}</span>
      </div>
      <div role="gridcell" class="c-owner">
        {s.tenant || s.client ? owner(s) : <span class="muted">–</span>}
      </div>
      <div role="gridcell" class="c-cpu number">
        {u?.cpu != null && !paused ? <Meter part={limit(s.limits.cpus) ? u.cpu / limit(s.limits.cpus)! : null} text={u.cpu.toFixed(2)} label={`${u.cpu.toFixed(2)} of ${amount(s.limits.cpus, String)} processors`} /> : <span class="muted">{none}</span>}
      </div>
      <div role="gridcell" class="c-memory number">
        {u && !paused ? <Meter part={limit(s.limits.memory) ? u.memory / limit(s.limits.memory)! : null} text={bytes(u.memory)} label={`${bytes(u.memory)} of ${amount(s.limits.memory, bytes)}`} /> : <span class="muted">{none}</span>}
      </div>
      <div role="gridcell" class="c-disk number">
        {paused ? <span title="saved state">{bytes(s.disk_bytes ?? 0)}</span> : u ? <Meter part={limit(s.limits.disk) ? u.files / limit(s.limits.disk)! : null} text={bytes(u.files)} label={`${bytes(u.files)} of ${amount(s.limits.disk, bytes)}`} /> : <span class="muted">{none}</span>}
      </div>
      <div role="gridcell" class="c-processes number" title={plural(s.running, 'program runs', 'programs run')}>
        {paused ? <span class="muted">–</span> : u?.processes || s.running}
      </div>
      <div role="gridcell" class="c-ports">
        {usage?.ports.length && !paused ? (
          usage.ports.map((p) => (
            <a key={p.port} href={href('sandboxes', s.id, 'previews')} tabIndex={-1}>
              {p.port}
            </a>
          ))
        ) : (
          <span class="muted">–</span>
        )}
      </div>
      <div role="gridcell" class="c-age number" title={moment(s.created_at)}>
        {age(s, now)}
      </div>
      <div role="gridcell" class={'c-deadline number' + (left !== null && left < 60 ? ' soon' : '')} title={end ? `${end.why}: ${moment(new Date(end.at).toISOString())}` : undefined}>
        {left !== null ? left < exact ? duration(left) : short(left) : <span class="muted">{paused ? 'paused' : s.running ? 'in use' : 'never'}</span>}
      </div>
      <div role="gridcell" class="c-labels">
        <Labels labels={s.labels} onSelect={onSearch} />
      </div>
      <div role="gridcell" class="c-menu">
        <Menu label={`Actions of ${title(s)}`} items={items(s)} />
      </div>
    </>
  )
}, sameCells)

// sameCells reports whether cells are the same. The time matters to their texts only in steps.
function sameCells(a: CellsProps, b: CellsProps): boolean {
  return a.s === b.s && a.usage === b.usage && rowTime(a) === rowTime(b)
}

// exact is the time to the end of a sandbox below which each second is shown, in seconds. All rows
// change with a text that has seconds, so most have none.
const exact = 120

// age returns the text of a sandbox's age, in the first minute in steps of five seconds: each other
// text renders its row.
function age(s: Sandbox, now: number): string {
  const t = Math.max(0, now - made(s) / 1000)
  return short(t < 60 ? t - (t % 5) : t)
}

function rowTime({ s, now }: CellsProps): string {
  const end = deadline(s)
  return age(s, now) + (end ? (end.at / 1000 - now < exact ? duration : short)(end.at / 1000 - now) : '')
}
