// Makes the calls of quickstart.json and prints the results; see README.md.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const { registerWorker } = createRequire(import.meta.url)('iii-sdk')
const iii = registerWorker(process.env.III_URL)
let uuid = ''
for (const { trigger, payload } of JSON.parse(readFileSync('quickstart.json'))) {
  if (payload.sandbox_id) payload.sandbox_id = uuid
  const result = await iii.trigger({ function_id: trigger, payload, timeoutMs: 300_000 })
  uuid = result.sandbox_id ?? uuid
  console.log('RESULT ' + JSON.stringify(result))
}
process.exit(0)
