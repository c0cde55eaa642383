// Times calls of E2B's SDK, in turn against the daemon and against a handler that does nothing.
// Prints a line of JSON: ours and bare, in milliseconds; for files ours only, in bytes per second.
const { Sandbox } = require('@e2b/code-interpreter')
const [what, empty] = process.argv.slice(2)
const bare = { apiUrl: empty, sandboxUrl: empty }
const rest = () => new Promise((resolve) => setTimeout(resolve, 50))

async function inTurn(n, ours, theirs, between = async () => {}) {
  const times = { ours: [], bare: [] }
  for (let i = -5; i < n; i++) {
    for (const [name, call] of [['ours', ours], ['bare', theirs]]) {
      const began = performance.now()
      const result = await call()
      if (i >= 0) times[name].push(performance.now() - began)
      await between(result)
    }
  }
  console.log(JSON.stringify(times))
}

async function main() {
  if (what === 'create') return inTurn(40, () => Sandbox.create(), () => Sandbox.create(bare), async (s) => { await s.kill(); await rest() })
  const s = await Sandbox.create()
  if (what === 'run') {
    const b = await Sandbox.create(bare)
    await inTurn(100, () => s.commands.run('true'), () => b.commands.run('true'))
  } else if (what === 'cell') {
    const b = await Sandbox.create(bare)
    await inTurn(200, () => s.runCode('1+1'), () => b.runCode('1+1'))
  } else {
    const size = 256 << 20, content = new Blob([new Uint8Array(size)])
    const speeds = { write: 0, read: 0 }
    for (let i = 0; i < 3; i++) {
      let began = performance.now()
      await s.files.write('file', content, { useOctetStream: true })
      speeds.write = Math.max(speeds.write, size / (performance.now() - began) * 1000)
      began = performance.now()
      let n = 0
      for await (const piece of await s.files.read('file', { format: 'stream' })) n += piece.length
      if (n !== size) throw new Error(`read ${n} bytes`)
      speeds.read = Math.max(speeds.read, size / (performance.now() - began) * 1000)
      await s.files.remove('file')
    }
    console.log(JSON.stringify({ ours: [speeds.write, speeds.read] }))
  }
  await s.kill()
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1) })
