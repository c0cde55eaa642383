// The files of a sandbox: a tree, and an editor.
import type { ComponentType } from 'preact'
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { asFailure, done, Failure, get, of, query, request } from '../lib/api'
import { bytes, moment, plural } from '../lib/format'
import { readOnly } from '../lib/session'
import type { Entry } from '../lib/types'
import type { EditorProps } from '../ui/editor'
import { Icon } from '../ui/icons'
import { Button, Confirm, Dialog, Empty, ErrorBox, fail, Field, Loading, Notice, toast } from '../ui/parts'
import { Lazy } from './app'
import type { TabProps } from './sandbox'

const home = '/home/user'
const maxEdit = 2 << 20 // bytes

const join = (dir: string, name: string) => (dir === '/' ? '/' : dir + '/') + name
const parent = (path: string) => path.slice(0, path.lastIndexOf('/')) || '/'
const base = (path: string) => path.slice(path.lastIndexOf('/') + 1)

interface Listing {
  entries: Entry[]
  more: boolean
}

export function FilesTab({ s }: TabProps) {
  const [root, setRoot] = useState(home)
  const [lists, setLists] = useState<Record<string, Listing | Failure | 'loading'>>({})
  const [open, setOpen] = useState<Set<string>>(new Set([home]))
  const [selected, select] = useState<{ path: string; entry: Entry } | null>(null)
  const [dialog, setDialog] = useState<'' | 'dir' | 'file' | 'delete'>('')
  const [uploads, setUploads] = useState('')
  const [over, setOver] = useState('')
  const [dirty, setDirty] = useState(false)
  const input = useRef<HTMLInputElement>(null)
  const tree = useRef<HTMLDivElement>(null)
  const load = useCallback(
    async (path: string, after = '') => {
      if (!after) setLists((l) => (l[path] && l[path] !== 'loading' && !(l[path] instanceof Failure) ? l : { ...l, [path]: 'loading' }))
      try {
        const d = await get<Listing>(of(s.id, '/dir') + query({ path, after }))
        d.entries.sort((a, b) => Number(b.type === 'directory') - Number(a.type === 'directory') || a.name.localeCompare(b.name))
        setLists((l) => {
          const had = l[path]
          return { ...l, [path]: after && had && had !== 'loading' && !(had instanceof Failure) ? { entries: [...had.entries, ...d.entries], more: d.more } : d }
        })
      } catch (e) {
        setLists((l) => ({ ...l, [path]: asFailure(e) }))
      }
    },
    [s.id],
  )
  useEffect(() => void load(root), [root])
  const toggle = (path: string) => {
    const next = new Set(open)
    if (next.has(path)) next.delete(path)
    else {
      next.add(path)
      void load(path)
    }
    setOpen(next)
  }
  const reload = () => [...open].filter((p) => p.startsWith(root)).forEach((p) => void load(p))
  // target is the directory for uploads and new entries.
  const target = selected ? (selected.entry.type === 'directory' ? selected.path : parent(selected.path)) : root
  const pick = (path: string, entry: Entry) => {
    if (dirty && path !== selected?.path && !confirm(`${base(selected?.path ?? '')} has changes that are not saved. Discard them?`)) return
    setDirty(false)
    select({ path, entry })
  }
  const upload = async (files: File[], dir: string) => {
    let at = 0
    for (const f of files) {
      setUploads(`Uploading ${f.name} (${++at} of ${files.length})…`)
      try {
        await request(of(s.id, '/executor/files') + query({ path: join(dir, f.name), parents: 'true' }), { method: 'PUT', body: f })
      } catch (e) {
        fail(e)
        break
      }
    }
    setUploads('')
    setOpen((o) => new Set(o).add(dir))
    await load(dir)
    if (at) toast('good', `${plural(at, 'file')} uploaded to ${dir}.`)
  }
  const dropped = (e: DragEvent, dir: string) => {
    e.preventDefault()
    e.stopPropagation()
    setOver('')
    const files = [...(e.dataTransfer?.files ?? [])]
    if (readOnly()) return toast('warn', readOnly())
    if (files.length) void upload(files, dir)
  }
  const drag = (dir: string) => ({
    onDragOver: (e: DragEvent) => {
      e.preventDefault()
      e.stopPropagation()
      if (over !== dir) setOver(dir)
    },
    onDrop: (e: DragEvent) => dropped(e, dir),
  })
  const keys = (e: KeyboardEvent) => {
    const all = [...tree.current!.querySelectorAll<HTMLElement>('[role=treeitem]')]
    const at = all.indexOf(document.activeElement as HTMLElement)
    const el = all[at]
    if (!el) return
    const path = el.dataset['path']!
    const isDir = el.dataset['type'] === 'dir'
    const go = (i: number) => all[Math.max(0, Math.min(all.length - 1, i))]?.focus()
    switch (e.key) {
      case 'ArrowDown':
        go(at + 1)
        break
      case 'ArrowUp':
        go(at - 1)
        break
      case 'Home':
        go(0)
        break
      case 'End':
        go(all.length - 1)
        break
      case 'ArrowRight':
        if (isDir && !open.has(path)) toggle(path)
        else go(at + 1)
        break
      case 'ArrowLeft':
        if (isDir && open.has(path)) toggle(path)
        else all.find((x) => x.dataset['path'] === parent(path))?.focus()
        break
      case 'Enter':
      case ' ':
        el.click()
        break
      case 'Delete':
        if (selected && !readOnly()) setDialog('delete')
        break
      default:
        return
    }
    e.preventDefault()
  }
  const rows = (dir: string, level: number): preact.ComponentChildren => {
    const l = lists[dir]
    if (!l || l === 'loading') return <div class="row note muted" role="none" key={dir + '…'}>Loading…</div>
    if (l instanceof Failure)
      return (
        <div class="row note bad" role="none" key={dir + '!'}>
          {l.message}
        </div>
      )
    if (!l.entries.length) return <div class={'row note muted l' + level} role="none" key={dir + '0'}>Empty</div>
    return (
      <>
        {l.entries.map((e) => {
          const path = join(dir, e.name)
          const isDir = e.type === 'directory'
          const isOpen = isDir && open.has(path)
          return (
            <div key={path} role="none">
              <div
                role="treeitem"
                aria-level={level}
                aria-expanded={isDir ? isOpen : undefined}
                aria-selected={selected?.path === path}
                tabIndex={selected ? (selected.path === path ? 0 : -1) : dir === root && e === l.entries[0] ? 0 : -1}
                class={`row l${Math.min(level, 12)}` + (over === path ? ' over' : '')}
                data-path={path}
                data-type={e.type}
                title={`${path}\n${isDir ? 'directory' : bytes(e.size)} · mode ${e.mode} · ${moment(e.modified_at)}`}
                onClick={() => {
                  pick(path, e)
                  if (isDir) toggle(path)
                }}
                {...(isDir ? drag(path) : {})}
              >
                <span class={'twist' + (isOpen ? ' open' : '')}>{isDir && <Icon name="chevron" size={12} />}</span>
                <Icon name={isDir ? 'folder' : e.type === 'file' ? 'file' : 'link'} size={14} />
                <span class="name">{e.name}</span>
                {!isDir && <span class="size muted">{e.type === 'file' ? bytes(e.size) : e.type}</span>}
              </div>
              {isOpen && rows(path, level + 1)}
            </div>
          )
        })}
        {l.more && (
          <div class="row note" role="none">
            <Button small onClick={() => void load(dir, [...l.entries].sort((a, b) => (a.name < b.name ? -1 : 1)).at(-1)!.name)}>
              Show more
            </Button>
          </div>
        )}
      </>
    )
  }
  const denied = readOnly()
  return (
    <div class={'files' + (selected?.entry.type === 'file' ? ' editing' : '')}>
      <div class={'tree' + (over === root ? ' over' : '')} {...drag(root)} onDragLeave={(e) => e.target === e.currentTarget && setOver('')}>
        <div class="bar">
          <RootPath root={root} onSelect={(p) => (setRoot(p), setOpen((o) => new Set(o).add(p)), select(null))} />
          <Button small kind="plain" icon="refresh" label="List again" onClick={reload} />
          <Button small kind="plain" icon="file" label="New file" why={denied} onClick={() => setDialog('file')} />
          <Button small kind="plain" icon="folder" label="New directory" why={denied} onClick={() => setDialog('dir')} />
          <Button small kind="plain" icon="upload" label={`Upload to ${target}`} why={denied} onClick={() => input.current?.click()} />
          <input
            ref={input}
            type="file"
            multiple
            hidden
            onChange={(e) => {
              const files = [...(e.currentTarget.files ?? [])]
              e.currentTarget.value = ''
              if (files.length) void upload(files, target)
            }}
          />
        </div>
        {lists[root] instanceof Failure ? (
          <ErrorBox failure={lists[root]} retry={() => void load(root)} />
        ) : !lists[root] || lists[root] === 'loading' ? (
          <Loading what="files" />
        ) : lists[root].entries.length ? (
          <div class="items" role="tree" aria-label={`Files in ${root}`} ref={tree} onKeyDown={keys}>
            {rows(root, 1)}
          </div>
        ) : (
          <Empty title="No files here" icon="folder">
            <p>{denied ? 'Programs of the sandbox can write files.' : 'Drop files here to upload them.'}</p>
          </Empty>
        )}
        <div class="status muted" role="status">
          {uploads || (over ? `Drop to upload to ${over}` : '')}
        </div>
      </div>
      <div class="content">
        {selected ? (
          selected.entry.type === 'directory' ? (
            <div class="entry">
              <h2>
                <code>{selected.path}</code>
              </h2>
              <p class="muted">
                Directory, mode {selected.entry.mode}, changed {moment(selected.entry.modified_at)}.
              </p>
              <p class="actions">
                <Button icon="upload" why={denied} onClick={() => input.current?.click()}>
                  Upload files here
                </Button>
                <Button icon="trash" kind="danger" why={denied} onClick={() => setDialog('delete')}>
                  Delete
                </Button>
              </p>
            </div>
          ) : (
            <FileView
              key={selected.path}
              s={s}
              path={selected.path}
              entry={selected.entry}
              dirty={dirty}
              onDirty={setDirty}
              onSaved={() => void load(parent(selected.path))}
              onDelete={() => setDialog('delete')}
              onClose={() => {
                if (dirty && !confirm('The file has changes that are not saved. Discard them?')) return
                setDirty(false)
                select(null)
              }}
            />
          )
        ) : (
          <Empty title="No file is selected" icon="file">
            <p>Select a file to read or edit it.</p>
          </Empty>
        )}
      </div>
      {(dialog === 'dir' || dialog === 'file') && (
        <NewEntry
          kind={dialog}
          dir={target}
          onClose={() => setDialog('')}
          onMake={async (path) => {
            if (dialog === 'dir') await done(of(s.id, '/executor/make_dir'), { path })
            else await request(of(s.id, '/executor/files') + query({ path, parents: 'true' }), { method: 'PUT', body: '' })
            setOpen((o) => new Set(o).add(parent(path)))
            await load(parent(path))
            const e: Entry = { name: base(path), type: dialog === 'dir' ? 'directory' : 'file', size: 0, mode: dialog === 'dir' ? '0755' : '0644', modified_at: new Date().toISOString() }
            select({ path, entry: e })
          }}
        />
      )}
      {dialog === 'delete' && selected && (
        <Confirm
          title={`Delete ${base(selected.path)}?`}
          action="Delete"
          onClose={() => setDialog('')}
          onConfirm={async () => {
            await done(of(s.id, selected.entry.type === 'directory' ? '/executor/delete_dir' : '/executor/delete_file'), { path: selected.path })
            setDirty(false)
            select(null)
            await load(parent(selected.path))
          }}
        >
          <p>
            <code>{selected.path}</code> {selected.entry.type === 'directory' ? 'and all files in it are removed.' : 'is removed.'} This cannot be undone.
          </p>
        </Confirm>
      )}
    </div>
  )
}

