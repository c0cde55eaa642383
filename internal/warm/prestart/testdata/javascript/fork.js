if (process.argv[2] === 'child') {
  process.on('message', (m) => { process.send(m + 1); process.disconnect(); });
} else {
  const p = require('child_process').fork(__filename, ['child']);
  p.on('message', (m) => console.log(m)).on('exit', (c) => console.log('exit', c));
  p.send(41);
}
