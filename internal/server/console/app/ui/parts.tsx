// Parts that all pages use.
import type { ComponentChildren } from 'preact'
import { useCallback, useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { asFailure, Failure } from '../lib/api'
import { store, useStore } from '../lib/store'
import { Icon, type IconName } from './icons'

export interface ButtonProps {
  icon?: IconName
  children?: ComponentChildren
  label?: string // for a button without text
  kind?: 'primary' | 'danger' | 'plain'
  small?: boolean
  onClick?: (e: MouseEvent) => void
  disabled?: boolean
  why?: string // why it is disabled; "" if it is not
  type?: 'button' | 'submit'
  busy?: boolean
  pressed?: boolean
}

// Button is disabled with a reason in a way that screen readers and pointers can still find it.
export function Button({ icon, children, label, kind, small, onClick, disabled, why, type = 'button', busy, pressed }: ButtonProps) {
  const off = !!why || disabled || busy
  return (
    <button
      type={type}
      class={['button', kind ?? '', small ? 'small' : '', !children ? 'square' : '', off ? 'off' : ''].join(' ')}
      aria-label={label}
      title={why || label}
      aria-disabled={off ? 'true' : undefined}
      aria-busy={busy ? 'true' : undefined}
      aria-pressed={pressed}
      onClick={(e) => {
        if (off) {
          e.preventDefault()
          if (why) toast('warn', why)
          return
        }
        onClick?.(e)
      }}
    >
      {busy ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} />}
      {children}
    </button>
  )
}

// ErrorBox shows an error with its fix.
export function ErrorBox({ failure, retry, title }: { failure: Failure; retry?: () => void; title?: string }) {
  return (
    <div class="notice bad" role="alert">
      <Icon name="warn" />
      <div class="grow">
        <strong>{title ? title + ' ' : ''}</strong>
        <span class="message">{sentence(failure.message)}</span>
        {failure.fix && <div class="fix">{sentence(failure.fix)}</div>}
      </div>
      {retry && (
        <Button small icon="refresh" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  )
}

// sentence returns a text of the daemon with a capital and a full stop.
export function sentence(s: string): string {
  s = s.trim()
  if (!s) return s
  return s[0]!.toUpperCase() + s.slice(1) + (/[.!?…:]$/.test(s) ? '' : '.')
}

export function Notice({ children, kind = 'info' }: { children: ComponentChildren; kind?: 'info' | 'warn' | 'good' }) {
  return (
    <div class={'notice ' + kind}>
      <Icon name={kind === 'warn' ? 'warn' : kind === 'good' ? 'check' : 'info'} />
      <div class="grow">{children}</div>
    </div>
  )
}

// Empty says that there is nothing, and what to do.
export function Empty({ title, children, icon = 'boxes' }: { title: string; children?: ComponentChildren; icon?: IconName }) {
  return (
    <div class="empty">
      <Icon name={icon} size={28} />
      <h2>{title}</h2>
      <div class="grow">{children}</div>
    </div>
  )
}

// Loading appears only if it takes longer than a moment.
export function Loading({ what }: { what: string }) {
  return (
    <div class="loading" role="status">
      <span class="spinner" aria-hidden="true" /> Loading {what}…
    </div>
  )
}

// Copy copies a text.
export function Copy({ text, label }: { text: string; label: string }) {
  const [copied, set] = useState(false)
  return (
    <Button
      small
      kind="plain"
      icon={copied ? 'check' : 'copy'}
      label={copied ? 'Copied' : label}
      onClick={() => {
        void copy(text).then((ok) => {
          set(ok)
          announce(ok ? 'Copied.' : 'The browser did not allow to copy.')
          setTimeout(() => set(false), 1500)
        })
      }}
    />
  )
}

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    // without TLS there is no clipboard except on this machine
  }
  const area = document.createElement('textarea')
  area.value = text
  area.className = 'offscreen'
  document.body.append(area)
  area.select()
  const ok = document.execCommand('copy')
  area.remove()
  return ok
}

// ---- messages

interface Toast {
  id: number
  kind: 'good' | 'warn' | 'bad'
  text: string
  fix: string
}

const toasts = store<Toast[]>([])
const spoken = store('')
let lastToast = 0

// toast shows a message for a while.
export function toast(kind: Toast['kind'], text: string, fix = ''): void {
  const id = ++lastToast
  toasts.update((all) => [...all.filter((t) => t.text !== text).slice(-3), { id, kind, text, fix }])
  setTimeout(() => dismiss(id), kind === 'bad' ? 15_000 : 5000)
}

// fail shows an error.
export function fail(e: unknown): void {
  const f = asFailure(e)
  toast('bad', sentence(f.message), sentence(f.fix))
}

// announce says a message to screen readers only.
export const announce = (text: string): void => spoken.set(text)

const dismiss = (id: number): void => toasts.update((all) => all.filter((t) => t.id !== id))

