console.log(Object.getOwnPropertyNames(process).sort().join(' '));
console.log(process.eventNames(), process.getMaxListeners(), process.debugPort, process.exitCode, process.connected, process.channel);
console.log(process._getActiveHandles().length, process._getActiveRequests().length, process.getActiveResourcesInfo());
