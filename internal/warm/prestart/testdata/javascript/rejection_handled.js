process.on('unhandledRejection', (e, p) => { console.log('handled', e.message, p); process.exitCode = 4; });
Promise.reject(new Error('caught'));
