// stdin: for the child\n
require('child_process').spawn('cat', { stdio: 'inherit' }).on('exit', (c) => console.log('exit', c));
