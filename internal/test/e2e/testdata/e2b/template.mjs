// Builds templates with the npm package e2b against a daemon. Prints "ok NAME" for each check, and
// fails at the first that does not hold.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
require('./surface.cjs')
const { Sandbox, Template, BuildError, waitForURL, waitForTimeout } = require('e2b')

const context = fs.mkdtempSync(path.join(os.tmpdir(), 'context-'))
process.on('exit', () => fs.rmSync(context, { recursive: true }))
fs.mkdirSync(context + '/src/deep', { recursive: true })
fs.writeFileSync(context + '/src/app.py', 'print("app")')
fs.writeFileSync(context + '/src/deep/.hidden', 'hidden')
fs.symlinkSync('app.py', context + '/src/link')
fs.writeFileSync(context + '/a b.txt', 'one')
fs.writeFileSync(context + '/b.txt', 'two')

async function check(name, test) {
  try {
    await test()
  } catch (e) {
    console.log('not ok', name, e?.stack ?? e)
    process.exit(1)
  }
  console.log('ok', name)
}

function equal(got, want) {
  const a = JSON.stringify(got), b = JSON.stringify(want)
  if (a !== b) throw new Error(`got ${a}, want ${b}`)
}

async function build(template, name, options = {}) {
  const logs = []
  const made = await Template.build(template, name, { onBuildLogs: (l) => logs.push(l.message), ...options })
  return { ...made, logs: logs.join('\n') }
}

async function fails(template, text, line) {
  let err
  try { await build(template, 'bad') } catch (e) { err = e }
  if (!(err instanceof BuildError) || !err.message.includes(text)) throw new Error(`want ${text}, got ${err?.stack ?? 'no error'}`)
  if (await Template.exists('bad')) throw new Error('a template that failed exists')
}

// E2B's own first example.
await check('quickstart', async () => {
  const template = Template().fromBaseImage().setEnvs({ HELLO: 'Hello, World!' }).setStartCmd('echo $HELLO', waitForTimeout(1_000))
  await build(template, 'template-tag-dev', { cpuCount: 1, memoryMB: 1024 })
  const s = await Sandbox.create('template-tag-dev')
  equal((await s.commands.run('echo $HELLO')).stdout, 'Hello, World!\n')
  equal((await s.getInfo()).memoryMB, 1024)
  await s.kill()
})

const steps = () => Template({ fileContextPath: context }).fromBaseImage()
  .setEnvs({ GREETING: 'hello' }).setWorkdir('/home/user/app')
  .copy('src', '.').copy('*.txt', 'texts/').copy('b.txt', '/home/user/renamed', { mode: 0o600 })
  .runCmd('echo $GREETING > made; echo problem >&2').runCmd('python3 app.py', { user: 'root' })
  .makeDir('dir').makeSymlink('made', 'made-link').rename('texts/b.txt', 'dir/c.txt').remove('deep/.hidden')