function RootPath({ root, onSelect }: { root: string; onSelect: (p: string) => void }) {
  const [text, set] = useState(root)
  useEffect(() => set(root), [root])
  return (
    <form
      class="grow"
      onSubmit={(e) => {
        e.preventDefault()
        const p = '/' + text.split('/').filter(Boolean).join('/')
        onSelect(p)
      }}
    >
      <input aria-label="Directory" value={text} onInput={(e) => set(e.currentTarget.value)} spellcheck={false} autocapitalize="off" />
    </form>
  )
}

function NewEntry({ kind, dir, onMake, onClose }: { kind: 'dir' | 'file'; dir: string; onMake: (path: string) => Promise<void>; onClose: () => void }) {
  const [name, set] = useState('')
  const [failure, setFailure] = useState<Failure | null>(null)
  const what = kind === 'dir' ? 'directory' : 'file'
  return (
    <Dialog title={`New ${what}`} onClose={onClose}>
      <form
        onSubmit={(e) => {
          e.preventDefault()
          if (name.trim()) onMake(name.startsWith('/') ? name : join(dir, name.trim())).then(onClose, (e: unknown) => setFailure(asFailure(e)))
        }}
      >
        <div class="body">
          <Field label="Name" hint={`In ${dir}, unless it begins with “/”.`}>
            {(p) => <input {...p} value={name} onInput={(e) => set(e.currentTarget.value)} autofocus spellcheck={false} />}
          </Field>
          {failure && <ErrorBox failure={failure} />}
        </div>
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" disabled={!name.trim()}>
            Make the {what}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

interface FileProps {
  s: TabProps['s']
  path: string
  entry: Entry
  dirty: boolean
  onDirty: (d: boolean) => void
  onSaved: () => void
  onDelete: () => void
  onClose: () => void
}

const loadEditor = () => import('../ui/editor').then((m) => m.Editor as ComponentType<EditorProps>)

function FileView({ s, path, entry, dirty, onDirty, onSaved, onDelete, onClose }: FileProps) {
  const [saved, setSaved] = useState<string | null>(null)
  const [why, setWhy] = useState('')
  const [failure, setFailure] = useState<Failure | null>(null)
  const [saving, setSaving] = useState(false)
  const text = useRef('')
  const [n, again] = useState(0)
  const url = of(s.id, '/executor/files') + query({ path })
  useEffect(() => {
    setFailure(null)
    setSaved(null)
    if (entry.type !== 'file') return setWhy(`This is a ${entry.type}. It has no content to show.`)
    if (entry.size > maxEdit) return setWhy(`The file has ${bytes(entry.size)}; the editor takes ${bytes(maxEdit)}. Download it instead.`)
    request(url)
      .then((r) => r.arrayBuffer())
      .then(
        (b) => {
          try {
            const t = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(b)
            if (t.includes('\0')) throw new TypeError('binary')
            text.current = t
            setSaved(t)
          } catch {
            setWhy('The file is not text. Download it instead.')
          }
        },
        (e: unknown) => setFailure(asFailure(e)),
      )
  }, [path, n])
  useEffect(() => {
    if (!dirty) return
    const ask = (e: BeforeUnloadEvent) => e.preventDefault()
    addEventListener('beforeunload', ask)
    return () => removeEventListener('beforeunload', ask)
  }, [dirty])
  const save = async () => {
    if (readOnly()) return toast('warn', readOnly())
    setSaving(true)
    const t = text.current
    try {
      await request(of(s.id, '/executor/files') + query({ path, mode: entry.mode }), { method: 'PUT', body: t })
      setSaved(t)
      onDirty(text.current !== t)
      onSaved()
      toast('good', `${base(path)} is saved.`)
    } catch (e) {
      fail(e)
    }
    setSaving(false)
  }
  return (
    <div class="file">
      <header class="bar">
        <span class="close">
          <Button small kind="plain" icon="back" label="Close the file" onClick={onClose} />
        </span>
        <code class="grow path" title={path}>
          {path}
          {dirty && <span class="dirty"> · changed</span>}
        </code>
        <a class="button small" href={url} download={base(path)}>
          <Icon name="download" />
          Download
        </a>
        <Button small kind="plain" icon="trash" label="Delete the file" why={readOnly()} onClick={onDelete} />
        <Button small kind="primary" busy={saving} why={readOnly()} disabled={!dirty} onClick={() => void save()}>
          Save
        </Button>
      </header>
      {failure ? (
        <ErrorBox failure={failure} retry={() => again(n + 1)} />
      ) : why ? (
        <Notice>{why}</Notice>
      ) : saved === null ? (
        <Loading what="the file" />
      ) : (
        <Lazy
          load={loadEditor}
          what="the editor"
          props={{
            text: text.current,
            language: base(path).includes('.') ? base(path).split('.').pop()!.toLowerCase() : '',
            label: `Content of ${path}`,
            readOnly: !!readOnly(),
            onChange: (t) => {
              text.current = t
              onDirty(t !== saved)
            },
            onSave: () => void save(),
          }}
        />
      )}
    </div>
  )
}
