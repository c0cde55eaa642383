const { Worker } = require('worker_threads');
const w = new Worker('process.stdout.write("text"); console.error("err")', { eval: true, stdout: true, stderr: true });
const seen = { out: '', err: '' };
w.stdout.on('data', (d) => { seen.out += d; }); w.stderr.on('data', (d) => { seen.err += d; });
w.on('exit', (c) => setImmediate(() => console.log(seen, c)));
