console.log(Object.getOwnPropertyNames(globalThis).sort().join(' '));
console.log(typeof fs, typeof here, typeof threads, typeof require, this === module.exports);
