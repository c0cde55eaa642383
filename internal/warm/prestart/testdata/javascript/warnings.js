process.emitWarning('careful'); process.emitWarning('old', 'DeprecationWarning', 'DEP0'); new Buffer(1);
const e = new (require('events'))(); for (let i = 0; i < 12; i++) e.on('x', () => {});
process.on('warning', (w) => console.log(w.name));
