// Drives the npm packages e2b and @e2b/code-interpreter against a daemon: every public method that
// docs/e2b.md lists as served. Prints "ok NAME" for each check, and fails at the first that does not
// hold.
import http from 'node:http'
import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'

const require = createRequire(import.meta.url)
require('./surface.cjs')
const { Sandbox, CommandExitError, FileNotFoundError, FilesystemEventType, InvalidArgumentError, AuthenticationError, SandboxError, SandboxNotFoundError, TimeoutError } = require('e2b')
const { Sandbox: Interpreter } = require('@e2b/code-interpreter')

const url = new URL(process.env.E2B_API_URL)
const all = []

async function check(name, test) {
  try {
    await test()
  } catch (e) {
    console.log('not ok', name, e?.stack ?? e)
    await Promise.allSettled(all.map((s) => s.kill()))
    process.exit(1)
  }
  console.log('ok', name)
}

function equal(got, want, what = '') {
  const a = JSON.stringify(got), b = JSON.stringify(want)
  if (a !== b) throw new Error(`${what} is ${a?.slice(0, 400)}, want ${b?.slice(0, 400)}`)
}

function truth(value, what) {
  if (!value) throw new Error(what)
}

async function throws(kind, f, text = '') {
  let err
  try { await f() } catch (e) { err = e }
  truth(err instanceof kind && String(err.message).includes(text), `want ${kind.name} ${text}, got ${err?.stack ?? 'no error'}`)
  return err
}

async function until(what, f) {
  for (let i = 0; i < 300; i++) {
    if (await f()) return
    await sleep(100)
  }
  throw new Error('never: ' + what)
}

// ask sends one request to a host name of the daemon.
function ask(host, path, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const r = http.request({ host: url.hostname, port: url.port, path, method, headers: { Host: host, ...headers } }, (resp) => {
      const parts = []
      resp.on('data', (p) => parts.push(p)).on('end', () => resolve({ status: resp.statusCode, headers: resp.headers, text: Buffer.concat(parts).toString() }))
    })
    r.on('error', reject).on('upgrade', (resp, socket) => resolve({ status: resp.statusCode, socket }))
    r.end(body)
  })
}

async function create(opts, kind = Sandbox) {
  const s = await kind.create(opts)
  all.push(s)
  return s
}

