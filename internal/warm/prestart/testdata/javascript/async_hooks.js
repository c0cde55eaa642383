const { AsyncLocalStorage, executionAsyncId, triggerAsyncId } = require('async_hooks');
console.log(executionAsyncId(), triggerAsyncId());
new AsyncLocalStorage().run({ a: 1 }, () => setImmediate(() => console.log('in', executionAsyncId() > 1)));
