console.log(require.toString(), Object.keys(require('worker_threads')).sort());
