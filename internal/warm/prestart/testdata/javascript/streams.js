console.log(process.stdout.constructor.name, process.stdout.isTTY, process.stdout.fd, process.stdout.writableHighWaterMark, process.stderr.constructor.name);
console.log(process.stdout.write('text\n'), process.stdout._type, process.stdout.columns);
console.error('to stderr'); console.warn('warn %d %s %j', 1, 'two', { three: 3 });
