const { Worker, isMainThread, threadId } = require('worker_threads');
console.log(isMainThread, threadId, Worker.name, Worker.length);
const seen = [];
const w = new Worker(`const { parentPort, workerData, isMainThread } = require('worker_threads');
  parentPort.postMessage([workerData * 2, isMainThread, process.argv, process.execArgv, Object.keys(require.cache), process.env.HOME])`, { eval: true, workerData: 21, argv: ['x'] });
w.on('message', (m) => seen.push(m)).on('error', (e) => seen.push(e.message)).on('exit', (c) => console.log(seen, c, w instanceof Worker));
