process.chdir('/tmp'); console.log(process.cwd(), require('path').resolve('x')); require('./nothing-here');
