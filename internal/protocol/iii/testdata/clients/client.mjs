// Drives the npm package iii-sdk against a server; see README.md.
import { createHash, randomFillSync } from 'node:crypto'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'

const require = createRequire(import.meta.url)
const { registerWorker } = require('iii-sdk')
// Before 0.20 the client created channels; there was no module for them.
const helpers = (() => { try { return require('iii-sdk/helpers') } catch { return {} } })()
const channels = (() => { try { return require('iii-sdk/channel') } catch { return require('iii-sdk') } })()

const url = process.env.III_URL
const iii = registerWorker(url)
const createChannel = () => helpers.createChannel ? helpers.createChannel(iii) : iii.createChannel()
const call = (name, payload, timeoutMs = 120_000) => iii.trigger({ function_id: name, payload, timeoutMs })

function equal(got, want, what = '') {
  const a = JSON.stringify(got), b = JSON.stringify(want)
  if (a !== b) throw new Error(`${what} is ${a?.slice(0, 300)}, want ${b?.slice(0, 300)}`)
}

// fails makes a call that must fail with a code. It parses the message in the two ways of known clients.
async function fails(code, name, payload) {
  let err
  try { equal(await call(name, payload), `error ${code}`, name) } catch (e) { err = e }
  const found = /handler error:\s*(\{.*\})/s.exec(err.message)
  if (!found) throw new Error(`${name}: ${err.message}`)
  const detail = JSON.parse(err.message.slice(err.message.indexOf('{')))
  equal(JSON.parse(found[1]), detail, 'the payload')
  equal([detail.code, err.code], [code, 'invocation_failed'], `the error of ${name} (${detail.message})`)
  for (const key of ['code', 'docs_url', 'fix', 'fix_note', 'message', 'retryable', 'type']) {
    if (!(key in detail)) throw new Error(`${code} has no ${key}`)
  }
  if (!detail.docs_url.endsWith('#' + code)) throw new Error(`docs_url is ${detail.docs_url}`)
  return detail
}

async function withSandbox(f) {
  const { sandbox_id } = await call('sandbox::create', { image: 'python' })
  try { return await f(sandbox_id) } finally { await call('sandbox::stop', { sandbox_id, wait: true }) }
}

const noise = n => randomFillSync(Buffer.alloc(n))
const sha = b => createHash('sha256').update(b).digest('hex')

