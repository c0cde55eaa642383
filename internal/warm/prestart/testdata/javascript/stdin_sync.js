// stdin: first line\nä ö ü\n
console.log(require('fs').readFileSync(0, 'utf8'));
