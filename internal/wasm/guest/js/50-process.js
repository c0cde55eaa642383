// process, timers and the event loop, which the runner drives with tick, step
// and failed.

const performanceNow = () => host('now') / 1e6;
let directory = '/';

class Exit {} // unused: host('exit') does not return

const process = new (class process extends EventEmitter {})();
Object.assign(process, {
  version: 'v20.20.2', versions: { node: '20.20.2', v8: '0.0.0', quickjs: info.version, modules: '115' },
  arch: 'wasm32', platform: 'linux', release: { name: 'node' }, title: 'node', pid: 2, ppid: 1,
  execPath: '/usr/bin/node', execArgv: [], argv: ['/usr/bin/node'], argv0: 'node', exitCode: undefined, config: {}, features: {},
  env: {},
  cwd: () => directory,
  chdir(p) {
    const to = path.resolve(p), r = host('stat', to, 0);
    if (typeof r === 'number') throw systemError(-r, 'chdir', directory, p);
    if (!r.startsWith('3 ')) throw systemError(info.codes.ENOTDIR, 'chdir', directory, p);
    directory = to;
  },
  exit(code) {
    if (code !== undefined) process.exitCode = code;
    if (!exiting) { exiting = true; process.emit('exit', exitNumber()); }
    host('exit', exitNumber());
  },
  reallyExit(code) { host('exit', code & 255); },
  abort() { host('exit', 134); },
  kill(pid, signal) {
    if (pid !== process.pid) throw systemError(info.codes.ESRCH, 'kill');
    if (signal !== 0) host('exit', 128 + ({ SIGKILL: 9, SIGINT: 2, SIGHUP: 1 }[signal] ?? (typeof signal === 'number' ? signal : 15)));
    return true;
  },
  uptime: () => performanceNow() / 1000,
  hrtime: Object.assign((since) => {
    const now = host('now');
    let s = Math.floor(now / 1e9), n = now % 1e9;
    if (since) { s -= since[0]; n -= since[1]; if (n < 0) { s--; n += 1e9; } }
    return [s, n];
  }, { bigint: () => BigInt(host('now')) }),
  cpuUsage: () => ({ user: Math.round(host('cpu') / 1e3), system: 0 }),
  memoryUsage: Object.assign(() => ({ rss: host('memory'), heapTotal: host('memory'), heapUsed: host('memory'), external: 0, arrayBuffers: 0 }), { rss: () => host('memory') }),
  resourceUsage: () => ({ userCPUTime: Math.round(host('cpu') / 1e3), systemCPUTime: 0, maxRSS: host('memory') / 1024 }),
  nextTick(f, ...args) {
    if (typeof f !== 'function') throw argumentError('callback', 'of type function', f);
    ticks.push(() => f(...args));
  },
  emitWarning(warning, type = 'Warning') {
    const text = typeof warning === 'string' ? `${type}: ${warning}` : `${warning.name}: ${warning.message}`;
    writeAll(2, `(node:${process.pid}) ${text}\n`);
  },
  getuid: () => 1000, geteuid: () => 1000, getgid: () => 1000, getegid: () => 1000, umask: () => 0o022,
  binding() { throw new Error('there are no bindings in this sandbox'); },
  setUncaughtExceptionCaptureCallback() {}, hasUncaughtExceptionCaptureCallback: () => false,
});
Object.defineProperty(process, Symbol.toStringTag, { value: 'process', configurable: true });
let exiting = false;

// begin initializes the state of one program. Everything before it is the same
// for all programs and part of the snapshot.
function begin() {
  Object.assign(info, JSON.parse(host('info')));
  directory = info.cwd;
  process.env = new Proxy(info.env, {
    set(target, key, value) { target[key] = typeof value === 'symbol' ? value : `${value}`; return true; },
    defineProperty(target, key, d) { return Reflect.defineProperty(target, key, d); },
  });
  performance.timeOrigin = Date.now() - performanceNow();
  return main();
}

function exitNumber() {
  const c = process.exitCode;
  return c === undefined || c === null ? 0 : Number(c) & 255;
}

// writeAll writes text or bytes to a descriptor.
function writeAll(fd, data) {
  const r = host('write', fd, data);
  if (r < 0 && -r !== info.codes.EPIPE) throw systemError(-r, 'write');
  return r >= 0;
}

// ---- the event loop

const ticks = [];
const timers = new Map(); // by number, in the order of creation
let lastTimer = 0;
const immediates = [];
const pendingIO = [];

class Timeout {
  constructor(f, delay, args, repeat) {
    delay = Number(delay);
    if (!(delay >= 1 && delay <= 2147483647)) delay = 1;
    this._idleTimeout = Math.trunc(delay); this._onTimeout = f; this._repeat = repeat ? this._idleTimeout : null;
    hide(this, { id: ++lastTimer, args, live: true, kept: true, due: 0 });
    this.arm();
  }
  arm() { this.due = performanceNow() + this._idleTimeout; timers.delete(this.id); timers.set(this.id, this); }
  ref() { this.kept = true; return this; }
  unref() { this.kept = false; return this; }
  hasRef() { return this.kept; }
  refresh() { if (this.live) this.arm(); return this; }
  close() { clearTimeout(this); return this; }
  [Symbol.toPrimitive]() { return this.id; }
}
hide(Timeout.prototype, { arm: Timeout.prototype.arm });

