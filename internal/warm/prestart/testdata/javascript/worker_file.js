const { Worker, isMainThread, parentPort } = require('worker_threads');
if (isMainThread) {
  const w = new Worker(__filename, { env: { A: 'b' } });
  w.on('message', (m) => console.log(m)).on('exit', (c) => console.log('exit', c));
} else {
  parentPort.postMessage({ from: __filename, env: process.env, main: require.main === module });
}
