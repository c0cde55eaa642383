// Drives a server with the npm package @modelcontextprotocol/sdk: every tool, progress, cancellation
// and resources. Prints "ok NAME" for each check, and fails at the first that does not hold.
// Arguments: "http", or the command of a server on standard input and output.
import http from 'node:http'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const { Client } = require('@modelcontextprotocol/sdk/client/index.js')
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js')
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js')

const [command, ...args] = process.argv.slice(2)
const transport = command === 'http'
  ? new StreamableHTTPClientTransport(new URL(process.env.MCP_URL), { requestInit: { headers: { Authorization: 'Bearer ' + process.env.SANDBAR_TOKEN } } })
  : new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' })
const client = new Client({ name: 'test', version: '1' })
await client.connect(transport)
if (transport.pid) console.log('pid', transport.pid)

async function check(name, test) {
  try {
    await test()
  } catch (e) {
    console.log('not ok', name, e?.stack ?? e)
    await client.close()
    process.exit(1)
  }
  console.log('ok', name)
}

function equal(got, want, what = '') {
  const a = JSON.stringify(got), b = JSON.stringify(want)
  if (a !== b) throw new Error(`${what} is ${a?.slice(0, 400)}, want ${b?.slice(0, 400)}`)
}

// call calls a tool, which must succeed. The client checks the structured result with its schema.
async function call(name, args = {}, options) {
  const r = await client.callTool({ name, arguments: args }, undefined, options)
  if (r.isError) throw new Error(`${name}: ${r.content[0].text}`)
  return r
}

async function refused(name, args, code) {
  const r = await client.callTool({ name, arguments: args })
  equal([r.isError, r._meta?.['sandbar/error']?.code], [true, code], name)
}

// ask sends a request to a host name of the server.
const ask = (url) => new Promise((resolve, reject) => {
  const u = new URL(url)
  http.get({ host: '127.0.0.1', port: u.port, path: u.pathname + u.search, headers: { Host: u.host } }, (resp) => {
    resp.resume().on('end', () => resolve(resp.statusCode))
  }).on('error', reject)
})

await check('tools', async () => {
  const { tools } = await client.listTools()
  equal(tools.map((t) => t.name).sort().join(), 'create_sandbox,download,edit_file,expose_port,list_files,list_sandboxes,read_file,restore,run_code,run_command,search_files,snapshot,stop_sandbox,upload,write_file')
  equal(tools.find((t) => t.name === 'read_file').annotations.readOnlyHint, true)
})
await check('run_code', async () => {
  equal((await call('run_code', { code: 'x = 41' })).structuredContent.execution_count, 1)
  const r = await call('run_code', { code: 'x + 1' })
  equal([r.content[0].text, r.structuredContent.results[0].text], ['42\n', '42'])
})
await check('image', async () => {
  const r = await call('run_code', { code: 'class V:\n def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n"\nV()' })
  equal(r.content.find((c) => c.type === 'image'), { type: 'image', data: 'iVBORw0KGgo=', mimeType: 'image/png' })
})
await check('run_command', async () => {
  const r = await call('run_command', { command: 'echo out; echo err >&2; exit 3' })
  equal([r.structuredContent.stdout, r.structuredContent.stderr, r.structuredContent.exit_code], ['out\n', 'err\n', 3])
})
await check('progress', async () => {
  // The client drops what arrives together with the result.
  const first = new Promise((resolve) => {
    call('run_command', { command: 'echo one; until [ -e go ]; do sleep 0.05; done' }, { onprogress: (p) => resolve(p.message) })
  })
  equal(await first, 'one\n')
  await call('run_command', { command: 'touch go' })
})
await check('cancellation', async () => {
  const stop = new AbortController()
  const started = new Promise((resolve) => {
    call('run_command', { command: 'echo started; sleep 987654' }, { signal: stop.signal, onprogress: resolve }).catch(() => {})
  })
  await started
  stop.abort()
  await call('run_command', { command: 'while ps -eo args | grep -q "[s]leep 987654"; do sleep 0.05; done' })
})
let id
await check('files', async () => {
  id = (await call('write_file', { path: 'd/a.txt', content: 'one\ntwo\n' })).structuredContent.sandbox
  equal((await call('edit_file', { path: 'd/a.txt', old: 'two', new: 'zwei' })).structuredContent.replaced, 1)
  equal((await call('read_file', { path: 'd/a.txt' })).content[0].text, 'one\nzwei\n')
  equal((await call('list_files', { path: 'd' })).structuredContent.entries.map((e) => e.path), ['a.txt'])
  equal((await call('search_files', { pattern: 'z.ei' })).structuredContent.matches.map((m) => [m.path, m.line, m.text]), [['d/a.txt', 2, 'zwei']])
  await call('upload', { path: 'b.bin', data: Buffer.from([0, 255, 1]).toString('base64') })
  equal((await call('download', { path: 'b.bin' })).content[0].resource.blob, 'AP8B')
})
await check('resources', async () => {
  equal((await client.listResourceTemplates()).resourceTemplates.length, 1)
  equal((await client.readResource({ uri: `sandbar://${id}/home/user/d/a.txt` })).contents[0].text, 'one\nzwei\n')
})
await check('sandboxes', async () => {
  const other = (await call('create_sandbox', { name: 'other' })).structuredContent.sandbox
  equal((await call('list_sandboxes')).structuredContent.sandboxes.map((s) => s.sandbox), [id, other])
  await call('stop_sandbox', { sandbox: other })
  await refused('run_command', { command: 'true', sandbox: other }, 'not_found')
})
await check('expose_port', async () => {
  await call('run_command', { command: 'nohup python3 -m http.server 8000 >log 2>&1 &' })
  await call('run_code', { code: 'import socket, time\nfor _ in range(600):\n try:\n  socket.create_connection(("127.0.0.1", 8000)).close(); break\n except OSError: time.sleep(0.05)' })
  const { url } = (await call('expose_port', { port: 8000, public: true })).structuredContent
  equal(await ask(url), 200, url)
  const secret = (await call('expose_port', { port: 8000 })).structuredContent.url
  equal([await ask(secret), await ask(secret.split('?')[0])], [303, 401], secret)
})
await check('snapshots', async () => {
  if (process.env.SAVES !== 'true') return refused('snapshot', {}, 'unsupported')
  const { snapshot } = (await call('snapshot')).structuredContent
  const { sandbox } = (await call('restore', { snapshot })).structuredContent
  equal((await call('read_file', { path: 'd/a.txt', sandbox })).content[0].text, 'one\nzwei\n')
})
await check('errors', async () => {
  await refused('read_file', { path: 'none' }, 'not_found')
  await refused('read_file', { paht: 'none' }, 'invalid')
  await refused('restore', { snapshot: 'none' }, 'not_found')
})
if (transport.terminateSession) await transport.terminateSession()
await client.close()
