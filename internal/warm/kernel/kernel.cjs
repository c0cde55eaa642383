'use strict'
// The JavaScript and TypeScript interpreter of a context.
//
// Two processes run this file. The supervisor talks to the host in frames (see frame.go) and runs
// no cell. The worker runs the cells. Its outputs are the supervisor's pipes, so everything that a
// cell, its libraries and its children write arrives as output. The worker's own frames go over
// descriptor 3, which programs do not inherit.
//
// The supervisor gets SIGINT. It sends the worker a message, which ends a cell that awaits. If that
// has no effect, it sends SIGINT, which ends code that runs (the option breakOnSigint of vm). In the
// rest of the time SIGINT ends the worker: a listener for it would break breakOnSigint.
//
// The boot text provides ROLE, LANGUAGE and TEXT.

const header = (kind, size) => {
  const b = Buffer.alloc(5)
  b.write(kind, 0, 'latin1')
  b.writeUInt32BE(size, 1)
  return b
}

// Frames splits a stream of bytes into frames.
class Frames {
  parts = []
  size = 0
  constructor (each) { this.each = each }
  push (data) {
    this.parts.push(data)
    this.size += data.length
    while (this.size >= 5) {
      if (this.parts[0].length < 5) this.parts = [Buffer.concat(this.parts)]
      const want = 5 + this.parts[0].readUInt32BE(1)
      if (this.size < want) return
      const all = this.parts.length > 1 ? Buffer.concat(this.parts) : this.parts[0]
      this.parts = all.length > want ? [all.subarray(want)] : []
      this.size -= want
      this.each(String.fromCharCode(all[0]), all.subarray(5, want))
    }
  }
}

if (ROLE === 'supervisor') supervise()
else work()

function supervise () {
  const fs = require('fs')
  const write = data => {
    for (let at = 0; at < data.length;) {
      try {
        at += fs.writeSync(1, data, at)
      } catch (e) {
        if (e.code !== 'EAGAIN') process.exit(0)
      }
    }
  }
  const frame = (kind, data) => write(Buffer.concat([header(kind, data.length), data]))
  const role = process.argv[process.argv.length - 1]
  if (role === 'typescript' && typeof require('module').stripTypeScriptTypes !== 'function') {
    console.error('node ' + process.version + ' cannot strip types; TypeScript needs node 22.13 or later')
    process.exit(1)
  }
  const boot = 'const ROLE="worker",LANGUAGE=' + JSON.stringify(role) + ',TEXT="";eval(process.env.SANDBAR_KERNEL)'
  const child = require('child_process').spawn(process.execPath, ['--no-warnings', '-e', boot],
    { detached: true, stdio: ['ignore', 'pipe', 'pipe', 'pipe'], env: { ...process.env, SANDBAR_KERNEL: TEXT } })
  let seen = 0 // pieces of output
  let cells = 0 // begun and ended
  const output = kind => data => {
    seen++
    for (let at = 0; at < data.length; at += 65536) frame(kind, data.subarray(at, at + 65536))
  }
  child.stdout.on('data', output('o'))
  child.stderr.on('data', output('e'))
  // A frame of the worker comes after the output that was written before it: it waits for a round
  // of the event loop without output.
  const waiting = []
  const settle = before => setImmediate(() => setImmediate(() => {
    if (seen !== before) return settle(seen)
    const [kind, data] = waiting.shift()
    if (kind === 'd') cells++
    frame(kind, data)
    if (waiting.length) settle(seen)
  }))
  const frames = new Frames((kind, data) => {
    waiting.push([kind, Buffer.from(data)])
    if (waiting.length === 1) settle(seen)
  })
  child.stdio[3].on('data', data => frames.push(data))
  for (const stream of child.stdio) stream && stream.on('error', () => {})
  process.on('SIGINT', () => {
    const now = cells
    if (now % 2 === 0) return
    child.stdio[3].write(header('i', 0))
    // If this process was held up, the worker's answer is read only after the timer.
    setTimeout(() => setImmediate(() => {
      if (cells === now && !waiting.some(([kind]) => kind === 'd')) process.kill(-child.pid, 'SIGINT')
    }), 100)
  })
  child.on('close', (code, signal) => {
    if (signal) {
      process.removeAllListeners('SIGINT')
      process.kill(process.pid, signal)
      setTimeout(() => process.exit(1), 1000)
    } else process.exit(code)
  })
  child.on('error', e => { console.error(e.message); process.exit(1) })
  const requests = new Frames((kind, data) => {
    cells++
    child.stdio[3].write(Buffer.concat([header(kind, data.length), data]))
  })
  process.stdin.on('data', data => requests.push(data))
  process.stdin.on('end', () => process.exit(0))
}

