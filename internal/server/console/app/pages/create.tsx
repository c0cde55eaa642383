// The form for a new sandbox.
import { useState } from 'preact/hooks'
import { asFailure, Failure, get, post } from '../lib/api'
import { parseDuration, parseSize } from '../lib/format'
import { put } from '../lib/live'
import { go } from '../lib/route'
import type { Sandbox } from '../lib/types'
import { Button, Dialog, ErrorBox, Field, toast, useLoad } from '../ui/parts'

interface Images {
  images: { name: string; source: string }[]
  drivers?: string[]
}

const size = (s: string) => parseSize(s)
const number = (s: string) => (/^\s*\d+(\.\d+)?\s*$/.test(s) ? Number(s) : undefined)

const limits = [
  { id: 'cpus', label: 'Processors', hint: 'such as 0.5 or 2', parse: number },
  { id: 'memory', label: 'Memory', hint: 'such as 512 MiB', parse: size },
  { id: 'disk', label: 'Disk', hint: 'such as 1 GiB', parse: size },
  { id: 'pids', label: 'Processes', hint: 'such as 256', parse: number },
] as const

export function Create({ onClose }: { onClose: () => void }) {
  const images = useLoad((signal) => get<Images>('/v1/images', signal), [])
  const [v, setV] = useState<Record<string, string>>({})
  const [failure, setFailure] = useState<Failure | null>(null)
  const [busy, setBusy] = useState(false)
  const set = (name: string) => (e: { currentTarget: { value: string } }) => setV({ ...v, [name]: e.currentTarget.value })
  const wrong: Record<string, string> = {}
  for (const l of limits) if (v[l.id]?.trim() && v[l.id]!.trim() !== 'unlimited' && l.parse(v[l.id]!) === undefined) wrong[l.id] = `Write a value ${l.hint}, or “unlimited”.`
  if (v['idle']?.trim() && parseDuration(v['idle']!) === undefined) wrong['idle'] = 'Write a number with s, min, h or d, such as “30 min”.'
  const labels = (v['labels'] ?? '').split(/[\n,]/).map((x) => x.trim()).filter(Boolean)
  if (labels.some((x) => !/^[^=]+=/.test(x))) wrong['labels'] = 'Write NAME=VALUE, separated by commas.'
  const at = (field: string) => wrong[field] ?? (failure?.field === field ? failure.message : undefined)
  const submit = async () => {
    setBusy(true)
    setFailure(null)
    const body: Record<string, unknown> = {}
    if (v['name']?.trim()) body['name'] = v['name'].trim()
    if (v['image']) body['image'] = v['image']
    if (v['driver']) body['driver'] = v['driver']
    if (v['network']) body['network'] = v['network']
    if (v['idle']?.trim()) body['idle_timeout'] = parseDuration(v['idle'])
    if (labels.length) body['labels'] = Object.fromEntries(labels.map((x) => [x.slice(0, x.indexOf('=')).trim(), x.slice(x.indexOf('=') + 1).trim()]))
    const lim: Record<string, unknown> = {}
    for (const l of limits) {
      const text = v[l.id]?.trim()
      if (text) lim[l.id] = text === 'unlimited' ? text : l.parse(text)
    }
    if (Object.keys(lim).length) body['limits'] = lim
    try {
      const s = await post<Sandbox>('/v1/sandboxes', body)
      put(s)
      toast('good', `${s.name || s.id} is created.`)
      onClose()
      go('/sandboxes/' + s.id)
    } catch (e) {
      setFailure(asFailure(e))
      setBusy(false)
    }
  }
  const names = images.value?.images.filter((i) => i.name !== 'host' && i.source !== 'missing').map((i) => i.name) ?? []
  return (
    <Dialog title="Create a sandbox" onClose={onClose} wide>
      <form
        onSubmit={(e) => {
          e.preventDefault()
          if (!Object.keys(wrong).length) void submit()
        }}
      >
        <div class="body">
          <p class="muted">Every field is optional. An empty field has the operator’s default.</p>
          <div class="fields">
            <Field label="Name" error={at('name')}>
              {(p) => <input {...p} value={v['name'] ?? ''} onInput={set('name')} autofocus maxLength={64} />}
            </Field>
            <Field label="Image" hint={images.failure ? 'The images cannot be listed: ' + images.failure.message : undefined} error={at('image')}>
              {(p) => (
                <select {...p} value={v['image'] ?? ''} onChange={set('image')}>
                  <option value="">host (this machine’s programs)</option>
                  {names.map((n) => (
                    <option key={n}>{n}</option>
                  ))}
                </select>
              )}
            </Field>
            <Field label="Driver" error={at('driver')}>
              {(p) =>
                images.value?.drivers?.length ? (
                  <select {...p} value={v['driver'] ?? ''} onChange={set('driver')}>
                    <option value="">the daemon’s</option>
                    {images.value.drivers.map((n) => (
                      <option key={n}>{n}</option>
                    ))}
                  </select>
                ) : (
                  <input {...p} value={v['driver'] ?? ''} onInput={set('driver')} placeholder="the daemon’s" />
                )
              }
            </Field>
            <Field label="Network" error={at('network')}>
              {(p) => (
                <select {...p} value={v['network'] ?? ''} onChange={set('network')}>
                  <option value="">none</option>
                  <option value="outbound">outbound</option>
                </select>
              )}
            </Field>
            {limits.map((l) => (
              <Field key={l.id} label={l.label} hint={l.hint} error={at(l.id) ?? at('limits.' + l.id)}>
                {(p) => <input {...p} value={v[l.id] ?? ''} onInput={set(l.id)} />}
              </Field>
            ))}
            <Field label="Idle timeout" hint="such as 30 min" error={at('idle') ?? at('idle_timeout')}>
              {(p) => <input {...p} value={v['idle'] ?? ''} onInput={set('idle')} />}
            </Field>
            <Field label="Labels" hint="NAME=VALUE, separated by commas" error={at('labels')}>
              {(p) => <input {...p} value={v['labels'] ?? ''} onInput={set('labels')} />}
            </Field>
          </div>
          {failure && <ErrorBox failure={failure} />}
        </div>
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy} disabled={Object.keys(wrong).length > 0}>
            Create
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}
