const Module = require('module');
console.log(Object.keys(Module._cache), Module._pathCache, Module.globalPaths, Object.keys(Module._extensions));
