// The module fs. The event loop runs asynchronous functions synchronously.

const O = { O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024, O_DIRECTORY: 65536, O_NOFOLLOW: 131072, O_SYNC: 1052672 };
const fsConstants = { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1, COPYFILE_EXCL: 1, S_IFMT: 0o170000, S_IFREG: 0o100000, S_IFDIR: 0o040000, S_IFLNK: 0o120000, S_IFCHR: 0o020000, ...O };
const openFlags = { r: 0, 'r+': 2, rs: 0, 'rs+': 2, w: 577, wx: 705, 'w+': 578, 'wx+': 706, a: 1089, ax: 1217, 'a+': 1090, 'ax+': 1218 };

function toPath(p, name = 'path') {
  if (p instanceof URL) {
    if (p.protocol !== 'file:') throw nodeError(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
    p = decodeURIComponent(p.pathname);
  }
  if (p instanceof Uint8Array) p = fromUtf8(p);
  if (typeof p !== 'string') throw argumentError(name, 'of type string or an instance of Buffer or URL', p);
  if (p.includes('\0')) throw nodeError(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument '${name}' must be a string, Uint8Array, or URL without null bytes. Received ${inspect(p)}`);
  return p;
}

// here makes a path absolute and keeps a slash at its end.
const here = (p) => (p.startsWith('/') ? p : `${directory}/${p}`);

// sys executes a system call on a path and throws its error.
function sys(name, p, ...args) {
  const text = toPath(p);
  if (text === '') throw systemError(info.codes.ENOENT, name, text);
  const r = host(args[0], here(text), ...args.slice(1));
  if (typeof r === 'number' && r < 0) throw systemError(-r, name, text);
  return r;
}

function sys2(name, op, from, to) {
  from = toPath(from, 'oldPath'); to = toPath(to, 'newPath');
  const r = host(op, op === 'symlink' ? from : here(from), here(to));
  if (r < 0) throw systemError(-r, name, from, to);
}

function onFd(name, r) {
  if (typeof r === 'number' && r < 0) throw systemError(-r, name);
  return r;
}

const parseMode = (mode, missing) => (mode === undefined || mode === null ? missing : typeof mode === 'string' ? parseInt(mode, 8) : mode);

class Stats {
  constructor(text, big) {
    const [type, mode, size, atime, mtime, ctime, nlink, ino] = text.split(' ');
    const kind = { 2: 0o020000, 3: 0o040000, 4: 0o100000, 7: 0o120000 }[type] ?? 0o010000;
    const n = big ? BigInt : Number, ms = (ns) => (big ? BigInt(ns) / 1000000n : Number(ns) / 1e6);
    this.dev = n(1); this.mode = n(kind | Number(mode)); this.nlink = n(nlink); this.uid = n(1000); this.gid = n(1000); this.rdev = n(0);
    this.blksize = n(4096); this.ino = n(ino); this.size = n(size); this.blocks = n(Math.ceil(Number(size) / 512));
    this.atimeMs = ms(atime); this.mtimeMs = ms(mtime); this.ctimeMs = ms(ctime); this.birthtimeMs = ms(ctime);
    if (big) { this.atimeNs = BigInt(atime); this.mtimeNs = BigInt(mtime); this.ctimeNs = BigInt(ctime); this.birthtimeNs = BigInt(ctime); }
    this.atime = new Date(Number(this.atimeMs)); this.mtime = new Date(Number(this.mtimeMs)); this.ctime = new Date(Number(this.ctimeMs)); this.birthtime = new Date(Number(this.ctimeMs));
  }
  #is(kind) { return (Number(this.mode) & 0o170000) === kind; }
  isFile() { return this.#is(0o100000); }
  isDirectory() { return this.#is(0o040000); }
  isSymbolicLink() { return this.#is(0o120000); }
  isCharacterDevice() { return this.#is(0o020000); }
  isBlockDevice() { return false; }
  isFIFO() { return this.#is(0o010000); }
  isSocket() { return false; }
}

class Dirent {
  #type;
  constructor(name, parent, type) { this.name = name; this.parentPath = parent; this.path = parent; this.#type = type; }
  isFile() { return this.#type === 4; }
  isDirectory() { return this.#type === 3; }
  isSymbolicLink() { return this.#type === 7; }
  isCharacterDevice() { return this.#type === 2; }
  isBlockDevice() { return false; }
  isFIFO() { return false; }
  isSocket() { return false; }
}

function options(value, defaults) {
  if (value === undefined || value === null || typeof value === 'function') return defaults;
  if (typeof value === 'string') return { ...defaults, encoding: value };
  return { ...defaults, ...value };
}

function inEncoding(bytes, encoding) {
  const b = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return encoding && encoding !== 'buffer' ? b.toString(encoding) : b;
}

function dataBytes(data, encoding) {
  if (typeof data === 'string') return encodeText(data, encoding);
  if (ArrayBuffer.isView(data)) return bytesOf(data);
  throw argumentError('data', 'of type string or an instance of Buffer, TypedArray, or DataView', data);
}

const fs = {
  constants: fsConstants, ...Object.fromEntries(['F_OK', 'R_OK', 'W_OK', 'X_OK'].map((k) => [k, fsConstants[k]])), Stats, Dirent,
  openSync(p, flags = 'r', mode) {
    const f = typeof flags === 'number' ? flags : openFlags[flags];
    if (f === undefined) throw nodeError(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'flags' is invalid. Received ${inspect(flags)}`);
    return sys('open', p, 'open', f, parseMode(mode, 0o666));
  },
  closeSync(fd) { onFd('close', host('close', fd)); },
  readSync(fd, buffer, offset = 0, length, position = null) {
    if (offset !== null && typeof offset === 'object') ({ offset = 0, length, position = null } = offset);
    length ??= buffer.byteLength - offset;
    const b = onFd('read', host('read', fd, Math.min(length, 262144), position === null || position === undefined || Number(position) < 0 ? -1 : Number(position)));
    bytesOf(buffer).set(b, offset);
    return b.length;
  },
  writeSync(fd, data, a, b, c) {
    let bytes, position = null;
    if (typeof data === 'string') { bytes = encodeText(data, typeof b === 'string' ? b : undefined); position = typeof a === 'number' ? a : null; }
    else {
      bytes = bytesOf(data);
      if (a !== null && typeof a === 'object') ({ offset: a, length: b, position: c } = a);
      const from = a ?? 0;
      bytes = bytes.subarray(from, b === undefined || b === null ? undefined : from + b);
      position = c ?? null;
    }
    return onFd('write', host('write', fd, bytes, position === null ? -1 : Number(position)));
  },
  readFileSync(p, o) {
    const { encoding, flag } = options(o, { flag: 'r' });
    const own = typeof p === 'number', fd = own ? p : fs.openSync(p, flag);
    try {
      if (!own && fs.fstatSync(fd).isDirectory()) throw systemError(info.codes.EISDIR, 'read');
      const parts = [];
      for (;;) {
        const b = onFd('read', host('read', fd, 262144, -1));
        if (b.length === 0) break;
        parts.push(b);
      }
      return inEncoding(parts.length === 1 ? parts[0] : Buffer.concat(parts), encoding);
    } finally { if (!own) fs.closeSync(fd); }
  },
  writeFileSync(p, data, o) {
    const { encoding, mode, flag } = options(o, { encoding: 'utf8', flag: 'w' });
    const bytes = dataBytes(data, encoding), own = typeof p === 'number', fd = own ? p : fs.openSync(p, flag, mode);
    try {
      for (let at = 0; at < bytes.length;) at += fs.writeSync(fd, bytes, at, Math.min(bytes.length - at, 262144));
    } finally { if (!own) fs.closeSync(fd); }
  },
  appendFileSync(p, data, o) { fs.writeFileSync(p, data, { flag: 'a', ...options(o, {}) }); },
  existsSync(p) { try { return typeof host('stat', here(toPath(p)), 0) === 'string' && toPath(p) !== ''; } catch { return false; } },
  accessSync(p) { sys('access', p, 'stat', 0); },
  statSync(p, o = {}) { return look('stat', p, 0, o); },
  lstatSync(p, o = {}) { return look('lstat', p, 1, o); },
  fstatSync(fd, o = {}) { return new Stats(onFd('fstat', host('fstat', fd)), o.bigint); },
  readdirSync(p, o) {
    const { withFileTypes, recursive } = options(o, {});
    const out = [];
    const walk = (dir, prefix) => {
      for (const [name, type] of JSON.parse(sys('scandir', dir, 'readdir'))) {
        out.push(withFileTypes ? new Dirent(name, dir, type) : prefix + name);
        if (recursive && type === 3) walk(`${dir}/${name}`, `${prefix}${name}/`);
      }
    };
    walk(toPath(p), '');
    return out;
  },
  mkdirSync(p, o) {
    const { recursive, mode } = typeof o === 'object' && o !== null ? o : { mode: o };
    const bits = parseMode(mode, 0o777);
    if (!recursive) { sys('mkdir', p, 'mkdir', bits); return undefined; }
    let first;
    const make = (dir) => {
      const r = host('mkdir', dir, bits);
      if (r >= 0) { first ??= dir; return; }
      if (-r === info.codes.ENOENT) { make(path.dirname(dir)); make(dir); return; }
      if (-r === info.codes.EEXIST && fs.statSync(dir).isDirectory()) return;
      throw systemError(-r, 'mkdir', toPath(p));
    };
    make(path.resolve(toPath(p)));
    // returns the first directory that was created
    return first;
  },
  mkdtempSync(prefix) {
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
    const p = prefix + Array.from(host('random', 6), (b) => letters[b % letters.length]).join('');
    fs.mkdirSync(p, 0o700);
    return p;
  },
  rmdirSync(p, o = {}) { if (o.recursive) fs.rmSync(p, { recursive: true }); else sys('rmdir', p, 'rmdir'); },
  unlinkSync(p) { sys('unlink', p, 'unlink'); },
  rmSync(p, o = {}) {
    let s;
    try { s = fs.lstatSync(p); } catch (e) { if (o.force && e.code === 'ENOENT') return; throw e; }
    if (!s.isDirectory()) return fs.unlinkSync(p);
    if (!o.recursive) throw nodeError(Error, 'ERR_FS_EISDIR', `Path is a directory: rm returned EISDIR (is a directory) ${toPath(p)}`);
    for (const name of fs.readdirSync(p)) fs.rmSync(path.join(toPath(p), name), { recursive: true });
    return fs.rmdirSync(p);
  },
  renameSync(a, b) { sys2('rename', 'rename', a, b); },
  linkSync(a, b) { sys2('link', 'link', a, b); },
  symlinkSync(a, b) { sys2('symlink', 'symlink', a, b); },
  readlinkSync(p) { return sys('readlink', p, 'readlink'); },
  realpathSync: Object.assign((p) => sys('lstat', p, 'realpath'), { native: (p) => sys('realpath', p, 'realpath') }),
  chmodSync(p, mode) { sys('chmod', p, 'chmod', parseMode(mode)); },
  chownSync() {}, lchownSync() {}, fchownSync() {},
  utimesSync(p, a, m) { sys('utime', p, 'utimes', seconds(a), seconds(m), 0); },
  lutimesSync(p, a, m) { sys('lutime', p, 'utimes', seconds(a), seconds(m), 1); },
  futimesSync(fd, a, m) { onFd('futime', host('futimes', fd, seconds(a), seconds(m))); },
  truncateSync(p, size = 0) {
    const fd = fs.openSync(p, 'r+');
    try { fs.ftruncateSync(fd, size); } finally { fs.closeSync(fd); }
  },
  ftruncateSync(fd, size = 0) { onFd('ftruncate', host('truncate', fd, size)); },
  fsyncSync() {}, fdatasyncSync() {},
  copyFileSync(from, to, flags = 0) {
    const data = fs.readFileSync(from), mode = fs.statSync(from).mode & 0o777;
    fs.writeFileSync(to, data, { flag: flags & 1 ? 'wx' : 'w', mode });
    fs.chmodSync(to, mode);
  },
  cpSync(from, to, o = {}) {
    const s = fs.lstatSync(from);
    if (s.isSymbolicLink()) return fs.symlinkSync(fs.readlinkSync(from), to);
    if (!s.isDirectory()) { fs.mkdirSync(path.dirname(to), { recursive: true }); return fs.copyFileSync(from, to); }
    if (!o.recursive) throw nodeError(Error, 'ERR_FS_EISDIR', `Recursive option not enabled, cannot copy a directory: cp returned EISDIR (${from} is a directory (not copied)) ${from}`);
    fs.mkdirSync(to, { recursive: true });
    for (const name of fs.readdirSync(from)) fs.cpSync(path.join(from, name), path.join(to, name), o);
    return undefined;
  },
  opendirSync(p) {
    const list = fs.readdirSync(p, { withFileTypes: true });
    return { path: p, readSync: () => list.shift() ?? null, read: async () => list.shift() ?? null, closeSync() {}, async close() {}, async *[Symbol.asyncIterator]() { yield* list; } };
  },
};

