const c = require('child_process');
console.log(c.execFileSync(process.execPath, ['-p', 'process.execArgv.length + " " + process.env.NODE_OPTIONS'], { encoding: 'utf8' }));
console.log(c.spawnSync('sh', ['-c', 'cat; echo $0 $GREETING; pwd'], { input: 'in', encoding: 'utf8', env: { GREETING: 'hi', PATH: process.env.PATH } }).stdout);
console.log(c.execSync('env', { encoding: 'utf8' }).split('\n').filter((l) => !l.startsWith('_=')).sort());
