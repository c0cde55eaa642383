'use strict';
// Node loads this hook before the main module (--require). It reads the program's arguments,
// environment and directory from the standard input, and its text if the hook is to write the file,
// and returns; then node runs the main module. It undoes all changes that a program could observe.
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
    // Node loads these modules at the first use of a standard stream.
    const { Socket } = require('net');
    require('tty');
    // Node compiles the code for output at the first line. This line goes to a handle without a
    // stream, which takes no asynchronous id.
    const nullHandle = {
      getAsyncId: () => 0, readStart: () => 0, readStop: () => 0,
      writeUtf8String(req) { req.callback = undefined; return 0; },
      writeLatin1String(req) { req.callback = undefined; return 0; },
    };
    const stdout = new Socket({ handle: nullHandle, readable: false, writable: true });
    new console.Console({ stdout, colorMode: false }).log(''); // without colorMode it would open process.stderr

    const read = (n) => {
      const b = Buffer.alloc(n);
      for (let at = 0; at < n;) {
        const got = fs.readSync(0, b, at, n - at, null);
        if (got === 0) process.reallyExit(1); // the sandbox is not used
        at += got;
      }
      return b;
    };
    const message = () => read(parseInt(read(8), 16));
    fs.writeSync(1, 'READY_MARK');
    const [file, stdin, dir, count, ...rest] = message().toString().split('\0');
    if (file !== '') fs.writeFileSync(file, message(), { flag: 'wx', mode: 0o644 });
    const n = Number(count);
    process.argv.splice(2, Infinity, ...rest.slice(0, n));
    for (const pair of rest.slice(n)) {
      const at = pair.indexOf('=');
      process.env[pair.slice(0, at)] = pair.slice(at + 1);
    }
    if (dir !== '') process.chdir(dir);
    if (stdin === 'none') {
      fs.closeSync(0);
      fs.openSync('/dev/null', 'r+'); // gets the lowest free number, 0
    }

    // A worker inherits --require, but the file is deleted. With execArgv set it does not inherit it.
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
