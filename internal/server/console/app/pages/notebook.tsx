// Contexts of a sandbox as a notebook.
import type { ComponentType } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import frameStyle from '../result.frame.css'
import { aborted, asFailure, del, Failure, get, lines, of, post, request } from '../lib/api'
import { millis } from '../lib/format'
import { dark, readOnly, theme } from '../lib/session'
import { store, useStore, type Store } from '../lib/store'
import type { CellEvent, Context } from '../lib/types'
import type { EditorProps } from '../ui/editor'
import { Button, Confirm, Empty, ErrorBox, fail, Loading, Notice, sentence, Tabs, toast, useLoad } from '../ui/parts'
import { Lazy } from './app'
import type { TabProps } from './sandbox'

type Result = { kind: 'stdout' | 'stderr'; text: string } | { kind: 'result' | 'error'; event: CellEvent }

interface Cell {
  id: number
  code: string
  results: Result[]
  running: boolean
  count: number | null
  took: number | null
  note: string
}

// Notebooks stay as long as the page is open.
const notebooks = new Map<string, Store<Cell[]>>()
let lastCell = 0

const newCell = (): Cell => ({ id: ++lastCell, code: '', results: [], running: false, count: null, took: null, note: '' })

function notebook(context: string): Store<Cell[]> {
  let n = notebooks.get(context)
  if (!n) notebooks.set(context, (n = store<Cell[]>([newCell()])))
  return n
}

interface Languages {
  languages: { name: string; contexts: boolean; available: boolean }[]
}

const all = ['python', 'javascript', 'typescript', 'bash']

export function NotebookTab({ s }: TabProps) {
  const { value, failure, reload } = useLoad((signal) => get<{ contexts: Context[] }>(of(s.id, '/contexts'), signal), [s.id], 10_000)
  const languages = useLoad((signal) => get<Languages>('/v1/languages', signal), [])
  const [selected, select] = useState('')
  const [language, setLanguage] = useState('python')
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<Failure | null>(null)
  const [removing, remove] = useState<Context | null>(null)
  const contexts = value?.contexts ?? []
  const shown = contexts.find((c) => c.id === selected) ?? contexts.at(-1)
  const names = languages.value?.languages.filter((l) => l.contexts && l.available).map((l) => l.name) ?? all
  const create = () => {
    setBusy(true)
    setFailed(null)
    post<Context>(of(s.id, '/contexts'), { language })
      .then(
        (c) => {
          select(c.id)
          reload()
        },
        (e: unknown) => setFailed(asFailure(e)),
      )
      .finally(() => setBusy(false))
  }
  const form = (
    <form
      class="line"
      onSubmit={(e) => {
        e.preventDefault()
        if (!readOnly()) create()
      }}
    >
      <select aria-label="Language" value={language} onChange={(e) => setLanguage(e.currentTarget.value)} disabled={!!readOnly()}>
        {names.map((n) => (
          <option key={n}>{n}</option>
        ))}
      </select>
      <Button icon="plus" kind={contexts.length ? 'plain' : 'primary'} type="submit" busy={busy} why={readOnly()}>
        {contexts.length ? 'New context' : 'Start a context'}
      </Button>
    </form>
  )
  if (failure && !value) return <ErrorBox failure={failure} retry={reload} />
  if (!value) return <Loading what="contexts" />
  return (
    <div class="notebook">
      {shown ? (
        <>
          <div class="line">
            <Tabs label="Contexts" all={contexts.map((c) => ({ id: c.id, title: `${c.language} ${c.id}`, badge: c.busy ? <span class="dot busy" title="a cell runs" /> : undefined }))} selected={shown.id} onSelect={select} />
            {form}
          </div>
          {failed && <ErrorBox failure={failed} />}
          <Cells key={shown.id} s={s} c={shown} onChanged={reload} onRemove={() => remove(shown)} />
        </>
      ) : (
        <Empty title="No contexts" icon="play">
          <p>A context is an interpreter that keeps its variables from cell to cell.</p>
          {form}
          {failed && <ErrorBox failure={failed} />}
        </Empty>
      )}
      {removing && (
        <Confirm
          title={`End the context ${removing.id}?`}
          action="End it"
          onClose={() => remove(null)}
          onConfirm={async () => {
            await del(of(s.id, `/contexts/${removing.id}`))
            notebooks.delete(s.id + '/' + removing.id)
            reload()
          }}
        >
          <p>Its interpreter and all variables are gone, and so are the cells on this page.</p>
        </Confirm>
      )}
    </div>
  )
}

const loadEditor = () => import('../ui/editor').then((m) => m.Editor as ComponentType<EditorProps>)

