const http = require('http');
const s = http.createServer((q, r) => r.end('served ' + q.url)).listen(0, '127.0.0.1', () => {
  http.get({ port: s.address().port, path: '/x' }, (r) => r.on('data', (d) => console.log(d.toString())).on('end', () => s.close()));
});