function look(name, p, nofollow, o) {
  try {
    return new Stats(sys(name, p, 'stat', nofollow), o.bigint);
  } catch (e) {
    if (o.throwIfNoEntry === false && (e.code === 'ENOENT' || e.code === 'ENOTDIR')) return undefined;
    throw e;
  }
}

// seconds converts a time as Node.js accepts it to nanoseconds.
function seconds(t) {
  return (t instanceof Date ? t.getTime() / 1000 : Number(t)) * 1e9;
}

// Asynchronous functions call the synchronous ones later.
const asynchronous = ['open', 'close', 'readFile', 'writeFile', 'appendFile', 'access', 'stat', 'lstat', 'fstat', 'readdir', 'mkdir', 'mkdtemp', 'rmdir', 'unlink', 'rm', 'rename',
  'link', 'symlink', 'readlink', 'realpath', 'chmod', 'chown', 'utimes', 'lutimes', 'futimes', 'truncate', 'ftruncate', 'fsync', 'fdatasync', 'copyFile', 'cp', 'opendir'];
fs.promises = { constants: fsConstants };

function later(run, done) {
  pendingIO.push(() => {
    let value, error = null;
    try { value = run(); } catch (e) { error = e; }
    done(error, value);
  });
}

for (const name of asynchronous) {
  const sync = fs[`${name}Sync`];
  fs[name] = (...args) => {
    const callback = args.pop();
    checkCallback(callback);
    later(() => sync(...args), (e, v) => (e ? callback(e) : v === undefined ? callback(null) : callback(null, v)));
  };
  fs.promises[name] = (...args) => new Promise((resolve, reject) => {
    later(() => (args[0] instanceof FileHandle ? sync(args[0].fd, ...args.slice(1)) : sync(...args)), (e, v) => (e ? reject(e) : resolve(v)));
  });
}
fs.exists = (p, callback) => later(() => fs.existsSync(p), (e, v) => callback(v));
fs.exists[customPromisify] = (p) => Promise.resolve(fs.existsSync(p));
fs.read = (fd, buffer, ...rest) => {
  const callback = rest.pop();
  later(() => fs.readSync(fd, buffer, ...rest), (e, n) => callback(e, n, buffer));
};
fs.write = (fd, data, ...rest) => {
  const callback = rest.pop();
  later(() => fs.writeSync(fd, data, ...rest), (e, n) => callback(e, n, data));
};

