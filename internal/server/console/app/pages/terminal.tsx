// A terminal in the sandbox, over a WebSocket with the frames of client/wire/frame.go.
import { FitAddon } from '@xterm/addon-fit'
import { Terminal } from '@xterm/xterm'
import { useEffect, useRef, useState } from 'preact/hooks'
import { of } from '../lib/api'
import { dark, readOnly, theme } from '../lib/session'
import { useStore } from '../lib/store'
import { Button, Notice, sentence } from '../ui/parts'
import type { TabProps } from './sandbox'

const maxStdin = 16 << 10

// frame returns a frame: its kind, the length of the data, the data.
function frame(kind: string, data: Uint8Array): Uint8Array<ArrayBuffer> {
  const b = new Uint8Array(5 + data.length)
  b[0] = kind.charCodeAt(0)
  new DataView(b.buffer).setUint32(1, data.length)
  b.set(data, 5)
  return b
}

const encode = (s: string) => new TextEncoder().encode(s)
const decode = (b: Uint8Array) => JSON.parse(new TextDecoder().decode(b)) as unknown

const shell = 'if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi'

// colors returns the terminal's theme.
function colors() {
  return dark()
    ? { background: '#0d1013', foreground: '#d7dde2', cursor: '#2dd4bf', cursorAccent: '#0d1013', selectionBackground: '#2b4a52', black: '#1c2126', brightBlack: '#7d8892', red: '#f38b8b', green: '#7fd1a0', yellow: '#e6c07b', blue: '#82b4f0', magenta: '#c9a0e8', cyan: '#6fd0d0', white: '#d7dde2', brightWhite: '#ffffff', brightRed: '#ffa8a3', brightGreen: '#9be3b8', brightYellow: '#f3d699', brightBlue: '#a6caf6', brightMagenta: '#dcbdf3', brightCyan: '#95e2e2' }
    : { background: '#fbfaf8', foreground: '#22262a', cursor: '#0f766e', cursorAccent: '#fbfaf8', selectionBackground: '#c9e4e0', black: '#22262a', brightBlack: '#6a7178', red: '#b42318', green: '#19713f', yellow: '#8a5a00', blue: '#1d5fbf', magenta: '#8033a8', cyan: '#0b6b78', white: '#5b6269', brightWhite: '#22262a', brightRed: '#9f1d13', brightGreen: '#125a31', brightYellow: '#704900', brightBlue: '#164f9f', brightMagenta: '#6a268e', brightCyan: '#085965' }
}

// withSheets runs f, in which xterm creates <style> elements. The page's policy forbids their
// content, so each is replaced by an element whose text goes into a style sheet of the document.
function withSheets(f: () => void): () => void {
  const sheets: CSSStyleSheet[] = []
  const original = document.createElement.bind(document)
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    if (name !== 'style') return original(name, options)
    const sheet = new CSSStyleSheet()
    sheets.push(sheet)
    document.adoptedStyleSheets.push(sheet)
    const el = original('span')
    el.hidden = true
    Object.defineProperty(el, 'textContent', { set: (text: string) => sheet.replaceSync(text), get: () => '' })
    return el
  }) as typeof document.createElement
  try {
    f()
  } finally {
    delete (document as { createElement?: unknown }).createElement
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => !sheets.includes(s))
  }
}

type Connection = { state: 'connecting' | 'open' } | { state: 'ended'; text: string; fix: string }

