process.on('SIGUSR2', () => { console.log('usr2'); clearInterval(t); });
const t = setInterval(() => {}, 1000);
process.kill(process.pid, 'SIGUSR2');
