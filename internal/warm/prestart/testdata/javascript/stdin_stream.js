// stdin: one\ntwo\nthree\n
const s = require('fs').fstatSync(0);
console.log(s.isFIFO(), process.stdin.constructor.name);
process.stdin.setEncoding('utf8');
let all = '';
process.stdin.on('data', (d) => { all += d; }).on('end', () => console.log('end', JSON.stringify(all)));
