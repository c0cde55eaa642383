// Background processes of a sandbox.
import { useEffect, useRef, useState } from 'preact/hooks'
import { aborted, asFailure, done, Failure, get, of, post, query, request, serverEvents } from '../lib/api'
import { clock, duration, since } from '../lib/format'
import { onEvent } from '../lib/live'
import { readOnly } from '../lib/session'
import type { Process } from '../lib/types'
import { Button, Confirm, Empty, ErrorBox, fail, Loading, roving, State, useLoad, useNow } from '../ui/parts'
import type { TabProps } from './sandbox'

export function ProcessesTab({ s }: TabProps) {
  const { value, failure, reload } = useLoad((signal) => get<{ processes: Process[] }>(of(s.id, '/executor/list_processes'), signal), [s.id], 5000)
  const [selected, select] = useState('')
  const [command, setCommand] = useState('')
  const [busy, setBusy] = useState(false)
  const [killing, kill] = useState<Process | null>(null)
  const now = useNow()
  const list = useRef<HTMLDivElement>(null)
  useEffect(() => onEvent((n) => n.sandbox === s.id && n.type.startsWith('program.') && reload()), [s.id])
  const all = [...(value?.processes ?? [])].reverse()
  const shown = all.find((p) => p.id === selected) ?? all[0]
  const start = () => {
    setBusy(true)
    post<{ id: string }>(of(s.id, '/executor/start_process'), { cmd: command })
      .then((p) => {
        setCommand('')
        select(p.id)
        reload()
      })
      .catch(fail)
      .finally(() => setBusy(false))
  }
  return (
    <div class="processes">
      <form
        class="line"
        onSubmit={(e) => {
          e.preventDefault()
          if (command.trim() && !readOnly()) start()
        }}
      >
        <label class="prompt">
          <span class="offscreen">Command</span>
          <span aria-hidden="true">$</span>
          <input value={command} onInput={(e) => setCommand(e.currentTarget.value)} placeholder="python3 -m http.server 8000" spellcheck={false} autocapitalize="off" autocomplete="off" disabled={!!readOnly()} />
        </label>
        <Button kind="primary" icon="play" type="submit" busy={busy} why={readOnly()} disabled={!command.trim()}>
          Start
        </Button>
      </form>
      {failure && <ErrorBox failure={failure} retry={reload} />}
      {!value ? (
        !failure && <Loading what="processes" />
      ) : !all.length ? (
        <Empty title="No background processes" icon="play">
          <p>Start one above, or with the command line:</p>
          <p>
            <code>sandbar exec --detach {s.name || s.id} -- COMMAND</code>
          </p>
        </Empty>
      ) : (
        <div class="split">
          <div class="list" role="listbox" aria-label="Processes" tabIndex={-1} ref={list} onKeyDown={(e) => roving(e, list.current!, '[role=option]', 'vertical')}>
            {all.map((p) => (
              <div key={p.id} role="option" aria-selected={p === shown} tabIndex={p === shown ? 0 : -1} onClick={() => select(p.id)} onFocus={() => select(p.id)}>
                <code class="command" title={p.command}>
                  {p.command}
                </code>
                <span class="line">
                  <State state={p.status} />
                  <span class="muted">
                    {p.exit_code !== undefined && p.status !== 'running' ? `exit ${p.exit_code} · ` : ''}
                    {p.completed_at ? duration((Date.parse(p.completed_at) - Date.parse(p.started_at)) / 1000) : duration(since(p.started_at, now))}
                  </span>
                </span>
              </div>
            ))}
          </div>
          {shown && <Output key={shown.id} s={s} p={shown} onKill={() => kill(shown)} />}
        </div>
      )}
      {killing && (
        <Confirm title="Kill the process?" action="Kill" onClose={() => kill(null)} onConfirm={() => done(of(s.id, '/executor/kill_process'), { id: killing.id }).then(reload)}>
          <p>
            <code>{killing.command}</code> and all that it started are killed.
          </p>
        </Confirm>
      )}
    </div>
  )
}

interface Part {
  stream: string
  text: string
}

// maxShown is the most output that the page keeps, in characters.
const maxShown = 400_000

function Output({ s, p, onKill }: { s: TabProps['s']; p: Process; onKill: () => void }) {
  const [parts, setParts] = useState<Part[]>([])
  const [cut, setCut] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [n, again] = useState(0)
  const box = useRef<HTMLPreElement>(null)
  const follow = useRef(true)
  useEffect(() => {
    const a = new AbortController()
    const all: Part[] = []
    let size = 0
    let frame = 0
    const show = () => {
      frame = 0
      setParts([...all])
    }
    const add = (stream: string, text: string) => {
      const last = all.at(-1)
      if (last && last.stream === stream && last.text.length < 4000) last.text += text
      else all.push({ stream, text })
      size += text.length
      while (size > maxShown && all.length > 1) {
        size -= all.shift()!.text.length
        setCut(true)
      }
      frame ||= requestAnimationFrame(show)
    }
    const run = async () => {
      const r = await request(of(s.id, '/executor/process_logs_streaming') + query({ id: p.id }), { signal: a.signal })
      for await (const e of serverEvents(r.body!)) {
        if (!e.data) continue
        const d = JSON.parse(e.data) as { stream?: string; data?: string; lost?: number; message?: string; error?: string }
        if (e.event === 'error') throw new Failure(d.error ?? d.message ?? 'The output cannot be read.', '', '', 0)
        if (e.event === 'gap') add('gap', `… ${d.lost ?? 'some'} lines are no longer kept …\n`)
        else if (e.event === 'log' || d.stream) add(d.stream ?? 'stdout', (d.data ?? '') + '\n')
        else if (e.event === 'complete') return
      }
    }
    setFailure(null)
    run().catch((e: unknown) => {
      if (!aborted(e) && !a.signal.aborted) setFailure(asFailure(e))
    })
    return () => {
      a.abort()
      cancelAnimationFrame(frame)
    }
  }, [p.id, n])
  useEffect(() => {
    if (follow.current && box.current) box.current.scrollTop = box.current.scrollHeight
  }, [parts])
  return (
    <div class="output">
      <header>
        <code class="grow" title={p.command}>
          {p.command}
        </code>
        <span class="muted">
          pid {p.pid} · {clock(p.started_at)}
        </span>
        {p.status === 'running' && (
          <Button small kind="danger" icon="stop" why={readOnly()} onClick={onKill}>
            Kill
          </Button>
        )}
      </header>
      {failure && <ErrorBox failure={failure} retry={() => again(n + 1)} />}
      <pre
        ref={box}
        tabIndex={0}
        role="log"
        aria-label="Output"
        onScroll={(e) => {
          const el = e.currentTarget
          follow.current = el.scrollTop + el.clientHeight >= el.scrollHeight - 8
        }}
      >
        {cut && <span class="gap">… earlier output is not shown …{'\n'}</span>}
        {parts.length ? parts.map((x, i) => <span key={i} class={x.stream}>{x.text}</span>) : !failure && <span class="muted">{p.status === 'running' ? 'No output yet.' : 'No output.'}</span>}
      </pre>
    </div>
  )
}
