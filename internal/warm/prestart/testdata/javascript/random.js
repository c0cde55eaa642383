const c = require('crypto');
console.log(Math.random() !== Math.random(), c.randomUUID().length, c.randomBytes(8).length, c.createHash('sha256').update('x').digest('hex'));
