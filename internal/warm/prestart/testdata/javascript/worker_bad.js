const { Worker } = require('worker_threads');
for (const f of [() => new Worker('./relative', {}), () => Worker('x'), () => new Worker(1), () => new Worker('/none', { execArgv: ['--none'] })]) {
  try { f().on('error', () => {}); console.log('made'); } catch (e) { console.log(e.name, e.code, e.message); }
}
