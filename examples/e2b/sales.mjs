import fs from 'node:fs'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
await sandbox.files.write('sales.csv', fs.readFileSync('sales.csv', 'utf8'))
await sandbox.runCode("import pandas; table = pandas.read_csv('sales.csv')")
const plot = await sandbox.runCode("table.plot.bar(x='month', y='sales');")
fs.writeFileSync('sales.png', plot.results[0].png, 'base64')
console.log('total:', (await sandbox.runCode('table.sales.sum().item()')).text) // the session has the table
await sandbox.runCode("open('index.html', 'w').write(table.to_html())")
await sandbox.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 })
console.log(`open http://${sandbox.getHost(8000)}/ and press Enter to end`)
process.stdin.once('data', () => sandbox.kill().then(() => process.exit()))