function Cells({ s, c, onChanged, onRemove }: { s: TabProps['s']; c: Context; onChanged: () => void; onRemove: () => void }) {
  const book = notebook(s.id + '/' + c.id)
  const cells = useStore(book)
  const [focus, setFocus] = useState(cells[0]?.id ?? 0)
  const [restarting, restart] = useState(false)
  const denied = readOnly()
  const path = of(s.id, `/contexts/${c.id}`)
  const change = (id: number, f: (c: Cell) => Cell) => book.update((all) => all.map((x) => (x.id === id ? f(x) : x)))
  const run = async (cell: Cell, next: boolean) => {
    if (denied) return toast('warn', denied)
    if (cell.running || !cell.code.trim()) return
    change(cell.id, (x) => ({ ...x, results: [], running: true, count: null, took: null, note: '' }))
    if (next) {
      const at = book.get().findIndex((x) => x.id === cell.id)
      if (at === book.get().length - 1) book.update((all) => [...all, newCell()])
      setFocus(book.get()[at + 1]!.id)
    }
    try {
      const r = await request(path + '/run', { method: 'POST', json: { code: cell.code } })
      for await (const line of lines(r.body!)) {
        if (!line) continue
        const e = JSON.parse(line) as CellEvent
        change(cell.id, (x) => apply(x, e))
        if (e.type === 'end' || e.type === 'failed') break
      }
    } catch (e) {
      if (!aborted(e)) {
        const f = asFailure(e)
        change(cell.id, (x) => ({ ...x, note: sentence(f.message) + ' ' + sentence(f.fix) }))
      }
    }
    change(cell.id, (x) => ({ ...x, running: false }))
    onChanged()
  }
  const running = cells.some((x) => x.running)
  return (
    <div class="cells">
      <div class="bar">
        <span class="muted grow">
          {c.language} in <code>{c.dir}</code>
        </span>
        <Button small icon="stop" why={denied} disabled={!running && !c.busy} onClick={() => void post(path + '/interrupt', {}).catch(fail)}>
          Interrupt
        </Button>
        <Button small icon="refresh" why={denied} onClick={() => restart(true)}>
          Restart
        </Button>
        <Button small kind="plain" icon="trash" label="End the context" why={denied} onClick={onRemove} />
      </div>
      {cells.map((cell, i) => (
        <section key={cell.id} class={'cell' + (cell.running ? ' running' : '')} aria-label={`Cell ${i + 1}`} onFocusCapture={() => setFocus(cell.id)}>
          <div class="code">
            <span class="count muted" aria-hidden="true">
              {cell.running ? '[*]' : cell.count !== null ? `[${cell.count}]` : '[ ]'}
            </span>
            <Lazy
              load={loadEditor}
              what="the editor"
              props={{ text: cell.code, language: c.language, label: `Code of cell ${i + 1}`, small: true, focus: focus === cell.id, readOnly: !!denied, onChange: (t) => change(cell.id, (x) => ({ ...x, code: t })), onRun: (next) => void run(book.get().find((x) => x.id === cell.id)!, next) }}
            />
            <div class="tools">
              <Button small kind="plain" icon="play" label={`Run cell ${i + 1} (Shift+Enter)`} busy={cell.running} why={denied} onClick={() => void run(cell, false)} />
              {cells.length > 1 && <Button small kind="plain" icon="close" label={`Remove cell ${i + 1}`} disabled={cell.running} onClick={() => book.update((all) => all.filter((x) => x.id !== cell.id))} />}
            </div>
          </div>
          {(cell.results.length > 0 || cell.note || cell.took !== null) && (
            <div class="results" aria-live="polite">
              {cell.results.map((r, j) => (
                <ResultView key={j} r={r} />
              ))}
              {cell.note && <Notice kind="warn">{cell.note}</Notice>}
              {cell.took !== null && <div class="took muted">{millis(cell.took)}</div>}
            </div>
          )}
        </section>
      ))}
      <p>
        <Button small kind="plain" icon="plus" why={denied} onClick={() => book.update((all) => [...all, newCell()])}>
          Add a cell
        </Button>
      </p>
      {restarting && (
        <Confirm
          title="Restart the interpreter?"
          action="Restart"
          onClose={() => restart(false)}
          onConfirm={async () => {
            await post(path + '/restart', {})
            book.update((all) => all.map((x) => ({ ...x, count: null })))
            onChanged()
          }}
        >
          <p>All variables of the context are lost. The cells on this page stay.</p>
        </Confirm>
      )}
    </div>
  )
}

function apply(c: Cell, e: CellEvent): Cell {
  const results = [...c.results]
  switch (e.type) {
    case 'started':
      return { ...c, count: e.execution_count ?? null }
    case 'stdout':
    case 'stderr': {
      const last = results.at(-1)
      if (last && last.kind === e.type) results[results.length - 1] = { kind: e.type, text: last.text + (e.text ?? '') }
      else results.push({ kind: e.type, text: e.text ?? '' })
      return { ...c, results }
    }
    case 'result':
      return { ...c, results: [...results, { kind: 'result', event: e }] }
    case 'error':
      return { ...c, results: [...results, { kind: 'error', event: e }] }
    case 'end':
      return {
        ...c,
        running: false,
        took: e.duration_ms ?? null,
        note: (e.outcome && e.outcome !== 'exited' ? `The cell ended by ${e.outcome.replace('_', ' ')}. ` : '') + (e.lost ? 'The interpreter has ended, and its variables are lost. The next cell starts a new one.' : ''),
      }
    case 'failed': {
      const f = e.failure ?? e.error
      return { ...c, running: false, note: f ? sentence(f.message) + ' ' + sentence(f.fix) : 'The cell could not be run.' }
    }
  }
  return c
}

