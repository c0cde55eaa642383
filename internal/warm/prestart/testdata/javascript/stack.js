console.log(new Error('x').stack);
Error.stackTraceLimit = 100;
console.log(new Error('y').stack);
function f() { const o = {}; Error.captureStackTrace(o); return o.stack; }
console.log(f());