function work () {
  delete process.env.SANDBAR_KERNEL
  const fs = require('fs')
  const util = require('util')
  const path = require('path')
  const repl = require('repl')
  const module_ = require('module')
  const { Readable, Writable } = require('stream')
  const write = fs.writeSync
  const stringify = JSON.stringify
  const MAX = (8 << 20) - 65536 // of a result; see frame.go

  const send = (kind, data) => {
    const all = Buffer.concat([header(kind, data.length), data])
    for (let at = 0; at < all.length;) {
      try {
        at += write(3, all, at)
      } catch (e) {
        if (e.code !== 'EAGAIN') throw e
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1)
      }
    }
  }

  // ---- formats of values

  const FIELDS = {
    'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png', 'image/jpeg': 'jpeg',
    'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json', 'application/javascript': 'javascript'
  }
  const BINARY = ['png', 'jpeg', 'pdf']
  const METHODS = { _toHtml: 'text/html', _toSvg: 'image/svg+xml', _toPng: 'image/png', _toJpeg: 'image/jpeg' }
  const DISPLAY = Symbol.for('Jupyter.display')

  const bundle = value => {
    const out = {}
    if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
      try {
        if (typeof value[DISPLAY] === 'function') Object.assign(out, value[DISPLAY]())
        else if (typeof value._toMime === 'function') Object.assign(out, value._toMime())
        for (const name in METHODS) if (!(METHODS[name] in out) && typeof value[name] === 'function') out[METHODS[name]] = value[name]()
      } catch (e) {
        console.error('a representation failed: ' + (e && e.stack || e))
      }
    }
    if (!('text/plain' in out)) out['text/plain'] = util.inspect(value, repl.writer.options)
    return out
  }

  const show = (mimes, main) => {
    const fields = {}
    const extra = {}
    for (const [mime, v] of Object.entries(mimes)) {
      if (v === undefined || v === null) continue
      const name = FIELDS[mime]
      let value = v
      if (value instanceof Uint8Array) value = Buffer.from(value).toString(BINARY.includes(name) || !name ? 'base64' : 'utf8')
      if (name && name !== 'json' && typeof value !== 'string') value = String(value)
      if (BINARY.includes(name)) value = value.replace(/\s/g, '')
      if (name) fields[name] = value
      else extra[mime] = value
    }
    if (Object.keys(extra).length) fields.extra = extra
    if (main) fields.main = true
    let data = Buffer.from(stringify(fields).replace(/[\ud800-\udfff]/g, c => c), 'utf8')
    if (data.length > MAX) {
      console.error('sandbar: a result has ' + data.length + ' bytes and was left out; at most ' + MAX + ' bytes are allowed')
      data = Buffer.from(stringify({ text: String(fields.text || '<a result that is too large>').slice(0, 65536), main: !!main }))
    }
    send('r', data)
  }

  // ---- cells

  const nothing = new Readable({ read () {} })
  const r = repl.start({ prompt: '', input: nothing, output: new Writable({ write (c, e, f) { f() } }), terminal: false, useGlobal: true, breakEvalOnSigint: true })
  r.removeAllListeners('SIGINT')
  globalThis.require = module_.createRequire(path.join(process.cwd(), 'cell.js'))
  globalThis.display = (...values) => { for (const v of values) show(bundle(v), false) }
  for (const name of ['prompt', 'alert', 'confirm']) delete globalThis[name]

  let stop = null // ends the running cell
  const interrupted = () => Object.assign(new Error('the cell was interrupted'), { name: 'KeyboardInterrupt', stack: '' })
  const late = e => console.error('Uncaught ' + (e && e.stack || util.inspect(e)))
  process.on('uncaughtException', late)
  process.on('unhandledRejection', late)

  // Static imports become dynamic ones.
  const imports = code => code.replace(/^[ \t]*import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s+as\s+([\w$]+)\s+)?(\{[^}]*\}\s*)?(?:from\s+)?(["'])([^"'\n]+)\4[ \t]*;?[ \t]*$/gm,
    (all, name, space, names, _, from) => {
      const load = 'await import(' + stringify(from) + ')'
      if (space && !name && !names) return 'const ' + space + ' = ' + load + ';'
      const parts = []
      if (name) parts.push('default: ' + name)
      if (names) parts.push(names.trim().slice(1, -1).replace(/([\w$]+)\s+as\s+([\w$]+)/g, '$1: $2'))
      return space ? all : (parts.length ? 'const { ' + parts.join(', ') + ' } = ' : '') + load + (parts.length ? '' : '; undefined') + ';'
    })

  // The REPL passes the error of a cell to its domain, where uncaught errors of callbacks come too.
  const ends = e => {
    if (!stop || e && e.domainThrown) return late(e)
    stop(e && e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? interrupted() : e)
  }
  if (r._domain) r._domain.removeAllListeners('error').on('error', ends)

  const evaluate = (code, file) => new Promise((resolve, reject) => {
    stop = reject
    r.eval(code, r.context, file, (err, value) => {
      if (err instanceof repl.Recoverable) err = err.err
      if (err && err.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') err = interrupted()
      if (err) reject(err)
      else resolve({ value }) // not a promise that would be awaited
    })
  })

  const failure = e => {
    let name = 'Error'
    let value = ''
    let stack = ''
    try {
      if (e instanceof Error || util.types.isNativeError(e)) {
        name = String(e.name)
        value = String(e.message)
        const lines = String(e.stack || name + ': ' + value).split('\n')
        const own = lines.findIndex(x => /^\s+at .*(node:vm|node:repl|node:domain|\[worker eval\]|\[eval\])/.test(x))
        stack = (own > 0 ? lines.slice(0, own) : lines).join('\n') + '\n'
      } else {
        name = typeof e
        value = util.inspect(e)
        stack = 'Uncaught ' + value + '\n'
      }
    } catch {}
    send('f', Buffer.from(stringify({ name, value: value.slice(0, 65536), traceback: stack.slice(0, 131072) })))
  }

  const run = async request => {
    const before = {}
    for (const [k, v] of Object.entries(request.env || {})) {
      before[k] = process.env[k]
      process.env[k] = v
    }
    try {
      let code = request.code
      if (LANGUAGE === 'typescript') code = module_.stripTypeScriptTypes(code)
      if (!request.strict) code = imports(code)
      const { value } = await evaluate(code, '<cell ' + request.count + '>')
      stop = null
      if (value !== undefined) show(bundle(value), true)
    } catch (e) {
      stop = null
      failure(e)
    }
    for (const k in before) {
      if (before[k] === undefined) delete process.env[k]
      else process.env[k] = before[k]
    }
    // Output that streams still have is written first.
    await new Promise(resolve => process.stdout.write('', () => process.stderr.write('', resolve)))
    send('d', Buffer.alloc(0))
  }

  const net = require('net')
  const channel = new net.Socket({ fd: 3, readable: true, writable: false })
  const frames = new Frames((kind, data) => {
    if (kind === 'x') run(JSON.parse(data.toString('utf8')))
    else if (stop) stop(interrupted())
  })
  channel.on('data', data => frames.push(data))
  channel.on('end', () => process.exit(0))
  send('k', Buffer.alloc(0))
}