class FileHandle {
  constructor(fd) { this.fd = fd; }
  async read(buffer = Buffer.alloc(16384), ...rest) { return { bytesRead: fs.readSync(this.fd, buffer, ...rest), buffer }; }
  async write(data, ...rest) { return { bytesWritten: fs.writeSync(this.fd, data, ...rest), buffer: data }; }
  async readFile(o) { return fs.readFileSync(this.fd, o); }
  async writeFile(data, o) { fs.writeFileSync(this.fd, data, o); }
  async appendFile(data, o) { fs.writeFileSync(this.fd, data, o); }
  async stat(o) { return fs.fstatSync(this.fd, o); }
  async truncate(n) { fs.ftruncateSync(this.fd, n); }
  async sync() {}
  async datasync() {}
  async close() { fs.closeSync(this.fd); }
  async *readLines() { yield* fs.readFileSync(this.fd, 'utf8').replace(/\n$/, '').split(/\r?\n/); }
  async [Symbol.asyncDispose ?? Symbol('dispose')]() { await this.close(); }
}
fs.promises.open = async (p, flags, mode) => new FileHandle(fs.openSync(p, flags, mode));
fs.promises.readFile = (p, o) => new Promise((resolve, reject) => later(() => fs.readFileSync(p instanceof FileHandle ? p.fd : p, o), (e, v) => (e ? reject(e) : resolve(v))));
fs.watch = fs.watchFile = fs.unwatchFile = () => { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', 'files cannot be watched in this sandbox'); };
