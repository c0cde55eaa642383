console.log(require('v8').getHeapStatistics().heap_size_limit, Buffer.poolSize, require('buffer').constants.MAX_LENGTH);
