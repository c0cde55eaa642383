// Times calls of E2B's SDK, in turn against the daemon and against a handler that does nothing.
// Prints a line of JSON: ours and bare, in milliseconds; for files in bytes per second. For idle it
// prints the daemon's memory in bytes, with as many idle streams as COUNT.
const { readFileSync } = require('node:fs')
const { Sandbox } = require('@e2b/code-interpreter')
const [what, empty, pid, count] = process.argv.slice(2)
const bare = { apiUrl: empty, sandboxUrl: empty }
const rest = () => new Promise((resolve) => setTimeout(resolve, 50))

async function inTurn(n, ours, theirs, between = async () => {}, last = async () => []) {
  const times = { ours: [], bare: [] }
  for (let i = -5; i < n; i++) {
    for (const [name, call] of [['ours', ours], ['bare', theirs]]) {
      const began = performance.now()
      const result = await call()
      if (i >= 0) times[name].push(performance.now() - began)
      await between(result)
    }
  }
  times.ours.push(...await last())
  console.log(JSON.stringify(times))
}

async function main() {
  if (what === 'create') return inTurn(40, () => Sandbox.create(), () => Sandbox.create(bare), async (s) => { await s.kill(); await rest() })
  const s = await Sandbox.create()
  if (what === 'idle') {
    const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`))[1]) * 1024
    const before = memory()
    const c = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    const all = [c]
    while (all.length < Number(count)) all.push(...await Promise.all(Array.from({ length: 50 }, () => s.commands.connect(c.pid, { timeoutMs: 0 }))))
    await new Promise((resolve) => setTimeout(resolve, 2000))
    console.log(JSON.stringify({ ours: [memory()], bare: [before] }))
  } else if (what === 'run') {
    const b = await Sandbox.create(bare)
    const shells = 'began=$(date +%s%N); for i in $(seq 50); do /bin/bash -l -c true; done; echo $((($(date +%s%N) - began) / 50))'
    await inTurn(100, () => s.commands.run('true'), () => b.commands.run('true'), undefined, async () => [Number((await s.commands.run(shells)).stdout) / 1e6])
  } else if (what === 'cell') {
    const b = await Sandbox.create(bare)
    await inTurn(200, () => s.runCode('1+1'), () => b.runCode('1+1'))
  } else {
    const size = 256 << 20, content = new Blob([new Uint8Array(size)])
    const speeds = { ours: [0, 0], bare: [0, 0] }
    const b = await Sandbox.create(bare)
    for (let i = 0; i < 5; i++) {
      for (const [name, sandbox] of [['ours', s], ['bare', b]]) {
        const fastest = (way, began) => { speeds[name][way] = Math.max(speeds[name][way], size / (performance.now() - began) * 1000) }
        let began = performance.now()
        await sandbox.files.write('file', content, { useOctetStream: true })
        fastest(0, began)
        began = performance.now()
        let n = 0
        for await (const piece of await sandbox.files.read('file', { format: 'stream' })) n += piece.length
        if (n !== size) throw new Error(`read ${n} bytes`)
        fastest(1, began)
      }
      await s.files.remove('file')
    }
    console.log(JSON.stringify(speeds))
  }
  await s.kill()
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1) })
