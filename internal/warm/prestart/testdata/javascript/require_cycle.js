const fs = require('fs');
fs.writeFileSync('a.js', 'exports.a = 1; exports.b = require("./b").b; exports.done = true');
fs.writeFileSync('b.js', 'exports.b = require("./a").a + 1');
console.log(require('./a'));
