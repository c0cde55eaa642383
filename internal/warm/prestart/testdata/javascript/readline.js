// stdin: alice\nbob\n
const rl = require('readline').createInterface({ input: process.stdin, output: process.stdout });
rl.question('name? ', (a) => { console.log('hi ' + a); rl.question('other? ', (b) => { console.log('hi ' + b); rl.close(); }); });
