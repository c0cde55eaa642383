// A code editor. CodeMirror puts its styles into a shadow root as constructed style sheets, which
// the page's policy allows.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands'
import { bracketMatching, defaultHighlightStyle, HighlightStyle, indentOnInput, indentUnit, StreamLanguage, syntaxHighlighting } from '@codemirror/language'
import { highlightSelectionMatches, searchKeymap } from '@codemirror/search'
import { Compartment, EditorState, type Extension } from '@codemirror/state'
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from '@codemirror/view'
import { tags as t } from '@lezer/highlight'
import { useEffect, useRef } from 'preact/hooks'
import { dark, theme } from '../lib/session'
import { useStore } from '../lib/store'

const highlight = (c: Record<string, string>) =>
  HighlightStyle.define([
    { tag: [t.keyword, t.moduleKeyword, t.controlKeyword, t.operatorKeyword], color: c['keyword']! },
    { tag: [t.string, t.special(t.string), t.regexp], color: c['string']! },
    { tag: [t.number, t.bool, t.null, t.atom], color: c['number']! },
    { tag: [t.comment, t.meta], color: c['comment']!, fontStyle: 'italic' },
    { tag: [t.function(t.variableName), t.function(t.propertyName)], color: c['function']! },
    { tag: [t.className, t.typeName, t.definition(t.typeName)], color: c['type']! },
    { tag: [t.propertyName, t.attributeName], color: c['property']! },
    { tag: t.heading, fontWeight: '600' },
    { tag: t.invalid, color: c['invalid']! },
  ])

const lightColors = highlight({ keyword: '#8033a8', string: '#19713f', number: '#1d5fbf', comment: '#6a7178', function: '#0b6b78', type: '#8a5a00', property: '#1d5fbf', invalid: '#b42318' })
const darkColors = highlight({ keyword: '#c9a0e8', string: '#7fd1a0', number: '#82b4f0', comment: '#8b96a0', function: '#6fd0d0', type: '#e6c07b', property: '#82b4f0', invalid: '#f38b8b' })

const look = (isDark: boolean): Extension => [
  EditorView.theme(
    {
      '&': { height: '100%', fontSize: '13px', color: 'var(--text)', backgroundColor: 'var(--code)' },
      '&.cm-focused': { outline: 'none' },
      '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
      '.cm-content': { caretColor: 'var(--accent)', padding: '8px 0' },
      '.cm-cursor': { borderLeftColor: 'var(--accent)', borderLeftWidth: '2px' },
      '.cm-gutters': { backgroundColor: 'var(--code)', color: 'var(--muted)', border: 'none' },
      '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--line-soft)' },
      '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--selection)' },
      '.cm-matchingBracket': { backgroundColor: 'var(--selection) !important', color: 'inherit !important' },
      '.cm-panels': { backgroundColor: 'var(--surface)', color: 'var(--text)', borderColor: 'var(--line)' },
      '.cm-searchMatch': { backgroundColor: 'var(--match)' },
    },
    { dark: isDark },
  ),
  syntaxHighlighting(isDark ? darkColors : lightColors),
  syntaxHighlighting(defaultHighlightStyle, { fallback: true }),
]

// language returns the support of a language, by its name or the suffix of a file.
async function language(name: string): Promise<Extension> {
  switch (name) {
    case 'python':
    case 'py':
      return (await import('@codemirror/lang-python')).python()
    case 'javascript':
    case 'js':
    case 'mjs':
    case 'cjs':
    case 'jsx':
      return (await import('@codemirror/lang-javascript')).javascript({ jsx: true })
    case 'typescript':
    case 'ts':
    case 'tsx':
      return (await import('@codemirror/lang-javascript')).javascript({ jsx: name === 'tsx', typescript: true })
    case 'json':
      return (await import('@codemirror/lang-json')).json()
    case 'bash':
    case 'sh':
      return StreamLanguage.define((await import('@codemirror/legacy-modes/mode/shell')).shell)
    case 'yaml':
    case 'yml':
      return StreamLanguage.define((await import('@codemirror/legacy-modes/mode/yaml')).yaml)
    case 'toml':
      return StreamLanguage.define((await import('@codemirror/legacy-modes/mode/toml')).toml)
  }
  return []
}

export interface EditorProps {
  text: string
  language: string
  label: string
  readOnly?: boolean
  small?: boolean // grows with its text, without line numbers
  focus?: boolean
  onChange?: (text: string) => void
  onSave?: () => void
  onRun?: (next: boolean) => void
}

// Editor shows text. A new text replaces the old one only if it is another than the editor has.
export function Editor(p: EditorProps) {
  const host = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView | null>(null)
  const now = useRef(p)
  now.current = p
  const parts = useRef({ look: new Compartment(), language: new Compartment(), readOnly: new Compartment() })
  const scheme = useStore(theme)
  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: 'open', delegatesFocus: true })
    const c = parts.current
    const v = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: now.current.text,
        extensions: [
          keymap.of([
            { key: 'Mod-s', run: () => (now.current.onSave?.(), true) },
            { key: 'Shift-Enter', run: () => !!now.current.onRun && (now.current.onRun(true), true) },
            { key: 'Mod-Enter', run: () => !!now.current.onRun && (now.current.onRun(false), true) },
            { key: 'Escape', run: () => ((root.activeElement as HTMLElement | null)?.blur(), host.current?.focus(), true) },
          ]),
          p.small ? [] : [lineNumbers(), highlightActiveLineGutter(), highlightActiveLine()],
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          highlightSelectionMatches(),
          indentUnit.of('    '),
          p.small ? EditorView.lineWrapping : [],
          keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ 'aria-label': p.label }),
          EditorView.updateListener.of((u) => u.docChanged && now.current.onChange?.(u.state.doc.toString())),
          c.look.of(look(dark())),
          c.language.of([]),
          c.readOnly.of(EditorState.readOnly.of(!!p.readOnly)),
        ],
      }),
    })
    view.current = v
    if (now.current.focus) v.focus()
    return () => {
      v.destroy()
      view.current = null
    }
  }, [])
  useEffect(() => {
    const v = view.current!
    if (p.text !== v.state.doc.toString()) v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: p.text } })
  }, [p.text])
  useEffect(() => {
    let gone = false
    void language(p.language).then((l) => !gone && view.current?.dispatch({ effects: parts.current.language.reconfigure(l) }))
    return () => {
      gone = true
    }
  }, [p.language])
  useEffect(() => view.current?.dispatch({ effects: parts.current.readOnly.reconfigure(EditorState.readOnly.of(!!p.readOnly)) }), [p.readOnly])
  useEffect(() => {
    const again = () => view.current?.dispatch({ effects: parts.current.look.reconfigure(look(dark())) })
    again()
    const media = matchMedia('(prefers-color-scheme: dark)')
    media.addEventListener('change', again)
    return () => media.removeEventListener('change', again)
  }, [scheme])
  useEffect(() => {
    if (p.focus) view.current?.focus()
  }, [p.focus])
  return <div class={'editor' + (p.small ? ' small' : '')} ref={host} tabIndex={-1} />
}
