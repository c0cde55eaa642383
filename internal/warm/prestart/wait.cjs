'use strict';
// Loaded into node ahead of the program (--require), this waits for the program's
// arguments, environment and directory, and returns; node then goes on to run the
// main module as if it had just started. What it has touched it puts back.
{
  const fs = require('fs');
  const here = __filename;
  const threads = require('worker_threads');
  if (threads.isMainThread) {
    delete require.cache[here];
    const Module = require('module');
    for (const k of Object.keys(Module._pathCache)) {
      if (Module._pathCache[k] === here) delete Module._pathCache[k];
    }
    fs.unlinkSync(here);
    delete process.env.NODE_OPTIONS;
    // What nearly every program needs first, and node loads only then.
    const { Socket } = require('net');
    require('tty');
    // And compiles only for its first line of output. This one goes nowhere: its
    // handle is none, so that no stream is made, and no asynchronous id taken.
    const deaf = {
      getAsyncId: () => 0, readStart: () => 0, readStop: () => 0,
      writeUtf8String(req) { req.callback = undefined; return 0; },
      writeLatin1String(req) { req.callback = undefined; return 0; },
    };
    const stdout = new Socket({ handle: deaf, readable: false, writable: true });
    new console.Console({ stdout, colorMode: false }).log(''); // to ask for colours it would make process.stderr

    const read = (n) => {
      const b = Buffer.alloc(n);
      for (let at = 0; at < n;) {
        const got = fs.readSync(0, b, at, n - at, null);
        if (got === 0) process.reallyExit(1); // nobody needs us any more
        at += got;
      }
      return b.toString();
    };
    fs.writeSync(1, 'READY_MARK');
    const [stdin, dir, count, ...rest] = read(parseInt(read(8), 16)).split('\0');
    const n = Number(count);
    process.argv.splice(2, Infinity, ...rest.slice(0, n));
    for (const pair of rest.slice(n)) {
      const at = pair.indexOf('=');
      process.env[pair.slice(0, at)] = pair.slice(at + 1);
    }
    if (dir !== '') process.chdir(dir);
    if (stdin === 'none') {
      fs.closeSync(0);
      fs.openSync('/dev/null', 'r+'); // the lowest number that is free
    }

    // A worker would load this file again, which is gone. One that is given the
    // options of its own does not.
    threads.Worker = new Proxy(threads.Worker, {
      construct(target, args, as) {
        const o = args[1];
        if (o === undefined || o !== null && typeof o === 'object' && o.execArgv === undefined) {
          args = [args[0], { ...o, execArgv: process.execArgv }];
        }
        return Reflect.construct(target, args, as);
      },
    });
    Module.syncBuiltinESMExports();
  }
}