let s
await check('create', async () => {
  s = await create({ metadata: { owner: 'me & you', 'ü/=%': 'ä b%20' }, envs: { FROM: 'create' }, timeoutMs: 60_000 })
  truth(await s.isRunning(), 'it does not run')
})
await check('getInfo', async () => {
  const info = await s.getInfo()
  equal([info.sandboxId, info.metadata['ü/=%'], info.state, info.templateId, info.lifecycle], [s.sandboxId, 'ä b%20', 'running', 'base', { onTimeout: 'kill', autoResume: false }])
  truth(info.endAt - Date.now() > 50_000 && info.endAt - Date.now() < 61_000, 'the end is wrong')
  equal((await Sandbox.getInfo(s.sandboxId)).sandboxId, s.sandboxId)
  equal((await Sandbox.getFullInfo(s.sandboxId)).sandboxId, s.sandboxId)
})
await check('setTimeout', async () => {
  await s.setTimeout(600_000)
  truth((await s.getInfo()).endAt - Date.now() > 500_000, 'not longer')
  await Sandbox.setTimeout(s.sandboxId, 300_000)
  truth((await s.getInfo()).endAt - Date.now() < 301_000, 'not shorter')
  await throws(SandboxError, () => s.setTimeout(1e12), '400')
})
await check('connect', async () => {
  const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 10_000 })
  truth((await again.getInfo()).endAt - Date.now() > 200_000, 'connect has shortened the time')
  equal((await again.commands.run('echo $FROM')).stdout, 'create\n')
  equal((await again.connect()).sandboxId, s.sandboxId)
  await throws(SandboxNotFoundError, () => Sandbox.connect('iaaaaaaaaaaaaaaaaaaaaaaaaaa'))
  await throws(SandboxNotFoundError, () => Sandbox.connect('other'))
})
await check('the API key', () => throws(AuthenticationError, () => Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) })))
await check('list', async () => {
  const more = [await create({ metadata: { many: 'x' }, allowInternetAccess: false }), await create({ metadata: { many: 'x' } }), await create({ metadata: { many: 'y' } })]
  equal((await more[0].getInfo()).allowInternetAccess, false)
  const page = Sandbox.list({ query: { metadata: { many: 'x' } }, limit: 1 })
  const seen = []
  while (page.hasNext) seen.push(...(await page.nextItems()).map((i) => i.sandboxId))
  equal(seen, [more[1].sandboxId, more[0].sandboxId])
  equal((await Sandbox.list({ query: { metadata: { owner: 'me & you', 'ü/=%': 'ä b%20' } } }).nextItems()).map((i) => i.sandboxId), [s.sandboxId])
  equal(await Sandbox.list({ query: { state: ['paused'] } }).nextItems(), [])
  for (const m of more) equal(await m.kill(), true)
  equal(await more[0].kill(), false)
  equal(await more[0].isRunning(), false)
})
await check('getMetrics', async () => {
  truth(Array.isArray(await Sandbox.getMetrics(s.sandboxId)), 'no list')
  if (!process.env.E2B_TEST_GROUPS) return equal(await s.getMetrics(), []) // nothing counts
  await until('there is a measurement', async () => (await s.getMetrics()).length > 0)
  const [m] = await s.getMetrics()
  truth(m.memUsed > 1 << 16 && m.memUsed <= m.memTotal && m.cpuCount > 0 && m.diskTotal > 0 && Date.now() - m.timestamp < 60_000, JSON.stringify(m))
  await s.commands.run('head -c 20000000 /dev/zero > big; timeout 2 sh -c "while :; do :; done"; true')
  const now = await (await fetch(new URL('/metrics', url), { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': s.envdAccessToken } })).json()
  truth(now.disk_used > 20_000_000 && now.disk_used < 60_000_000 && now.mem_used > now.disk_used && now.cpu_used_pct > 1, JSON.stringify(now))
  equal(await s.getMetrics({ start: new Date(0), end: new Date(1000) }), [])
  await s.files.remove('big')
})
await check('pause', async () => {
  await throws(SandboxError, () => s.pause(), 'keepMemory')
  const p = await create()
  await p.files.write('kept', 'kept')
  equal(await p.pause({ keepMemory: false }), true)
  equal((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).map((i) => i.sandboxId), [p.sandboxId])
  equal(await p.isRunning(), false)
  const again = await Sandbox.connect(p.sandboxId)
  equal(await again.files.read('kept'), 'kept')
  for (const pause of [() => again.betaPause({ keepMemory: false }), () => Sandbox.pause(p.sandboxId, { keepMemory: false }), () => Sandbox.betaPause(p.sandboxId, { keepMemory: false })]) {
    equal([await pause(), await pause()], [true, false])
    await Sandbox.connect(p.sandboxId)
  }
  equal(await again.kill(), true)
})
await check('createSnapshot, listSnapshots, deleteSnapshot, fork', async () => {
  if (!process.env.E2B_TEST_GROUPS) return throws(SandboxError, () => s.createSnapshot(), '501')
  const p = await create()
  await p.files.write('kept', 'one')
  const snapshot = await p.createSnapshot({ name: 'mine' })
  equal(snapshot.names, ['mine:default'])
  await p.files.write('kept', 'two')
  const copies = await p.fork({ count: 2 })
  all.push(...copies)
  equal(await Promise.all(copies.map((f) => f.files.read('kept'))), ['two', 'two'])
  const sleeper = await p.commands.run('sleep 1000', { background: true })
  await throws(SandboxError, () => p.createSnapshot(), '501') // native has no memory of programs
  await sleeper.kill()
  let more
  await until('the command has ended', async () => { try { more = await Sandbox.fork(p.sandboxId); return true } catch { return false } })
  equal(await more[0].files.read('kept'), 'two')
  await more[0].kill()
  const second = await Sandbox.createSnapshot(p.sandboxId)
  equal((await p.listSnapshots().nextItems()).map((i) => i.snapshotId), [second.snapshotId, snapshot.snapshotId])
  equal(await Sandbox.deleteSnapshot(second.snapshotId), true)
  equal((await Sandbox.listSnapshots({ sandboxId: p.sandboxId }).nextItems()).map((i) => i.snapshotId), [snapshot.snapshotId])
  await p.kill()
  const made = [await Sandbox.create(snapshot.snapshotId), await Sandbox.create('mine', { metadata: { from: 'mine' } })]
  all.push(...made)
  for (const m of made) equal(await m.files.read('kept'), 'one')
  equal((await made[1].getInfo()).metadata, { from: 'mine' })
  equal([await Sandbox.deleteSnapshot(snapshot.snapshotId), await Sandbox.deleteSnapshot(snapshot.snapshotId)], [true, false])
  await throws(SandboxError, () => Sandbox.create(snapshot.snapshotId), '404')
  for (const m of [...made, ...copies]) equal(await m.kill(), true)
})
await check('onTimeout: pause', async () => {
  await throws(SandboxError, () => Sandbox.create({ lifecycle: { onTimeout: 'pause' } }), '501')
  if (!process.env.E2B_TEST_GROUPS) return
  const p = await create({ timeoutMs: 0, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  await until('it is paused', async () => (await p.getInfo()).state === 'paused')
  equal((await p.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
  await Sandbox.connect(p.sandboxId)
  equal((await p.commands.run('echo back')).stdout, 'back\n')
  await p.kill()
})

await check('commands.run', async () => {
  const out = [], err = []
  const r = await s.commands.run('echo out; echo err >&2; pwd; echo $A $HOME $E2B_SANDBOX', { envs: { A: 'a' }, onStdout: (d) => out.push(d), onStderr: (d) => err.push(d) })
  equal([r.exitCode, r.stdout, r.stderr, r.error], [0, 'out\n/home/user\na /home/user true\n', 'err\n', undefined])
  equal([out.join(''), err.join('')], [r.stdout, r.stderr])
  equal((await s.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  equal((await s.commands.run('id -u', { user: 'root' })).stdout, (await s.commands.run('id -u', { user: 'user' })).stdout)
})
await check('commands.run: errors', async () => {
  const e = await throws(CommandExitError, () => s.commands.run('echo no >&2; exit 3'))
  equal([e.exitCode, e.stderr, e.error], [3, 'no\n', 'exit status 3'])
  await throws(InvalidArgumentError, () => s.commands.run('true', { cwd: '/nowhere' }), "cwd '/nowhere' does not exist")
  await throws(AuthenticationError, () => s.commands.run('true', { user: 'nobody' }), "invalid username: 'nobody'")
  await throws(TimeoutError, () => s.commands.run('sleep 60', { timeoutMs: 500 }))
  await until('the command is killed', async () => (await s.commands.list()).length === 0)
})
await check('commands.run: much output', async () => {
  const r = await s.commands.run('head -c 3000000 /dev/zero | tr "\\0" ü')
  truth(r.stdout.length >= 3_000_000, `it has ${r.stdout.length} characters`)
})
await check('commands.run: background, stdin, list, connect, kill', async () => {
  const c = await s.commands.run('while read line; do echo got $line; done; echo end', { background: true, stdin: true })
  const found = (await s.commands.list()).find((p) => p.pid === c.pid)
  equal([found.cmd, found.args[2]], ['/bin/bash', 'while read line; do echo got $line; done; echo end'])
  const second = await s.commands.connect(c.pid)
  await s.commands.sendStdin(c.pid, 'one\n')
  await c.sendStdin('two\n')
  await until('both followers have the output', () => c.stdout === 'got one\ngot two\n' && second.stdout === c.stdout)
  await second.disconnect()
  await s.commands.closeStdin(c.pid)
  equal((await c.wait()).stdout, 'got one\ngot two\nend\n')
  const cat = await s.commands.run('cat', { background: true, stdin: true })
  await cat.closeStdin()
  equal((await cat.wait()).exitCode, 0)
  equal(await s.commands.kill(c.pid), false)
  const sleeper = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  await sleeper.disconnect()
  truth((await s.commands.list()).some((p) => p.pid === sleeper.pid), 'a command has not outlived its stream')
  const follow = await s.commands.connect(sleeper.pid, { timeoutMs: 0 })
  equal(await s.commands.kill(sleeper.pid), true)
  const e = await throws(CommandExitError, () => follow.wait())
  equal([e.exitCode, e.error], [-1, 'signal: killed'])
  const late = await s.commands.connect(sleeper.pid)
  await throws(CommandExitError, () => late.wait())
})
await check('pty', async () => {
  let text = ''
  const decode = new TextDecoder()
  const t = await s.pty.create({ cols: 70, rows: 20, onData: (d) => { text += decode.decode(d, { stream: true }) }, timeoutMs: 0 })
  const say = (line) => s.pty.sendInput(t.pid, new TextEncoder().encode(line))
  await say('stty size\n')
  await until('the size is there', () => text.includes('20 70'))
  await s.pty.resize(t.pid, { cols: 90, rows: 30 })
  await until('the new size is there', async () => { await say('stty size\n'); await sleep(200); return text.includes('30 90') })
  let other = ''
  const second = await s.pty.connect(t.pid, { onData: (d) => { other += new TextDecoder().decode(d) }, timeoutMs: 0 })
  await say('echo $TERM-$((6*7))\n')
  await until('both have the output', () => text.includes('xterm-256color-42') && other.includes('xterm-256color-42'))
  await second.disconnect()
  await say('exit 5\n')
  equal((await throws(CommandExitError, () => t.wait())).exitCode, 5)
  const killed = await s.pty.create({ cols: 70, rows: 20, onData: () => {} })
  equal(await s.pty.kill(killed.pid), true)
  await throws(CommandExitError, () => killed.wait())
})

await check('files.write, read', async () => {
  const w = await s.files.write('dir/sub/a.txt', 'hällo')
  equal([w.name, w.path, w.type], ['a.txt', '/home/user/dir/sub/a.txt', 'file'])
  equal(await s.files.read('/home/user/dir/sub/a.txt'), 'hällo')
  equal(await s.files.read('~/dir/sub/a.txt'), 'hällo')
  const bytes = new Uint8Array(1 << 20).map((_, i) => i * 7)
  await s.files.write('bytes', bytes.buffer)
  equal(Buffer.compare(Buffer.from(await s.files.read('bytes', { format: 'bytes' })), Buffer.from(bytes)), 0)
  equal((await (await s.files.read('bytes', { format: 'blob' })).arrayBuffer()).byteLength, bytes.length)
  let n = 0
  for await (const p of await s.files.read('bytes', { format: 'stream' })) n += p.length
  equal(n, bytes.length)
  await s.files.write('zipped', 'z'.repeat(100_000), { gzip: true })
  equal(await s.files.read('zipped', { gzip: true }), 'z'.repeat(100_000))
  await s.files.write('octets', 'o', { useOctetStream: true })
  equal(await s.files.read('octets'), 'o')
  await s.files.write('empty', '')
  equal(await s.files.read('empty'), '')
  await throws(FileNotFoundError, () => s.files.read('nothing'))
  await throws(InvalidArgumentError, () => s.files.read('dir'))
})
await check('files.writeFiles', async () => {
  const got = await s.files.writeFiles([{ path: 'many/1', data: 'one' }, { path: '/home/user/many/2', data: 'two' }])
  equal(got.map((f) => f.path), ['/home/user/many/1', '/home/user/many/2'])
  equal([await s.files.read('many/1'), await s.files.read('many/2')], ['one', 'two'])
  await s.files.write([{ path: 'many/3', data: 'three' }])
  equal((await s.files.list('many')).map((f) => f.name), ['1', '2', '3'])
})
await check('files.list, makeDir, rename, remove, exists, getInfo', async () => {
  equal([await s.files.makeDir('made/deep'), await s.files.makeDir('made/deep')], [true, false])
  await s.files.write('made/file', 'x')
  await throws(InvalidArgumentError, () => s.files.makeDir('made/file'))
  await s.commands.run('ln -s deep made/link; ln -s nowhere made/dangling; chmod 640 made/file')
  equal((await s.files.list('made')).map((f) => [f.name, f.type, f.symlinkTarget]), [['deep', 'dir', undefined], ['file', 'file', undefined], ['link', 'dir', '/home/user/made/deep']])
  await s.files.write('made/deep/x/y', '')
  equal((await s.files.list('made', { depth: 3 })).map((f) => f.path.slice('/home/user/made/'.length)).sort(), ['deep', 'deep/x', 'deep/x/y', 'file', 'link'])
  const i = await s.files.getInfo('made/file')
  equal([i.name, i.type, i.path, i.size, i.mode, i.permissions, i.owner, i.group], ['file', 'file', '/home/user/made/file', 1, 0o640, '-rw-r-----', 'user', 'user'])
  equal((await s.files.rename('made/file', 'made/new/name')).path, '/home/user/made/new/name')
  equal([await s.files.exists('made/file'), await s.files.exists('made/new/name')], [false, true])
  await throws(FileNotFoundError, () => s.files.rename('made/file', 'made/other'))
  await throws(FileNotFoundError, () => s.files.getInfo('made/file'))
  await throws(FileNotFoundError, () => s.files.list('nowhere'))
  await throws(InvalidArgumentError, () => s.files.list('made/new/name'))
  await s.files.remove('made')
  await s.files.remove('made')
  equal(await s.files.exists('made'), false)
})
await check('files.watchDir', async () => {
  await s.files.makeDir('watched/below')
  const seen = []
  const w = await s.files.watchDir('watched', (e) => seen.push(e), { recursive: true, includeEntry: true, timeoutMs: 0 })
  await s.files.write('watched/below/f', 'x')
  await s.commands.run('echo y >> watched/below/f; mv watched/below/f watched/g; rm watched/g')
  const has = (type, name) => () => seen.some((e) => e.type === type && e.name === name)
  await until('created', has(FilesystemEventType.CREATE, 'below/f'))
  await until('written', has(FilesystemEventType.WRITE, 'below/f'))
  await until('renamed', has(FilesystemEventType.RENAME, 'below/f'))
  await until('removed', has(FilesystemEventType.REMOVE, 'g'))
  truth(!seen.some((e) => e.name.includes('.sandbar')), 'a temporary file is visible')
  await w.stop()
  await throws(FileNotFoundError, () => s.files.watchDir('nowhere', () => {}))
})
await check('uploadUrl, downloadUrl', async () => {
  for (const opts of [{}, { useSignatureExpiration: 60 }, { user: 'root' }]) {
    const form = new FormData()
    form.append('file', new Blob(['signed']), 'any')
    const up = await fetch(await s.uploadUrl('signed.txt', opts), { method: 'POST', body: form })
    equal(up.status, 200, await up.text())
    const down = await fetch(await s.downloadUrl('signed.txt', opts))
    equal([down.status, await down.text()], [200, 'signed'])
  }
  const range = await fetch(await s.downloadUrl('signed.txt'), { headers: { Range: 'bytes=1-3' } })
  equal([range.status, await range.text()], [206, 'ign'])
  const forged = new URL(await s.downloadUrl('signed.txt'))
  forged.searchParams.set('path', '/etc/passwd')
  equal((await fetch(forged)).status, 401)
  const swapped = await s.downloadUrl('signed.txt')
  equal((await fetch(swapped, { method: 'POST', body: new FormData() })).status, 401)
  const expired = await s.downloadUrl('signed.txt', { useSignatureExpiration: -60 })
  const answer = await fetch(expired)
  equal([answer.status, (await answer.json()).message], [401, 'signature is already expired'])
})
await check('getHost', async () => {
  await s.files.write('web/index.html', 'a page')
  const server = await s.commands.run('python3 -m http.server 8000', { background: true, cwd: '/home/user/web', timeoutMs: 0 })
  const host = s.getHost(8000)
  equal(host, `8000-${s.sandboxId}.localhost:${url.port}`)
  await until('the page is there', async () => (await ask(host, '/')).text === 'a page')
  const byHeaders = await fetch(url, { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '8000' } })
  equal([byHeaders.status, await byHeaders.text()], [200, 'a page'])
  const closed = await ask(s.getHost(8001), '/')
  equal([closed.status, JSON.parse(closed.text)], [502, { sandboxId: s.sandboxId, message: 'The sandbox is running but port is not open', port: 8001, code: 502 }])
  await server.kill()
  await s.files.write('echo.py', `
import socket
l = socket.create_server(('127.0.0.1', 8002))
while True:
    c, _ = l.accept()
    while b'\\r\\n\\r\\n' not in c.recv(65536): pass
    c.sendall(b'HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n')
    while d := c.recv(4096): c.sendall(d)
`)
  const echo = await s.commands.run('python3 echo.py', { background: true, timeoutMs: 0 })
  let up
  await until('the echo is there', async () => { up = await ask(s.getHost(8002), '/', { headers: { Connection: 'Upgrade', Upgrade: 'echo' } }); return up.status === 101 })
  const back = new Promise((resolve) => up.socket.once('data', (d) => resolve(d.toString())))
  up.socket.write('ping')
  equal(await back, 'ping')
  up.socket.destroy()
  await echo.kill()
})
await check('private ports', async () => {
  const p = await create({ network: { allowPublicTraffic: false } })
  truth(p.trafficAccessToken, 'there is no token')
  equal((await ask(p.getHost(80), '/')).status, 403)
  equal((await ask(p.getHost(80), '/', { headers: { 'E2b-Traffic-Access-Token': p.trafficAccessToken } })).status, 502)
  equal((await p.commands.run('echo in')).stdout, 'in\n')
  await p.kill()
})
await check('what is not served is refused', async () => {
  for (const opts of [{ network: { allowOut: ['example.com'] } }, { volumeMounts: { '/v': 'v' } }]) {
    await throws(SandboxError, () => Sandbox.create(opts), '501')
  }
  await throws(SandboxError, () => Sandbox.create('no-such-template'), '404')
  await throws(SandboxError, () => s.files.write('x', 'y', { metadata: { a: 'b' } }))
})
await check('updateNetwork, allowOut, denyOut', async () => {
  const off = await create({ allowInternetAccess: false })
  await off.updateNetwork({ allowInternetAccess: false })
  await Sandbox.updateNetwork(off.sandboxId, { denyOut: ['0.0.0.0/0'] })
  await throws(SandboxError, () => off.updateNetwork({ allowInternetAccess: true }), '501')
  await throws(SandboxError, () => off.updateNetwork({ denyOut: ['example.com'] }), '501')
  await off.kill()
  const [host, port] = (process.env.E2B_TEST_WORLD ?? '').split(' ')
  if (!host) return // this user cannot give sandboxes a network
  const n = await create({ network: { denyOut: ['0.0.0.0/0'], allowOut: [host] } })
  const reaches = async (sandbox = n) => (await sandbox.commands.run(`curl -s -m 60 http://${host}:${port}/ || echo refused`)).stdout.trim()
  equal(await reaches(), 'the world')
  equal([(await n.getInfo()).allowInternetAccess, (await n.getInfo()).network], [false, { allowOut: [host + '/32'], denyOut: ['0.0.0.0/0'], allowPublicTraffic: true }])
  await n.updateNetwork({ denyOut: [host] })
  equal([await reaches(), (await n.getInfo()).allowInternetAccess], ['refused', true])
  await n.updateNetwork({})
  equal(await reaches(), 'the world')
  await Sandbox.updateNetwork(n.sandboxId, { allowInternetAccess: false })
  equal([await reaches(), (await n.getInfo()).allowInternetAccess], ['refused', false])
  if (process.env.E2B_TEST_GROUPS) { // copies and the paused sandbox keep it
    const [copy] = await n.fork()
    equal(await reaches(copy), 'refused')
    await copy.kill()
    await n.pause({ keepMemory: false })
    equal(await reaches(await Sandbox.connect(n.sandboxId)), 'refused')
  }
  await n.kill()
})
await check('logs', async () => {
  const l = await create()
  await l.commands.run('echo to the log; echo bad >&2; exit 3').catch(() => {})
  const ask = async (path) => (await fetch(new URL(path, url), { headers: { 'X-API-Key': process.env.E2B_API_KEY } })).json()
  const { logs } = await ask(`/v2/sandboxes/${l.sandboxId}/logs`)
  const seen = logs.map((e) => e.fields.event + ': ' + e.message.trim())
  for (const want of ['start: echo to the log; echo bad >&2; exit 3', 'stdout: to the log', 'stderr: bad', 'end: exit status 3']) truth(seen.includes(want), `${want} is not in ${seen}`)
  equal((await ask(`/v2/sandboxes/${l.sandboxId}/logs?direction=backward&limit=1&level=error`)).logs.map((e) => e.message), ['exit status 3'])
  const old = await ask(`/sandboxes/${l.sandboxId}/logs?start=0`)
  equal([old.logs.length, JSON.parse(old.logs[0].line).logger, old.logEntries.length], [logs.length, 'process', logs.length])
  await l.kill()
})
await check('the timeout', async () => {
  const t = await create({ timeoutMs: 5000 })
  const c = await t.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  await throws(Error, () => c.wait())
  await until('it ends', async () => !(await t.isRunning()))
  await throws(SandboxNotFoundError, () => t.commands.run('true'))
})

let c
await check('runCode', async () => {
  c = await create({}, Interpreter)
  const stdout = [], results = []
  const r = await c.runCode('print("hällo 💡"); x = 20\nimport sys; print("err", file=sys.stderr)\nx + 1', { onStdout: (m) => stdout.push(m.line), onResult: (m) => results.push(m.text) })
  equal([r.text, r.logs.stdout.join(''), r.logs.stderr.join(''), r.executionCount, r.error], ['21', 'hällo 💡\n', 'err\n', 1, undefined])
  equal([stdout.join(''), results], ['hällo 💡\n', ['21']])
  equal((await c.runCode('"a" + str(x)')).text, 'a20')
  const e = (await c.runCode('1/0')).error
  truth(e.name === 'ZeroDivisionError' && e.traceback.includes('1/0'), JSON.stringify(e))
})
await check('runCode: formats', async () => {
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const r = await c.runCode(`
import base64
class Picture:
    def _repr_png_(self): return base64.b64decode("${png}")
    def _repr_html_(self): return "<b>ü</b>"
    def _repr_json_(self): return {"a": [1, 2]}
display(1)
Picture()`)
  equal([r.results.length, r.results[0].text, r.results[1].png, r.results[1].html, r.results[1].json, r.results[1].isMainResult], [2, '1', png, '<b>ü</b>', { a: [1, 2] }, true])
})
await check('runCode: languages and variables', async () => {
  equal((await c.runCode('let y = 6; await Promise.resolve(y * 7)', { language: 'js' })).text, '42')
  const [major, minor] = process.versions.node.split('.').map(Number)
  const typed = () => c.runCode('const z: number = 5; z + 1', { language: 'ts' })
  if (major > 22 || major === 22 && minor >= 13) equal((await typed()).text, '6')
  else await throws(Error, typed, '501') // this node cannot strip types
  equal((await c.runCode('cd /tmp; pwd; echo $V', { language: 'bash', envs: { V: 'v' } })).logs.stdout.join(''), '/tmp\nv\n')
  equal((await c.runCode('x')).text, '20')
  await throws(Error, () => c.runCode('1', { language: 'r' }))
})
await check('contexts', async () => {
  const k = await c.createCodeContext({ language: 'python', cwd: '/tmp' })
  equal([k.language, k.cwd], ['python', '/tmp'])
  equal((await c.runCode('import os; y = 1; os.getcwd()', { context: k })).text, '/tmp')
  truth((await c.listCodeContexts()).some((x) => x.id === k.id), 'it is not listed')
  await c.restartCodeContext(k)
  equal((await c.runCode('y', { context: k })).error.name, 'NameError')
  await c.removeCodeContext(k)
  await throws(Error, () => c.runCode('1', { context: k }))
})
await check('runCode: a time limit of the client', async () => {
  await throws(Error, () => c.runCode('import time\nwhile True: time.sleep(0.1)', { timeoutMs: 1000 }))
  equal((await c.runCode('x')).text, '20')
})
await check('git', async () => {
  const g = s.git
  await g.configureUser('A', 'a@example.com')
  await g.setConfig('init.defaultBranch', 'main')
  equal([await g.getConfig('user.name'), await g.getConfig('no.such')], ['A', undefined])
  await g.init('remote', { bare: true, initialBranch: 'main' })
  await g.init('repo', { initialBranch: 'main' })
  equal((await g.status('repo')).fileStatus, [])
  await s.files.write('repo/a', 'one')
  await g.add('repo')
  equal((await g.status('repo')).fileStatus.map((f) => f.name), ['a'])
  await g.commit('repo', 'first')
  await g.remoteAdd('repo', 'origin', '/home/user/remote')
  equal(await g.remoteGet('repo', 'origin'), '/home/user/remote')
  await g.push('repo', { remote: 'origin', branch: 'main' })
  await g.clone('/home/user/remote', { path: 'copy' })
  equal(await s.files.read('copy/a'), 'one')
  await g.createBranch('repo', 'other')
  equal((await g.branches('repo')).branches.sort(), ['main', 'other'])
  await g.checkoutBranch('repo', 'main')
  await g.deleteBranch('repo', 'other')
  await s.files.write('repo/a', 'two')
  await g.restore('repo', { paths: ['a'] })
  equal(await s.files.read('repo/a'), 'one')
  await s.files.write('repo/a', 'three')
  await g.commit('repo', 'second', { allowEmpty: true })
  await g.push('repo', { remote: 'origin', branch: 'main' })
  await g.pull('copy', { remote: 'origin', branch: 'main' })
  await g.reset('repo', { mode: 'hard' })
  equal((await g.status('repo')).isClean ?? (await g.status('repo')).fileStatus.length === 0, true)
  await g.dangerouslyAuthenticate({ username: 'u', password: 'p', host: 'git.example' })
  truth((await s.files.read('.git-credentials')).includes('u:p@git.example'), 'no credentials')
})
await check('kill', async () => {
  const waiting = s.commands.run('sleep 1000', { timeoutMs: 0 })
  waiting.catch(() => {})
  await until('it runs', async () => (await s.commands.list()).length > 0)
  equal([await s.kill(), await Sandbox.kill(s.sandboxId), await c.kill()], [true, false, true])
  await throws(Error, () => waiting)
  equal(await s.isRunning(), false)
  const gone = await ask(s.getHost(8000), '/')
  equal([gone.status, JSON.parse(gone.text).message], [502, 'The sandbox was not found'])
  equal(await Sandbox.list().nextItems(), [])
})
process.exit(0)
