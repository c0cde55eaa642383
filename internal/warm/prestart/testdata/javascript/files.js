const fs = require('fs');
console.log(process.cwd(), fs.readdirSync('.'), fs.readdirSync('/tmp'), process.umask().toString(8));
console.log(fs.readFileSync(__filename, 'utf8').length);
fs.writeFileSync('x.txt', 'y'); console.log(fs.statSync('x.txt').mode.toString(8), fs.readFileSync('/home/user/x.txt', 'utf8'));
