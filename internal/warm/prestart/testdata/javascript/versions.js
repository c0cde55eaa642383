console.log(process.versions, process.release.name, process.config.variables.napi_build_version, process.features);
console.log(require('os').userInfo(), require('os').homedir(), require('os').tmpdir(), process.getuid(), process.getgid());
