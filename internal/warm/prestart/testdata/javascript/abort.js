process.kill(process.pid, 'SIGKILL'); setTimeout(() => {}, 10000);
