const fs = require('fs');
for (let i = 0; i < 100; i++) { fs.writeSync(1, 'o' + i + '\n'); fs.writeSync(2, 'e' + i + '\n'); }
