Error.stackTraceLimit = 100;
process.nextTick(() => console.log(new Error('tick').stack));
Promise.resolve().then(() => console.log(new Error('then').stack));
setImmediate(() => {
  console.log(new Error('immediate').stack);
  setTimeout(() => console.log(new Error('timer').stack), 1);
});
