process.on('uncaughtException', (e, origin) => { console.error(e.message, origin); process.exit(9); });
setTimeout(() => { throw new Error('later'); }, 1);