class Immediate {
  constructor(f, args) { this._onImmediate = f; hide(this, { args, live: true, kept: true }); }
  ref() { this.kept = true; return this; }
  unref() { this.kept = false; return this; }
  hasRef() { return this.kept; }
}

function checkCallback(f) {
  if (typeof f !== 'function') throw argumentError('callback', 'of type function', f);
}
function setTimeout(f, delay, ...args) { checkCallback(f); return new Timeout(f, delay, args, false); }
function setInterval(f, delay, ...args) { checkCallback(f); return new Timeout(f, delay, args, true); }
function setImmediate(f, ...args) { checkCallback(f); const i = new Immediate(f, args); immediates.push(i); return i; }
function clearTimeout(t) {
  if (typeof t === 'number' || typeof t === 'string') t = timers.get(Number(t));
  if (t instanceof Timeout) { t.live = false; timers.delete(t.id); }
}
function clearImmediate(i) { if (i instanceof Immediate) i.live = false; }

const wait = (ms, value, options) => new Promise((resolve, reject) => {
  const signal = options && options.signal;
  if (signal && signal.aborted) return reject(signal.reason);
  const t = setTimeout(resolve, ms, value);
  if (signal) signal.addEventListener('abort', () => { clearTimeout(t); reject(nodeAbort(signal)); }, { once: true });
});
function nodeAbort(signal) {
  const e = nodeError(Error, 'ABORT_ERR', 'The operation was aborted');
  e.name = 'AbortError'; e.cause = signal.reason;
  return e;
}
const customPromisify = Symbol.for('nodejs.util.promisify.custom');
setTimeout[customPromisify] = wait;
setImmediate[customPromisify] = (value) => new Promise((resolve) => setImmediate(resolve, value));

// tick runs the functions that nextTick has queued and returns their number.
function tick() {
  let n = 0;
  while (ticks.length) { n++; ticks.shift()(); if (n % 64 === 0) break; }
  return n;
}

let phase = []; // immediates of the current round

// step runs one callback and returns -2. If none is due, it returns the time until
// the next one in milliseconds, or -1 if there is none.
function step() {
  const now = performanceNow() + 1; // a timer may fire up to 1 ms early
  if (phase.length === 0) {
    let next;
    for (const t of timers.values()) if (t.due <= now && (next === undefined || t.due < next.due)) next = t;
    if (next !== undefined) {
      if (next._repeat === null) { next.live = false; timers.delete(next.id); }
      else next.arm();
      next._onTimeout.apply(next, next.args);
      return -2;
    }
    if (pendingIO.length) { pendingIO.shift()(); return -2; }
    phase = immediates.splice(0);
  }
  while (phase.length) {
    const i = phase.shift();
    if (i.live) { i._onImmediate(...i.args); return -2; }
  }
  if (immediates.length) return 0;
  let first = Infinity, kept = false;
  for (const t of timers.values()) { first = Math.min(first, t.due); kept ||= t.kept; }
  if (kept) return Math.max(0, first - performanceNow());
  if (!exiting) {
    const before = timers.size;
    process.emit('beforeExit', exitNumber());
    if (ticks.length || immediates.length || pendingIO.length || timers.size > before) return 0;
    exiting = true;
    process.emit('exit', exitNumber());
  }
  return -1;
}

// failed handles an uncaught error. It returns whether the program
// continues.
function failed(error, origin) {
  if (process.listenerCount('uncaughtException') > 0 && !exiting) {
    process.emit('uncaughtException', error, origin);
    return 1;
  }
  let text;
  if (isError(error)) text = inspect(error);
  else if (origin === 'unhandledRejection') {
    text = `[UnhandledPromiseRejection: This error originated either by throwing inside of an async function without a catch block, or by rejecting a promise which was not handled with .catch(). The promise rejected with the reason "${typeof error === 'string' ? error : inspect(error)}".] {\n  code: 'ERR_UNHANDLED_REJECTION'\n}`;
  } else text = `Uncaught:\n${inspect(error)}`;
  writeAll(2, `Uncaught ${text}\n`.replace(/^Uncaught (?=Uncaught|\[)/, ''));
  process.exitCode = 1;
  if (!exiting) {
    exiting = true;
    try { process.emit('exit', 1); } catch (e) { writeAll(2, `${inspect(e)}\n`); }
  }
  return 0;
}

// rejected handles rejected promises without a handler.
function rejected(promise, reason) {
  if (process.listenerCount('unhandledRejection') > 0) {
    process.emit('unhandledRejection', reason, promise);
    return 1;
  }
  return failed(reason, 'unhandledRejection');
}
