// stdin: 
process.stdin.on('data', (d) => console.log('data', d.length)).on('end', () => console.log('end')).resume();