let first
await check('steps', async () => {
  first = await build(steps(), 'mine')
  for (const text of ["Uploaded 'src'", '[stderr]: problem', '[stdout]: app', 'builder 6/11']) if (!first.logs.includes(text)) throw new Error(`${text} is not in ${first.logs}`)
  const s = await Sandbox.create('mine', { envs: { MORE: 'more' } })
  equal((await s.commands.run('pwd; find . ! -type d | LC_ALL=C sort; echo $GREETING $MORE; stat -c %a ../renamed; readlink link')).stdout.split('\n'),
    ['/home/user/app', './app.py', './dir/c.txt', './link', './made', './made-link', './texts/a b.txt', 'hello more', '600', 'app.py', ''])
  equal(await s.files.read('made'), 'hello\n')
  await s.kill()
})
await check('the cache', async () => {
  const again = await build(steps().runCmd('date +%N > more'), 'mine:v2')
  equal([again.templateId, again.logs.match(/^CACHED/gm).length, again.logs.includes('[stdout]: app')], [first.templateId, 11, false])
  equal((await Template.getTags(first.templateId)).map((t) => t.tag).sort(), ['default', 'v2'])
  const forced = await build(steps(), 'mine', { skipCache: true })
  equal([forced.logs.includes('CACHED'), forced.logs.includes('[stdout]: app')], [false, true])
  fs.writeFileSync(context + '/src/app.py', 'print("changed")')
  const changed = await build(steps(), 'mine')
  equal([changed.logs.includes('CACHED'), changed.logs.includes('[stdout]: changed')], [false, true])
})
await check('a start command', async () => {
  await build(Template().fromTemplate('mine').setStartCmd('python3 -m http.server 8000', waitForURL('http://localhost:8000/made')), 'web')
  const s = await Sandbox.create('web')
  equal((await s.commands.list()).map((p) => p.args[2]), ['python3 -m http.server 8000'])
  equal((await s.commands.run('curl -s localhost:8000/made')).stdout, 'hello\n')
  await s.kill()
})
await check('a Dockerfile', async () => {
  await build(Template({ fileContextPath: context }).fromDockerfile('FROM e2bdev/base\nENV A=1\nWORKDIR /home/user/docker\nCOPY b.txt .\nRUN cat b.txt > c.txt\n'), 'docker')
  const s = await Sandbox.create('docker')
  equal((await s.commands.run('echo $A; cat c.txt')).stdout, '1\ntwo')
  await s.kill()
})
await check('tags', async () => {
  const found = async (name) => { const s = await Sandbox.create(name); const text = await s.files.read('made'); await s.kill(); return text }
  const build = (text, name) => Template.buildInBackground(Template().fromBaseImage().runCmd(`echo ${text} > made`), name)
  for (const v of ['v1', 'v2']) {
    const job = await build(v, 'tagged:' + v)
    while (['waiting', 'building'].includes((await Template.getBuildStatus(job)).status)) await new Promise((resolve) => setTimeout(resolve, 50))
    equal((await Template.getBuildStatus(job)).status, 'ready')
  }
  equal((await Template.assignTags('tagged:v1', ['production', 'default'])).tags, ['production', 'default'])
  equal([await found('tagged'), await found('tagged:production')], ['v1\n', 'v1\n'])
  await Template.assignTags('tagged:v2', 'production')
  equal([await found('tagged'), await found('tagged:production')], ['v1\n', 'v2\n'])
  const list = await (await fetch(process.env.E2B_API_URL + '/templates', { headers: { 'X-API-Key': process.env.E2B_API_KEY } })).json()
  equal(list.filter((t) => t.names.includes('tagged')).map((t) => [t.buildCount, t.buildStatus]), [[2, 'ready']])
  await Template.removeTags('tagged', ['production', 'default'])
  equal([await Template.aliasExists('tagged:production'), await Template.exists('tagged:v1')], [false, true])
  equal(await Sandbox.deleteSnapshot('tagged:v1'), true)
})
// What each method makes of a template; the instructions themselves are those of the other checks.
await check('the builder', async () => {
  const bases = [(t) => t.fromDebianImage(), (t) => t.fromUbuntuImage(), (t) => t.fromFedoraImage(), (t) => t.fromAlpineImage(), (t) => t.fromArchImage(), (t) => t.fromPythonImage(), (t) => t.fromNodeImage(), (t) => t.fromBunImage()]
  for (const base of bases) if (!/^FROM \S+/.test(Template.toDockerfile(base(Template())))) throw new Error('no base')
  const t = Template({ fileContextPath: context }).skipCache().fromBaseImage().copyItems([{ src: 'b.txt', dest: '.' }]).setUser('root')
    .pipInstall('six').npmInstall('left-pad').bunInstall('left-pad').aptInstall('jq').gitClone('https://git.example/a.git').setReadyCmd('true')
  equal(JSON.parse(await Template.toJSON(t, false)).steps.map((s) => s.type), ['COPY', 'USER', 'RUN', 'RUN', 'RUN', 'RUN', 'RUN'])
})
await check('failures', async () => {
  await fails(Template().fromBaseImage().runCmd('echo why >&2; exit 3'), 'exit status 3')
  await fails(Template().fromBaseImage().setUser('nobody'), "invalid username: 'nobody'")
  await fails(Template().fromImage('no-such-image:1'), 'sandbar images pull no-such-image:1')
  await fails(Template().fromImage('python:3', { username: 'a', password: 'b' }), '501')
})
await check('delete', async () => {
  equal([await Template.exists('mine'), await Template.exists('base'), await Template.exists('none')], [true, true, false])
  for (const name of ['mine', 'web', 'docker', 'template-tag-dev']) equal(await Sandbox.deleteSnapshot(name), true)
  equal(await Template.exists('mine'), false)
})
