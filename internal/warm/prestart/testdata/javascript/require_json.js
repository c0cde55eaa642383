require('fs').writeFileSync('a.json', '{"a": 1}');
require('fs').writeFileSync('b.js', 'console.log(module.parent.filename, require.main === module, __filename); exports.b = 2;');
console.log(require('./a.json'), require('./b'), require('./a') === require('/home/user/a.json'));
console.log(Object.keys(require.cache), module.children.map((m) => m.id));
