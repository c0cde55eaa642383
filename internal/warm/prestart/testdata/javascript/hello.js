console.log('hello world'); // wants output
