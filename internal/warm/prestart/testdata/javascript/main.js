console.log(require.main === module, module.id, module.filename, __filename, __dirname, module.loaded, module.children.length, module.parent);
console.log(process.mainModule === module, Object.keys(require.cache), module.paths, require.resolve.paths('x'));
