// A caller that sends many requests at once and tells the answers by their ids.
// usage: caller.js REQUESTS COMMAND...
const { spawn } = require('child_process');
const assert = require('assert');
const [count, command, ...args] = process.argv.slice(2);
const box = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
require('readline').createInterface({ input: box.stdout }).on('line', (line) => {
  const r = JSON.parse(line);
  assert(waiting.has(r.id), line);
  waiting.get(r.id)(r);
  waiting.delete(r.id);
});
let last = 0;
const ask = (request) => new Promise((resolve) => {
  const id = `${++last}`;
  waiting.set(id, resolve);
  box.stdin.write(JSON.stringify({ ...request, id }) + '\n');
});
const kinds = [
  async (i) => assert.strictEqual((await ask({ type: 'shell', command: `printf '%s\\n' a${i} | tr a b` })).stdout, `b${i}\n`),
  async (i) => {
    const [w, r] = await Promise.all([ask({ type: 'write_file', path: `n${i % 5}`, content: `é${i}` }), ask({ type: 'read_file', path: `n${i % 5}` })]);
    assert(w.success && w.error === null);
    assert.strictEqual(r.content, `é${i}`); // requests that touch files keep their order
  },
  async (i) => assert.deepStrictEqual(await ask({ type: 'shell', command: `node -p ${i}+1; echo e >&2; exit 3` }).then((r) => [r.stdout, r.stderr, r.exit_code]), [`${i + 1}\n`, 'e\n', 3]),
  async () => assert((await ask({ type: 'status' })).ready),
  async (i) => assert.strictEqual((await ask({ type: 'nonsense' })).type, 'error'),
];
(async () => {
  let next = 0;
  const worker = async () => { while (next < count) { const i = next++; await kinds[i % kinds.length](i); } };
  await Promise.all(Array.from({ length: 8 }, worker));
  box.stdin.end();
  box.on('close', (code) => { assert.strictEqual(code, 0); console.log('answered', count); });
})();
process.on('unhandledRejection', (e) => { console.error(e); process.exit(1); });
