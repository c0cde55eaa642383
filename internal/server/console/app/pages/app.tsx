import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { asFailure, Failure, get, request, whenUnauthenticated } from '../lib/api'
import { live, refresh, start } from '../lib/live'
import { go, href, route } from '../lib/route'
import { readOnly, selectTheme, session, theme, type Theme } from '../lib/session'
import { useStore } from '../lib/store'
import type { Session } from '../lib/types'
import { Icon, Logo, type IconName } from '../ui/icons'
import { Button, Dialog, ErrorBox, fail, Loading, Notice, Toasts } from '../ui/parts'
import { Login } from './login'
import { SandboxPage } from './sandbox'
import { Sandboxes } from './sandboxes'

interface Page {
  id: string
  title: string
  icon: IconName
  key: string
  operator?: boolean
}

const pages: Page[] = [
  { id: 'sandboxes', title: 'Sandboxes', icon: 'boxes', key: 's' },
  { id: 'status', title: 'Status', icon: 'status', key: 't' },
  { id: 'events', title: 'Events', icon: 'events', key: 'e' },
  { id: 'doctor', title: 'Doctor', icon: 'doctor', key: 'd', operator: true },
  { id: 'configuration', title: 'Configuration', icon: 'config', key: 'c', operator: true },
]

// Lazy shows a component of a part of the program that is loaded when it is needed.
export function Lazy<P>({ load, props, what }: { load: () => Promise<ComponentType<P>>; props: P; what: string }) {
  const [C, set] = useState<ComponentType<P> | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [n, again] = useState(0)
  useEffect(() => {
    load().then(
      (c) => set(() => c),
      () => setFailure(new Failure(`A part of the page for ${what} could not be loaded.`, 'The daemon may have been updated: reload the page.', 'page', 0)),
    )
  }, [n])
  if (C) return <C {...(props as P & object)} />
  if (failure) return <ErrorBox failure={failure} retry={() => (setFailure(null), again(n + 1))} />
  return <Loading what={what} />
}

export function App() {
  const s = useStore(session)
  const [failure, setFailure] = useState<Failure | null>(null)
  const ask = () => {
    setFailure(null)
    get<Session>('/console/session').then(session.set, (e: unknown) => {
      const f = asFailure(e)
      if (f.status === 401) session.set(null)
      else setFailure(f)
    })
  }
  useEffect(() => {
    whenUnauthenticated(() => session.set(null))
    ask()
  }, [])
  if (failure)
    return (
      <main class="login">
        <div class="brand">
          <Logo size={34} />
          <h1>Sandbar</h1>
        </div>
        <ErrorBox failure={failure} retry={ask} />
      </main>
    )
  if (s === undefined) return null
  return (
    <>
      {s ? <Shell key={s.name + s.tenant} who={s} /> : <Login />}
      <Toasts />
    </>
  )
}

