require('fs').writeFileSync('package.json', '{"type": "module"}');
require('fs').writeFileSync('late.cjs', 'console.log("cjs", __filename)');
require('./late.cjs'); import('./late.cjs').then((m) => console.log(Object.keys(m)));
