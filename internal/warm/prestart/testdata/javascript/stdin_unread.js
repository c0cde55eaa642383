// stdin: nobody reads this\n
console.log('done');
