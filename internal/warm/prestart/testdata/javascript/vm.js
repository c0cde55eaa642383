const vm = require('vm');
console.log(vm.runInNewContext('a + 1', { a: 1 }), eval('1 + 1'), new Function('return 7')());
try { vm.runInThisContext('throw new Error("in vm")', 'named.js'); } catch (e) { console.log(e.stack.split('\n').slice(0, 3).join('\n')); }