const checks = {
  async lifecycle() {
    const { images } = await call('sandbox::catalog::list', {})
    equal(images.slice(0, 2).map(i => [i.name, i.kind]), [['python', 'preset'], ['node', 'preset']], 'the catalogue')
    const { sandbox_id: id, image } = await call('sandbox::create', { image: 'python', name: 'n', cpus: 1, memory_mb: 256, idle_timeout_secs: 600, env: { A: 'b' }, network: false })
    equal(image, 'python')
    const { sandboxes } = await call('sandbox::list', {})
    const mine = sandboxes.find(s => s.sandbox_id === id)
    equal([mine.name, mine.image, mine.stopped, mine.exec_in_progress], ['n', 'python', false, false], 'list')
    equal((await call('sandbox::exec', { sandbox_id: id, argv: ['sh', '-c', 'echo $A'] })).stdout, 'b\n')
    equal(await call('sandbox::stop', { sandbox_id: id, wait: true }), { sandbox_id: id, stopped: true }, 'stop')
    await fails('S002', 'sandbox::exec', { sandbox_id: id, cmd: 'true' })
  },

  async exec() {
    await withSandbox(async sandbox_id => {
      for (const ask of [{ cmd: 'echo "a b" c' }, { cmd: 'echo', args: ['a b', 'c'] }, { argv: ['echo', 'a b', 'c'] }]) {
        const r = await call('sandbox::exec', { sandbox_id, ...ask })
        equal([r.stdout, r.stderr, r.exit_code, r.timed_out, r.success], ['a b c\n', '', 0, false, true])
        equal(typeof r.duration_ms, 'number')
      }
      for (const env of [{ X: '1' }, ['X=1']]) {
        const r = await call('sandbox::exec', { sandbox_id, argv: ['sh', '-c', 'cat; echo $X >&2; exit 3'], env, stdin: Buffer.from('in').toString('base64'), workdir: '/tmp' })
        equal([r.stdout, r.stderr, r.exit_code, r.success], ['in', '1\n', 3, false])
      }
      equal((await call('sandbox::exec', { sandbox_id, cmd: 'nope' })).exit_code, 127)
    })
  },

  async run() {
    equal((await call('sandbox::run', { image: 'node', code: "console.log('hello from sandbox')", lang: 'node' })).stdout, 'hello from sandbox\n')
    const r = await call('sandbox::run', { image: 'python', code: 'print(open("/tmp/d").read())', lang: 'python', files: [{ path: '/tmp/d', content: 'data' }], keep_sandbox: true })
    equal(r.stdout, 'data\n')
    await call('sandbox::stop', { sandbox_id: r.sandbox_id })
  },

  async files() {
    await withSandbox(async sandbox_id => {
      const fs = (name, payload) => call('sandbox::fs::' + name, { sandbox_id, ...payload })
      equal(await fs('mkdir', { path: '/tmp/d', parents: true }), { created: true })
      equal(await fs('write', { path: '/tmp/d/a.txt', content: 'foo\nbar foo\n', mode: '0640' }), { bytes_written: 12, path: '/tmp/d/a.txt' })
      equal((await fs('read', { path: '/tmp/d/a.txt' })).body, 'foo\nbar foo\n')
      const st = await fs('stat', { path: '/tmp/d/a.txt' })
      equal([st.name, st.is_dir, st.is_symlink, st.size, st.mode], ['a.txt', false, false, 12, '0640'])
      equal((await fs('ls', { path: '/tmp/d' })).entries.map(e => e.name), ['a.txt'])
      equal(await fs('grep', { path: '/tmp/d', pattern: '^bar' }), { matches: [{ path: '/tmp/d/a.txt', line: 2, content: 'bar foo' }], truncated: false })
      equal(await fs('sed', { files: ['/tmp/d/a.txt'], pattern: 'fo+', replacement: 'x' }), { results: [{ path: '/tmp/d/a.txt', replacements: 2, success: true }], total_replacements: 2 })
      equal(await fs('chmod', { path: '/tmp/d', mode: '0700', recursive: true }), { updated: 2 })
      equal(await fs('mv', { src: '/tmp/d/a.txt', dst: '/tmp/d/b.txt' }), { moved: true })
      equal((await fs('read', { path: '/tmp/d/b.txt' })).body, 'x\nbar x\n')
      equal(await fs('rm', { path: '/tmp/d', recursive: true }), { removed: true })
    })
  },

  async channels() {
    await withSandbox(async sandbox_id => {
      for (const n of [0, 1, 2 ** 20 - 1, 2 ** 20, 2 ** 20 + 1, 32 * 2 ** 20]) {
        const bytes = noise(n), path = '/tmp/f' + n
        if (n === 0) { // this SDK does not connect for an empty stream
          await call('sandbox::fs::write', { sandbox_id, path, content: '' })
        } else {
          const ch = await createChannel()
          ch.writer.stream.end(bytes)
          equal((await call('sandbox::fs::write', { sandbox_id, path, content: ch.readerRef })).bytes_written, n, 'bytes_written')
        }
        const r = await call('sandbox::fs::read', { sandbox_id, path })
        const got = await new channels.ChannelReader(url, r.content).readAll()
        equal([got.length, sha(got), r.size], [n, sha(bytes), n], 'what came back')
      }
    })
  },

  async large() {
    await withSandbox(async sandbox_id => {
      const piece = noise(2 ** 20), count = 256, path = '/tmp/large'
      const hash = createHash('sha256')
      const ch = await createChannel()
      const done = call('sandbox::fs::write', { sandbox_id, path, content: ch.readerRef })
      for (let i = 0; i < count; i++) {
        hash.update(piece)
        if (!ch.writer.stream.write(piece)) await new Promise(r => ch.writer.stream.once('drain', r))
      }
      ch.writer.stream.end()
      equal((await done).bytes_written, count * piece.length, 'bytes_written')
      const back = createHash('sha256')
      const r = await call('sandbox::fs::read', { sandbox_id, path })
      for await (const chunk of new channels.ChannelReader(url, r.content).stream) back.update(chunk)
      equal(back.digest('hex'), hash.digest('hex'), 'what came back')
    })
  },

  async aborted() {
    await withSandbox(async sandbox_id => {
      await call('sandbox::fs::write', { sandbox_id, path: '/tmp/f', content: 'old' })
      const ch = await createChannel()
      const done = fails('S218', 'sandbox::fs::write', { sandbox_id, path: '/tmp/f', content: ch.readerRef })
      ch.writer.stream.on('error', () => {})
      await new Promise(r => ch.writer.stream.write(noise(1000), r))
      ch.writer.stream.destroy() // terminates the connection
      equal((await done).retryable, true)
      equal((await call('sandbox::fs::read', { sandbox_id, path: '/tmp/f' })).body, 'old')
      // An empty upload looks like a lost writer; the fix writes the empty file.
      const empty = await createChannel()
      const detail = fails('S218', 'sandbox::fs::write', { sandbox_id, path: '/tmp/e', content: empty.readerRef })
      empty.writer.stream.end()
      equal((await call('sandbox::fs::write', (await detail).fix)).bytes_written, 0)
    })
  },

  async errors() {
    await fails('S001', 'sandbox::exec', { sandbox_id: 'nope', cmd: 'true' })
    await fails('S002', 'sandbox::stop', { sandbox_id: '00000000-0000-0000-0000-000000000000' })
    const near = await fails('S100', 'sandbox::create', { image: 'nodejs' })
    equal(near.fix, { image: 'node' }, 'the fix')
    await fails('S102', 'sandbox::create', { image: 'broken' })
    await fails('S300', 'sandbox::create', { image: 'python', network: true })
    await fails('S400', 'sandbox::create', { image: 'capped', cpus: 2 })
    await withSandbox(async sandbox_id => {
      const ambiguous = await fails('S001', 'sandbox::exec', { sandbox_id, cmd: 'echo a', args: ['b'] })
      equal((await call('sandbox::exec', ambiguous.fix)).stdout, 'a b\n', 'the fixed call')
      const late = await fails('S200', 'sandbox::exec', { sandbox_id, argv: ['sh', '-c', 'echo so far; [ -e /tmp/again ] && exit; touch /tmp/again; exec sleep 60'], timeout_ms: 2000 })
      equal(late.partial.stdout, 'so far\n')
      equal((await call('sandbox::exec', late.fix)).stdout, 'so far\n', 'the fixed call')
      await call('sandbox::exec', { sandbox_id, cmd: 'sh -c "mkdir -p /tmp/full /tmp/closed; touch /tmp/f /tmp/full/f; chmod 0 /tmp/closed; mkfifo /tmp/fifo; mkdir /tmp/up"' })
      const fs = (code, name, payload) => fails(code, 'sandbox::fs::' + name, { sandbox_id, ...payload })
      await fs('S210', 'chmod', { path: '/tmp/f', mode: 'rwx' })
      await fs('S211', 'read', { path: '/nope' })
      const parent = await fs('S211', 'write', { path: '/tmp/x/y', content: 'z' })
      equal((await call('sandbox::fs::write', parent.fix)).bytes_written, 1, 'the fixed call')
      await fs('S212', 'ls', { path: '/tmp/f' })
      await fs('S213', 'mkdir', { path: '/tmp/full' })
      await fs('S214', 'rm', { path: '/tmp/full' })
      // The file API may do what a program may: in a virtual machine, where programs are root, list it.
      const listed = await call('sandbox::exec', { sandbox_id, cmd: 'ls', args: ['/tmp/closed'] })
      if (listed.exit_code === 0) equal((await call('sandbox::fs::ls', { sandbox_id, path: '/tmp/closed' })).entries, [])
      else await fs('S215', 'ls', { path: '/tmp/closed' })
      await fs('S216', 'read', { path: '/tmp/fifo' })
      await fs('S217', 'grep', { path: '/tmp', pattern: '(' })
      const running = Array.from({ length: 8 }, () => call('sandbox::exec', { sandbox_id, argv: ['sh', '-c', 'touch /tmp/up/$$; read x </tmp/fifo'] }).catch(e => e))
      while ((await call('sandbox::list', {})).sandboxes.find(s => s.sandbox_id === sandbox_id).exec_in_flight < 8) await sleep(10)
      await fails('S003', 'sandbox::exec', { sandbox_id, cmd: 'true' })
      // Stopping the sandbox ends its programs; before that a slot is taken.
      while ((await call('sandbox::fs::ls', { sandbox_id, path: '/tmp/up' })).entries.length < 8) await sleep(10)
      await call('sandbox::stop', { sandbox_id, wait: true })
      for (const r of await Promise.all(running)) if (!/"code":"S300"/.test(r.message)) throw new Error(`a stopped program: ${r.message}`)
    }).catch(e => { if (!/sandbox not found/.test(e.message)) throw e }) // withSandbox stops it again
    for (const [name, payload, text] of [['sandbox::create', {}, 'missing field `image`'], ['sandbox::create', undefined, 'invalid type: null, expected struct CreateRequest']]) {
      const err = await call(name, payload).then(() => ({}), e => e)
      equal([err.code, err.message], ['invocation_failed', `invocation_failed: serialization error: ${text}`])
    }
    equal(await call('sandbox::nope', {}).then(() => '', e => e.code), 'function_not_found')
  },

  async concurrent() {
    await withSandbox(async sandbox_id => {
      const writes = Array.from({ length: 50 }, (_, i) => call('sandbox::fs::write', { sandbox_id, path: '/tmp/c' + i, content: 'x'.repeat(i) }))
      equal((await Promise.all(writes)).map(r => r.bytes_written), Array.from({ length: 50 }, (_, i) => i))
      const reads = Array.from({ length: 50 }, (_, i) => call('sandbox::fs::read', { sandbox_id, path: '/tmp/c' + i }))
      equal((await Promise.all(reads)).map(r => r.body.length), Array.from({ length: 50 }, (_, i) => i))
    })
  },

  async functions() {
    iii.registerFunction('test::double', async ({ n }) => ({ n: 2 * n }))
    iii.registerFunction('test::fails', async () => { throw new Error('as it should') })
    while (!(await call('engine::functions::list', { prefix: 'test::' })).functions.some(f => f.function_id === 'test::fails')) await sleep(10)
    equal(await call('test::double', { n: 21 }), { n: 42 })
    const err = await call('test::fails', {}).then(() => ({}), e => e)
    if (!/as it should/.test(err.message)) throw new Error(`the error is ${err.message}`)
    const info = await call('engine::functions::info', { function_id: 'sandbox::exec' })
    equal([info.request_schema.title, info.response_schema.title], ['ExecRequest', 'ExecResponse'])
  },

  async reconnect() {
    await withSandbox(async sandbox_id => {
      const before = call('sandbox::exec', { sandbox_id, cmd: 'sleep 2' })
      while (!(await call('sandbox::list', {})).sandboxes.find(s => s.sandbox_id === sandbox_id).exec_in_progress) await sleep(10)
      iii.ws.terminate() // the network's doing
      equal((await call('sandbox::exec', { sandbox_id, cmd: 'echo again' })).stdout, 'again\n')
      equal((await before).exit_code, 0, 'the call from before')
    })
  },

  async idle() {
    const first = iii.ws
    await sleep(70_000)
    equal((await call('sandbox::list', {})).sandboxes.length >= 0, true)
    equal(iii.ws === first, true, 'the connection is the same')
  },
}

const wanted = process.env.III_CHECKS?.split(',') ?? Object.keys(checks).filter(n => n !== 'idle')
const results = []
for (const name of wanted) {
  try {
    await checks[name]()
    results.push({ name, ok: true, detail: '' })
  } catch (e) {
    results.push({ name, ok: false, detail: String(e.stack ?? e).slice(0, 2000) })
  }
}
const ok = results.every(r => r.ok)
process.stdout.write(JSON.stringify({ client: 'npm iii-sdk', ok, checks: results }) + '\n')
await iii.shutdown()
process.exit(ok ? 0 : 1)