export function TerminalTab({ s }: TabProps) {
  const box = useRef<HTMLDivElement>(null)
  const term = useRef<Terminal | null>(null)
  const [c, setC] = useState<Connection>({ state: 'connecting' })
  const [n, again] = useState(0)
  const scheme = useStore(theme)
  const denied = readOnly()
  useEffect(() => {
    if (term.current) term.current.options.theme = colors()
  }, [scheme])
  useEffect(() => {
    if (denied) return
    const media = matchMedia('(prefers-color-scheme: dark)')
    const recolor = () => {
      if (term.current) term.current.options.theme = colors()
    }
    media.addEventListener('change', recolor)
    return () => media.removeEventListener('change', recolor)
  }, [])
  useEffect(() => {
    if (denied) return
    const t = new Terminal({ theme: colors(), fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'), fontSize: 13, lineHeight: 1.2, cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches, scrollback: 10_000, screenReaderMode: false, macOptionIsMeta: true })
    const fit = new FitAddon()
    t.loadAddon(fit)
    const endSheets = withSheets(() => t.open(box.current!))
    term.current = t
    fit.fit()
    t.focus()
    t.attachCustomKeyEventHandler((e) => {
      if (e.ctrlKey && e.shiftKey && e.code === 'KeyQ') {
        if (e.type === 'keydown') document.getElementById('tab-terminal')?.focus()
        return false
      }
      return true
    })
    const url = new URL(of(s.id, '/exec'), location.href)
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
    const ws = new WebSocket(url, 'sandbar-exec')
    ws.binaryType = 'arraybuffer'
    let credit = 256 << 10
    let ended = false
    let waiting: Uint8Array<ArrayBufferLike>[] = []
    const flush = () => {
      while (waiting.length && credit > 0 && ws.readyState === WebSocket.OPEN) {
        const first = waiting[0]!
        const part = first.subarray(0, Math.min(credit, maxStdin))
        ws.send(frame('i', part))
        credit -= part.length
        if (part.length === first.length) waiting.shift()
        else waiting[0] = first.subarray(part.length)
      }
    }
    const type = (b: Uint8Array) => {
      if (ended) return
      waiting.push(b)
      flush()
    }
    const finish = (text: string, fix = '') => {
      if (ended) return
      ended = true
      t.options.cursorBlink = false
      t.options.disableStdin = true
      setC({ state: 'ended', text, fix })
    }
    setC({ state: 'connecting' })
    ws.onopen = () => {
      setC({ state: 'open' })
      ws.send(frame('r', encode(JSON.stringify({ args: ['sh', '-c', shell], env: { TERM: 'xterm-256color' }, stdin: true, terminal: { rows: t.rows, cols: t.cols } }))))
    }
    ws.onmessage = (m: MessageEvent<ArrayBuffer>) => {
      const view = new DataView(m.data)
      for (let at = 0; at + 5 <= m.data.byteLength; ) {
        const kind = String.fromCharCode(view.getUint8(at))
        const size = view.getUint32(at + 1)
        const data = new Uint8Array(m.data, at + 5, size)
        at += 5 + size
        if (kind === 'o' || kind === 'e') t.write(data.slice())
        else if (kind === 'w') {
          credit += new DataView(data.buffer, data.byteOffset, 4).getUint32(0)
          flush()
        } else if (kind === 'x') {
          const r = decode(data) as { outcome: string; exit_code: number | null; signal: number | null }
          finish(r.outcome === 'exited' ? `The shell has ended with exit code ${r.exit_code}.` : `The shell has ended (${r.outcome}${r.signal ? `, signal ${r.signal}` : ''}).`)
        } else if (kind === 'f') {
          const e = decode(data) as { message?: string; fix?: string; error?: { message: string; fix: string } }
          finish(sentence(e.message ?? e.error?.message ?? 'the shell could not be started'), sentence(e.fix ?? e.error?.fix ?? ''))
        }
      }
    }
    ws.onclose = (e) => finish(e.code === 1006 ? 'The connection to the terminal is lost, or was refused.' : `The connection has ended${e.reason ? ': ' + sentence(e.reason) : '.'}`, 'Programs that were started in it have ended. Connect again for a new shell.')
    const input = t.onData((d) => type(encode(d)))
    const binary = t.onBinary((d) => type(Uint8Array.from(d, (c) => c.charCodeAt(0))))
    const resized = t.onResize(({ rows, cols }) => {
      if (ws.readyState !== WebSocket.OPEN || ended) return
      const b = new Uint8Array(4)
      const v = new DataView(b.buffer)
      v.setUint16(0, rows)
      v.setUint16(2, cols)
      ws.send(frame('z', b))
    })
    let frameID = 0
    const size = new ResizeObserver(() => {
      cancelAnimationFrame(frameID)
      frameID = requestAnimationFrame(() => fit.fit())
    })
    size.observe(box.current!)
    return () => {
      ended = true
      waiting = []
      size.disconnect()
      cancelAnimationFrame(frameID)
      input.dispose()
      binary.dispose()
      resized.dispose()
      ws.close()
      t.dispose()
      endSheets()
      term.current = null
    }
  }, [s.id, n])
  if (denied) return <Notice kind="warn">{denied}</Notice>
  return (
    <div class="terminal">
      {c.state === 'ended' && (
        <div class="notice warn" role="alert">
          <div class="grow">
            {c.text} {c.fix && <span class="fix">{c.fix}</span>}
          </div>
          <Button small kind="primary" icon="refresh" onClick={() => again(n + 1)}>
            Connect again
          </Button>
        </div>
      )}
      <div class="screen" ref={box} aria-label="Terminal" role="group" />
      <div class="foot muted">
        <span role="status">{c.state === 'connecting' ? 'Connecting…' : c.state === 'open' ? 'Connected' : 'Ended'}</span>
        <span>
          <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>Q</kbd> leaves the terminal
        </span>
      </div>
    </div>
  )
}
