// env: GREETING=hello = there
// env: EMPTY=
console.log(Object.entries(process.env).sort());
console.log('NODE_OPTIONS' in process.env, process.env.GREETING, process.env.EMPTY, process.env.NOTHING);
