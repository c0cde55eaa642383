import('node:worker_threads').then(({ Worker }) => {
  new Worker('console.log("in a worker", process.execArgv, process.env.NODE_OPTIONS)', { eval: true }).on('exit', (c) => console.log('exit', c));
});