export function Toasts() {
  const all = useStore(toasts)
  return (
    <>
      <div class="toasts" role="status" aria-live="polite">
        {all.map((t) => (
          <div key={t.id} class={'toast ' + t.kind}>
            <Icon name={t.kind === 'good' ? 'check' : 'warn'} />
            <div class="grow">
              {t.text}
              {t.fix && <div class="fix">{t.fix}</div>}
            </div>
            <Button small kind="plain" icon="close" label="Dismiss" onClick={() => dismiss(t.id)} />
          </div>
        ))}
      </div>
      <div class="offscreen" role="status" aria-live="polite">
        {useStore(spoken)}
      </div>
    </>
  )
}

// ---- dialogs

// Dialog is a modal dialog. The browser keeps the focus inside and returns it.
export function Dialog({ title, children, onClose, wide }: { title: string; children: ComponentChildren; onClose: () => void; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useLayoutEffect(() => {
    const d = ref.current!
    if (!d.open) d.showModal()
    return () => d.close()
  }, [])
  return (
    <dialog
      ref={ref}
      class={wide ? 'wide' : ''}
      aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault()
        onClose()
      }}
      onMouseDown={(e) => {
        if (e.target === ref.current) onClose()
      }}
    >
      <div class="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <Button kind="plain" icon="close" label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  )
}

// Confirm asks before a change that cannot be undone.
export function Confirm({ title, children, action, onConfirm, onClose, kind = 'danger' }: { title: string; children: ComponentChildren; action: string; onConfirm: () => Promise<unknown>; onClose: () => void; kind?: 'danger' | 'primary' }) {
  const [busy, setBusy] = useState(false)
  const [failure, setFailure] = useState<Failure | null>(null)
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault()
          setBusy(true)
          setFailure(null)
          onConfirm().then(onClose, (e: unknown) => {
            setFailure(asFailure(e))
            setBusy(false)
          })
        }}
      >
        <div class="body">
          {children}
          {failure && <ErrorBox failure={failure} />}
        </div>
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind={kind} type="submit" busy={busy}>
            {action}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

// ---- fields

export function Field({ label, hint, error, children }: { label: string; hint?: ComponentChildren; error?: string | undefined; children: (p: { id: string; 'aria-describedby': string | undefined; 'aria-invalid': 'true' | undefined }) => ComponentChildren }) {
  const id = useId()
  const described = hint || error ? id + '-hint' : undefined
  return (
    <div class={'field' + (error ? ' wrong' : '')}>
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': described, 'aria-invalid': error ? 'true' : undefined })}
      {described && (
        <div class="hint" id={described}>
          {error ?? hint}
        </div>
      )}
    </div>
  )
}

// ---- tabs

export interface Tab {
  id: string
  title: string
  badge?: ComponentChildren
}

// Tabs is a list of tabs, in which the arrow keys move.
export function Tabs({ all, selected, onSelect, label }: { all: Tab[]; selected: string; onSelect: (id: string) => void; label: string }) {
  const ref = useRef<HTMLDivElement>(null)
  useEffect(() => {
    ref.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }, [selected])
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={ref} onKeyDown={(e) => roving(e, ref.current!, '[role=tab]', 'horizontal')}>
      {all.map((t) => (
        <button key={t.id} type="button" role="tab" id={'tab-' + t.id} aria-controls="panel" aria-selected={t.id === selected} tabIndex={t.id === selected ? 0 : -1} onClick={() => onSelect(t.id)}>
          {t.title}
          {t.badge}
        </button>
      ))}
    </div>
  )
}

// roving moves the focus among the elements of a list with the arrow keys, Home and End.
export function roving(e: KeyboardEvent, list: Element, selector: string, way: 'horizontal' | 'vertical'): void {
  const step = { [way === 'vertical' ? 'ArrowDown' : 'ArrowRight']: 1, [way === 'vertical' ? 'ArrowUp' : 'ArrowLeft']: -1, Home: -Infinity, End: Infinity }[e.key]
  if (!step || e.altKey || e.ctrlKey || e.metaKey) return
  const all = [...list.querySelectorAll<HTMLElement>(selector)].filter((el) => el.offsetParent !== null)
  const at = all.findIndex((el) => el === document.activeElement || el.contains(document.activeElement))
  const to = Math.max(0, Math.min(all.length - 1, at + step))
  all[to]?.focus()
  e.preventDefault()
}

// ---- facts

