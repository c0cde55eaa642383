process.on('exit', (c) => console.log('exit', c, process.exitCode));
process.on('beforeExit', (c) => console.log('before', c));
process.exitCode = 42;
