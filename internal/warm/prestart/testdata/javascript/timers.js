setImmediate(() => { console.log('immediate'); setTimeout(() => console.log('timeout'), 1); });
process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('micro')); queueMicrotask(() => console.log('micro 2'));
console.log('sync');
