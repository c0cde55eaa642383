const { Worker } = require('worker_threads');
class Mine extends Worker { constructor() { super('throw new Error("in a worker")', { eval: true }); } }
new Mine().on('error', (e) => { console.log(e.message); process.exitCode = 5; });