function Shell({ who }: { who: Session }) {
  const r = useStore(route)
  const l = useStore(live)
  const [help, setHelp] = useState(false)
  const mine = pages.filter((p) => !p.operator || who.operator)
  const page = mine.find((p) => p.id === (r.parts[0] ?? 'sandboxes')) ?? mine[0]!
  useEffect(start, [])
  useEffect(() => {
    const id = r.parts[0] === 'sandboxes' ? r.parts[1] : undefined
    const name = id ? l.sandboxes.get(id)?.name || id : page.title
    document.title = `${name} · Sandbar`
  }, [r, page, l])
  useEffect(() => {
    let prefix = 0
    const keys = (e: KeyboardEvent) => {
      const t = e.composedPath()[0] as HTMLElement
      if (e.ctrlKey || e.metaKey || e.altKey || t.closest?.('input, textarea, select, [contenteditable=true], .xterm, dialog') || t.isContentEditable) return
      if (Date.now() - prefix < 1500) {
        const p = mine.find((p) => p.key === e.key)
        prefix = 0
        if (p) {
          e.preventDefault()
          go('/' + p.id)
        }
        return
      }
      if (e.key === 'g') prefix = Date.now()
      else if (e.key === '?') setHelp(true)
      else if (e.key === '/') {
        const search = document.querySelector<HTMLElement>('[type=search]')
        if (search) {
          e.preventDefault()
          search.focus()
        }
      } else if (e.key === 'Escape' && r.parts[0] === 'sandboxes' && r.parts[1]) go('/sandboxes')
    }
    document.addEventListener('keydown', keys)
    return () => document.removeEventListener('keydown', keys)
  }, [r, who])
  const logout = () => {
    session.set(undefined) // what the page shows makes no further requests
    request('/console/logout', { method: 'POST' }).then(
      () => {
        go('/sandboxes')
        session.set(null)
      },
      (e: unknown) => {
        session.set(who)
        fail(e)
      },
    )
  }
  return (
    <div class="shell">
      <a
        class="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault()
          document.getElementById('main')?.focus()
        }}
      >
        Skip to content
      </a>
      <header class="side">
        <a class="brand" href={href('sandboxes')}>
          <Logo />
          <span>Sandbar</span>
        </a>
        <nav aria-label="Pages">
          {mine.map((p) => (
            <a key={p.id} href={href(p.id)} aria-current={p === page ? 'page' : undefined} title={`${p.title} (g ${p.key})`}>
              <Icon name={p.icon} />
              <span class="text">{p.title}</span>
              {p.id === 'sandboxes' && l.loaded && <span class="count">{l.sandboxes.size}</span>}
            </a>
          ))}
        </nav>
        <div class="who">
          <div class="name" title={who.operator ? 'This session sees all tenants.' : `This session sees the tenant ${who.tenant}.`}>
            <strong>{who.name || 'daemon'}</strong>
            <span>
              {who.operator ? 'operator' : who.tenant}
              {who.operator && who.role === 'admin' ? '' : ' · ' + who.role}
            </span>
          </div>
          <ThemeSwitch />
          <Button kind="plain" icon="keys" label="Keyboard shortcuts (?)" onClick={() => setHelp(true)} />
          <Button kind="plain" icon="exit" label="Log out" onClick={logout} />
        </div>
      </header>
      <main id="main" tabIndex={0}>
        {!l.connected && (
          <div class="notice warn banner" role="alert">
            <Icon name="warn" />
            <div class="grow">The connection to the daemon is lost. What you see may be old. The page tries to connect again.</div>
          </div>
        )}
        {l.failure && l.connected && l.loaded && (
          <div class="banner">
            <ErrorBox failure={l.failure} retry={refresh} />
          </div>
        )}
        {readOnly() && page.id === 'sandboxes' && !r.parts[1] && <Notice>This session is read-only: it shows everything of its tenant and changes nothing.</Notice>}
        {page.id === 'sandboxes' && (r.parts[1] ? <SandboxPage key={r.parts[1]} id={r.parts[1]} tab={r.parts[2] ?? 'overview'} /> : <Sandboxes />)}
        {page.id === 'status' && <Lazy key={page.id} load={() => import('./daemon').then((m) => m.StatusPage)} props={{}} what="the status" />}
        {page.id === 'events' && <Lazy key={page.id} load={() => import('./daemon').then((m) => m.EventsPage)} props={{}} what="events" />}
        {page.id === 'doctor' && <Lazy key={page.id} load={() => import('./daemon').then((m) => m.DoctorPage)} props={{}} what="the doctor" />}
        {page.id === 'configuration' && <Lazy key={page.id} load={() => import('./daemon').then((m) => m.ConfigurationPage)} props={{}} what="the configuration" />}
      </main>
      {help && <Help pages={mine} version={who.version} onClose={() => setHelp(false)} />}
    </div>
  )
}

const themes: { id: Theme; title: string; icon: IconName }[] = [
  { id: '', title: 'Colours of the system', icon: 'auto' },
  { id: 'light', title: 'Light colours', icon: 'sun' },
  { id: 'dark', title: 'Dark colours', icon: 'moon' },
]

function ThemeSwitch() {
  const t = useStore(theme)
  const at = themes.findIndex((x) => x.id === t)
  const next = themes[(at + 1) % themes.length]!
  return <Button kind="plain" icon={themes[at]!.icon} label={`${themes[at]!.title}. Next: ${next.title.toLowerCase()}`} onClick={() => selectTheme(next.id)} />
}

function Help({ pages, version, onClose }: { pages: Page[]; version: string; onClose: () => void }) {
  const licences = document.querySelector<HTMLLinkElement>('link[rel=license]')?.href
  const rows: [string[], string][] = [
    [['?'], 'Show this list'],
    [['/'], 'Search'],
    [['n'], 'Create a sandbox'],
    [['↑', '↓'], 'Move in a list'],
    [['Enter'], 'Open the row'],
    [['Esc'], 'Back to the list; close a dialog'],
    ...pages.map((p): [string[], string] => [['g', p.key], p.title]),
    [['Ctrl', 'S'], 'Save the file in the editor'],
    [['Shift', 'Enter'], 'Run the cell of a notebook'],
    [['Ctrl', 'Shift', 'Q'], 'Leave the terminal'],
  ]
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <div class="body">
        <dl class="keys">
          {rows.map(([keys, what]) => (
            <div key={what}>
              <dt>
                {keys.map((k) => (
                  <kbd key={k}>{k}</kbd>
                ))}
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <p class="muted">
          Sandbar {version}.{' '}
          {licences && (
            <a href={licences} target="_blank" rel="noreferrer">
              Licences of the console’s packages
            </a>
          )}
        </p>
      </div>
    </Dialog>
  )
}
