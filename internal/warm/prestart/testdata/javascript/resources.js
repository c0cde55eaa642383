// wants output
const ah = require('async_hooks');
console.log(ah.executionAsyncId(), ah.triggerAsyncId(), new ah.AsyncResource('X').asyncId());
console.log(process.getActiveResourcesInfo(), process._getActiveHandles().length, process._getActiveRequests().length);
console.log(Object.keys(require.cache), process.eventNames(), process.listenerCount('exit'));
const started = [];
const hook = ah.createHook({ init(id, type) { started.push(type + id); } }).enable();
setImmediate(() => { hook.disable(); console.log(started); });
