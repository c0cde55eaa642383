const fs = require('fs');
const s = fs.fstatSync(0);
console.log(s.isFIFO(), s.isCharacterDevice(), s.rdev, fs.readlinkSync('/proc/self/fd/0'), fs.readFileSync(0, 'utf8') === '');
console.log(process.stdin.constructor.name, process.stdin.isTTY);
process.stdin.on('data', (d) => console.log('data', d)).on('end', () => console.log('end')).on('close', () => console.log('close'));
