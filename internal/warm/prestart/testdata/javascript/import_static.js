import fs from 'fs';
console.log('an ES module in a .js file', fs);
