console.log(require('inspector').url(), process.binding('natives') !== undefined, typeof gc);