function ResultView({ r }: { r: Result }) {
  if ('text' in r) return <pre class={r.kind}>{plain(r.text)}</pre>
  const e = r.event
  if (r.kind === 'error')
    return (
      <pre class="error" role="alert">
        {plain(e.traceback || `${e.name ?? 'Error'}: ${e.value ?? ''}`)}
      </pre>
    )
  if (e.png) return <img class="image" src={'data:image/png;base64,' + e.png} alt={e.text || 'Image'} />
  if (e.jpeg) return <img class="image" src={'data:image/jpeg;base64,' + e.jpeg} alt={e.text || 'Image'} />
  if (e.svg) return <img class="image" src={'data:image/svg+xml,' + encodeURIComponent(e.svg)} alt={e.text || 'Image'} />
  if (isTable(e.data)) return <Data data={e.data} />
  if (e.html) return <Html html={e.html} text={e.text ?? ''} />
  if (e.json !== undefined) return <pre>{JSON.stringify(e.json, null, 2)}</pre>
  return <pre class="value">{plain(e.text ?? e.markdown ?? e.latex ?? '')}</pre>
}

// plain removes the colours of a terminal.
const plain = (s: string): string => s.replace(/\x1b\[[0-9;]*m/g, '')

type Columns = Record<string, unknown[]>

function isTable(d: unknown): d is Columns {
  return !!d && typeof d === 'object' && !Array.isArray(d) && Object.keys(d).length > 0 && Object.values(d).every((v) => Array.isArray(v))
}

const maxRows = 200

// Data shows a table by its columns.
function Data({ data }: { data: Columns }) {
  const names = Object.keys(data)
  const rows = Math.max(...names.map((n) => data[n]!.length))
  const numeric = names.map((n) => data[n]!.every((v) => typeof v === 'number' || v === null))
  return (
    <div class="data" tabIndex={0} role="region" aria-label="Table">
      <table class="plain">
        <thead>
          <tr>
            {names.map((n, i) => (
              <th key={n} scope="col" class={numeric[i] ? 'number' : ''}>
                {n}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: Math.min(rows, maxRows) }, (_, i) => (
            <tr key={i}>
              {names.map((n, j) => (
                <td key={n} class={numeric[j] ? 'number' : ''}>
                  {data[n]![i] === null || data[n]![i] === undefined ? <span class="muted">–</span> : String(data[n]![i])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows > maxRows && <p class="muted">{rows - maxRows} more rows are not shown.</p>}
    </div>
  )
}

// Html shows HTML of a cell in a frame without scripts and without an origin. What the page's
// policy would refuse is removed before, so that the browser does not report it.
function Html({ html, text }: { html: string; text: string }) {
  const [height, setHeight] = useState(60)
  const ref = useRef<HTMLIFrameElement>(null)
  const scheme = useStore(theme)
  const { doc, active } = useMemo(() => {
    // The policy holds for handlers and styles while they are parsed, too.
    const tame = html.replace(/<[a-z][^>]*>/gi, (tag) => tag.replace(/([\s"'/])(on\w+|style)(\s*=)/gi, '$1data-$2$3'))
    const d = new DOMParser().parseFromString(tame, 'text/html')
    const active = d.querySelectorAll('script').length > 0
    d.querySelectorAll('script, style, link, meta, base, iframe, object, embed, form, audio, video, source, template').forEach((el) => el.remove())
    d.querySelectorAll('*').forEach((el) => {
      for (const a of [...el.attributes]) {
        const remote = ['src', 'srcset', 'background', 'poster'].includes(a.name) && !/^data:image\//.test(a.value)
        if (a.name === 'style' || a.name.startsWith('on') || a.name.startsWith('data-') || a.name === 'bgcolor' || remote || ((a.name === 'href' || a.name === 'xlink:href') && !/^(https?:|#)/.test(a.value))) el.removeAttribute(a.name)
      }
      if (el instanceof HTMLAnchorElement || el.tagName === 'A') {
        el.setAttribute('target', '_blank')
        el.setAttribute('rel', 'noreferrer noopener')
      }
    })
    return { doc: `<!doctype html><html class="${dark() ? 'dark' : 'light'}"><head><meta charset="utf-8"><link rel="stylesheet" href="${new URL(frameStyle, location.href).href}"></head><body>${d.body.innerHTML}</body></html>`, active }
  }, [html, scheme])
  useEffect(() => {
    // The frame has no origin, so its height cannot be read: the same HTML in this page can.
    const rows = (html.match(/<tr|<li|<p|<br|<div|<h\d/gi) ?? []).length
    setHeight(Math.max(40, Math.min(480, 34 + rows * 25)))
  }, [html])
  useEffect(() => {
    if (ref.current) ref.current.style.height = height + 'px'
  }, [height])
  return (
    <>
      <iframe ref={ref} class="html" sandbox="allow-popups" srcdoc={doc} title={text || 'HTML result'} referrerpolicy="no-referrer" />
      {active && <div class="muted took">Scripts of this result do not run here.</div>}
    </>
  )
}