export function Facts({ children }: { children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

export function Chip({ children, kind = '' }: { children: ComponentChildren; kind?: string }) {
  return <span class={'chip ' + kind}>{children}</span>
}

// State is the state of a sandbox or a process.
export function State({ state }: { state: string }) {
  const kind = { running: 'good', completed: 'still', paused: 'still', failed: 'bad', killed: 'warn' }[state] ?? 'still'
  return (
    <span class={'state ' + kind}>
      <span class="dot" aria-hidden="true" />
      {state}
    </span>
  )
}

export function Labels({ labels, onSelect }: { labels: Record<string, string>; onSelect?: (text: string) => void }) {
  return (
    <>
      {Object.entries(labels).map(([k, v]) =>
        onSelect ? (
          <button key={k} type="button" class="chip link" tabIndex={-1} onClick={() => onSelect(`${k}=${v}`)} title={`Show sandboxes with ${k}=${v}`}>
            {k}={v}
          </button>
        ) : (
          <Chip key={k}>
            {k}={v}
          </Chip>
        ),
      )}
    </>
  )
}

// Meter is a bar for a part of a limit.
export function Meter({ part, text, label }: { part: number | null; text: string; label: string }) {
  const p = part === null ? 0 : Math.min(1, part)
  return (
    <span class="meter" title={label}>
      <span class="number">{text}</span>
      {part !== null && (
        <svg class={p > 0.9 ? 'full' : ''} viewBox="0 0 100 3" preserveAspectRatio="none" aria-hidden="true">
          <rect class="track" width="100" height="3" />
          <rect class="value" width={p * 100} height="3" />
        </svg>
      )}
    </span>
  )
}

// ---- loading

export interface Loaded<T> {
  value: T | undefined
  failure: Failure | null
  reload: () => void
  set: (v: T) => void
}

// useLoad loads a value, and loads it again if a dependency changes and every so many milliseconds
// while the page is visible.
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, deps: unknown[], every = 0): Loaded<T> {
  const [value, set] = useState<T | undefined>()
  const [failure, setFailure] = useState<Failure | null>(null)
  const [n, again] = useState(0)
  useEffect(() => {
    const a = new AbortController()
    let timer = 0
    let loaded = false
    const run = () => {
      if (document.hidden && loaded) {
        timer = window.setTimeout(run, every)
        return
      }
      load(a.signal)
        .then(
          (v) => {
            if (a.signal.aborted) return
            loaded = true
            set(() => v)
            setFailure(null)
          },
          (e: unknown) => {
            if (!a.signal.aborted) setFailure(asFailure(e))
          },
        )
        .finally(() => {
          if (every && !a.signal.aborted) timer = window.setTimeout(run, every)
        })
    }
    run()
    return () => {
      a.abort()
      clearTimeout(timer)
    }
  }, [...deps, n])
  const reload = useCallback(() => again((n) => n + 1), [])
  return { value, failure, reload, set: (v: T) => set(() => v) }
}

// useNow returns the time, again each so many milliseconds.
export function useNow(every = 1000): number {
  const [now, set] = useState(Date.now())
  useEffect(() => {
    const t = setInterval(() => {
      if (!document.hidden) set(Date.now())
    }, every)
    return () => clearInterval(t)
  }, [every])
  return now
}

// useAction runs an action and shows its error.
export function useAction(): [busy: string, run: (name: string, f: () => Promise<unknown>) => void] {
  const [busy, set] = useState('')
  return [
    busy,
    (name, f) => {
      set(name)
      f().catch(fail).finally(() => set(''))
    },
  ]
}

// Menu is a button with a list of actions.
export function Menu({ label, items }: { label: string; items: { title: string; icon?: IconName; onSelect: () => void; why?: string; danger?: boolean }[] }) {
  const [open, set] = useState(false)
  const ref = useRef<HTMLDivElement>(null)
  const button = useRef<HTMLButtonElement>(null)
  useEffect(() => {
    if (!open) return
    ref.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus()
    const outside = (e: Event) => {
      if (!ref.current?.contains(e.target as Node)) set(false)
    }
    document.addEventListener('pointerdown', outside)
    return () => document.removeEventListener('pointerdown', outside)
  }, [open])
  return (
    <div
      class="menu"
      ref={ref}
      onKeyDown={(e) => {
        if (!open) return
        if (e.key === 'Escape') {
          set(false)
          button.current?.focus()
          e.stopPropagation()
        } else if (e.key === 'Tab') set(false)
        else roving(e, ref.current!, '[role=menuitem]', 'vertical')
      }}
    >
      <button ref={button} type="button" class="button plain square" aria-label={label} title={label} aria-haspopup="menu" aria-expanded={open} onClick={() => set(!open)}>
        <Icon name="more" />
      </button>
      {open && (
        <div role="menu" aria-label={label}>
          {items.map((i) => (
            <button
              key={i.title}
              type="button"
              role="menuitem"
              class={(i.danger ? 'danger ' : '') + (i.why ? 'off' : '')}
              aria-disabled={i.why ? 'true' : undefined}
              title={i.why}
              onClick={() => {
                if (i.why) return toast('warn', i.why)
                set(false)
                button.current?.focus()
                i.onSelect()
              }}
            >
              {i.icon && <Icon name={i.icon} />}
              {i.title}
            </button>
          ))}
        </div>
      )}
    </div>
  )
}
