// The module stream, as far as programs without sockets use it, and the
// standard streams.

class Stream extends EventEmitter {
  pipe(target, o = {}) {
    this.on('data', (chunk) => { if (target.write(chunk) === false && this.pause) { this.pause(); target.once('drain', () => this.resume()); } });
    if (o.end !== false && target !== process.stdout && target !== process.stderr) this.on('end', () => target.end());
    target.emit('pipe', this);
    return target;
  }
}

class Readable extends Stream {
  #o; #queue = []; #ended = false; #flowing = null; #reading = false; #done = false;
  constructor(o = {}) {
    super();
    this.#o = o;
    if (o.read) this._read = o.read;
    if (o.destroy) this._destroy = o.destroy;
    Object.assign(this, { readable: true, destroyed: false, readableEnded: false, readableObjectMode: Boolean(o.objectMode || o.readableObjectMode) });
    hide(this, { encoding: o.encoding ?? null });
  }
  _read() {}
  push(chunk, encoding) {
    if (chunk === null) { this.#ended = true; this.#schedule(); return false; }
    if (!this.readableObjectMode && typeof chunk === 'string' && !this.encoding) chunk = Buffer.from(chunk, encoding);
    else if (this.encoding && typeof chunk !== 'string') chunk = this.decoder.write(chunk);
    this.#queue.push(chunk);
    this.#reading = false;
    this.#schedule();
    return this.#queue.length < 16;
  }
  unshift(chunk) { this.#queue.unshift(chunk); this.#schedule(); }
  setEncoding(e) { this.encoding = e; hide(this, { decoder: new StringDecoder(e) }); this.#queue = this.#queue.map((c) => (typeof c === 'string' ? c : this.decoder.write(c))); return this; }
  on(name, listener) {
    super.on(name, listener);
    if (name === 'data' && this.#flowing !== false) this.resume();
    if (name === 'readable') this.#schedule();
    return this;
  }
  addListener(name, listener) { return this.on(name, listener); }
  resume() { this.#flowing = true; this.#schedule(); return this; }
  pause() { this.#flowing = false; return this; }
  isPaused() { return this.#flowing === false; }
  get readableFlowing() { return this.#flowing; }
  get readableLength() { return this.#queue.length; }
  read(n) {
    if (this.#queue.length === 0) { this.#fill(); }
    if (this.#queue.length === 0) { if (this.#ended) this.#schedule(); return null; }
    if (this.readableObjectMode) return this.#queue.shift();
    const all = typeof this.#queue[0] === 'string' ? this.#queue.join('') : Buffer.concat(this.#queue);
    if (n === undefined || n >= all.length) { this.#queue = []; this.#schedule(); return all; }
    this.#queue = [all.slice(n)];
    return all.slice(0, n);
  }
  #fill() {
    if (this.#reading || this.#ended || this.destroyed) return;
    this.#reading = true;
    try { this._read(16384); } catch (e) { this.destroy(e); }
  }
  #schedule() {
    if (this.scheduled) return;
    hide(this, { scheduled: true });
    process.nextTick(() => { this.scheduled = false; this.#flow(); });
  }
  #flow() {
    if (this.destroyed) return;
    if (this.#flowing) {
      while (this.#flowing && this.#queue.length) this.emit('data', this.#queue.shift());
      if (this.#flowing && !this.#ended && !this.#queue.length) this.#fill();
    } else if (this.listenerCount('readable') > 0) {
      if (!this.#queue.length && !this.#ended) this.#fill();
      if (this.#queue.length || (this.#ended && !this.#done)) this.emit('readable');
    }
    if (this.#ended && !this.#queue.length && !this.#done && (this.#flowing || this.listenerCount('readable') > 0)) {
      this.#done = true;
      this.readable = false; this.readableEnded = true;
      this.emit('end');
      if (this.#o.autoDestroy !== false && !(this instanceof Duplex)) process.nextTick(() => this.destroy());
    }
  }
  _destroy(error, callback) { callback(error); }
  destroy(error) {
    if (this.destroyed) return this;
    this.destroyed = true;
    this._destroy(error ?? null, (e) => process.nextTick(() => { if (e) this.emit('error', e); this.emit('close'); }));
    return this;
  }
  async *[Symbol.asyncIterator]() {
    let wake, error, over = false;
    const queue = [];
    this.on('end', () => { over = true; wake?.(); });
    this.on('close', () => { over = true; wake?.(); });
    this.on('error', (e) => { error = e; over = true; wake?.(); });
    this.on('data', (c) => { queue.push(c); wake?.(); });
    for (;;) {
      while (queue.length) yield queue.shift();
      if (error) throw error;
      if (over) return;
      await new Promise((resolve) => { wake = resolve; });
    }
  }
  async toArray() { const out = []; for await (const c of this) out.push(c); return out; }
  static from(source, o) {
    const iterator = typeof source === 'string' || source instanceof Buffer ? [source][Symbol.iterator]() : source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]();
    return new Readable({ objectMode: true, ...o,
      read() {
        Promise.resolve(iterator.next()).then(async ({ done, value }) => this.push(done ? null : await value), (e) => this.destroy(e));
      } });
  }
}

class Writable extends Stream {
  constructor(o = {}) { super(); initWritable(this, o); }
}
function initWritable(s, o) {
  if (o.write) s._write = o.write;
  if (o.writev) s._writev = o.writev;
  if (o.final) s._final = o.final;
  if (o.destroy) s._destroy = o.destroy;
  Object.assign(s, { writable: true, destroyed: false, writableEnded: false, writableFinished: false });
  hide(s, { w: { queue: [], busy: false, ending: false, decode: o.decodeStrings !== false && !o.objectMode && !o.writableObjectMode, high: o.highWaterMark ?? 16384, size: 0, drain: false } });
}
const writableMethods = {
  _write(chunk, encoding, callback) { callback(); },
  _final(callback) { callback(); },
  _destroy(error, callback) { callback(error); },
  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    if (this.w.ending) {
      const e = nodeError(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end');
      process.nextTick(() => { callback?.(e); this.emit('error', e); });
      return false;
    }
    if (chunk === null) throw nodeError(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
    if (this.w.decode && typeof chunk === 'string') [chunk, encoding] = [Buffer.from(chunk, encoding), 'buffer'];
    this.w.queue.push([chunk, encoding ?? 'utf8', callback]);
    this.w.size += chunk.length ?? 1;
    const more = this.w.size < this.w.high;
    this.w.drain ||= !more;
    this.advance();
    return more;
  },
  advance() {
    if (this.w.busy || this.destroyed) return;
    if (this.w.corked) return;
    const next = this.w.queue.shift();
    if (next === undefined) {
      if (this.w.ending && !this.writableFinished && !this.w.finishing) {
        this.w.finishing = true;
        this._final((e) => {
          if (e) return this.destroy(e);
          process.nextTick(() => { this.writableFinished = true; this.emit('finish'); if (!(this instanceof Duplex)) this.destroy(); });
          return undefined;
        });
      } else if (this.w.drain) {
        this.w.drain = false;
        process.nextTick(() => this.emit('drain'));
      }
      return;
    }
    const [chunk, encoding, callback] = next;
    this.w.busy = true;
    let sync = true;
    this._write(chunk, encoding, (e) => {
      const go = () => {
        this.w.busy = false;
        this.w.size -= chunk.length ?? 1;
        if (e) { callback?.(e); this.destroy(e); return; }
        callback?.(null);
        this.advance();
      };
      if (sync) process.nextTick(go);
      else go();
    });
    sync = false;
  },
  cork() { this.w.corked = true; },
  uncork() { this.w.corked = false; this.advance(); },
  setDefaultEncoding() { return this; },
  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') [chunk, callback] = [undefined, chunk];
    else if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    if (chunk !== undefined && chunk !== null) this.write(chunk, encoding);
    if (callback) this.once('finish', callback);
    this.w.ending = true;
    this.writableEnded = true; this.writable = false;
    this.advance();
    return this;
  },
  destroy(error) {
    if (this.destroyed) return this;
    this.destroyed = true;
    this._destroy(error ?? null, (e) => process.nextTick(() => { if (e) this.emit('error', e); this.emit('close'); }));
    return this;
  },
};
hide(Writable.prototype, writableMethods);

class Duplex extends Readable {
  constructor(o = {}) {
    super(o);
    initWritable(this, { ...o, objectMode: o.objectMode || o.writableObjectMode });
  }
}
for (const key of Object.keys(writableMethods)) if (key !== 'destroy' && key !== '_destroy') hide(Duplex.prototype, { [key]: writableMethods[key] });

class Transform extends Duplex {
  constructor(o = {}) {
    super(o);
    if (o.transform) this._transform = o.transform;
    if (o.flush) this._flush = o.flush;
  }
  _transform(chunk, encoding, callback) { callback(null, chunk); }
  _flush(callback) { callback(); }
  _write(chunk, encoding, callback) {
    this._transform(chunk, encoding, (e, out) => { if (!e && out !== undefined && out !== null) this.push(out); callback(e); });
  }
  _final(callback) {
    this._flush((e, out) => { if (!e && out !== undefined && out !== null) this.push(out); if (!e) this.push(null); callback(e); });
  }
}
class PassThrough extends Transform {}

function finished(stream, o, callback) {
  if (typeof o === 'function') callback = o;
  let called = false;
  const end = (e) => { if (!called) { called = true; callback(e); } };
  stream.on('error', end);
  stream.on(stream instanceof Readable && !(stream instanceof Duplex) ? 'end' : 'finish', () => end());
  stream.on('close', () => end());
}

function pipeline(...streams) {
  const callback = typeof streams.at(-1) === 'function' && streams.length > 2 ? streams.pop() : () => {};
  let list = streams.flat();
  list = list.map((s, i) => {
    if (typeof s !== 'function') return s instanceof Stream || s.pipe || s.write ? s : Readable.from(s);
    return s;
  });
  let source = list[0];
  if (typeof source === 'function') source = Readable.from(source());
  for (const s of list.slice(1)) {
    if (typeof s === 'function') source = Readable.from(s(source));
    else { const from = source; from.on('error', (e) => s.destroy(e)); source = from.pipe(s); }
  }
  if (source instanceof Readable && !(source instanceof Duplex)) source.resume();
  finished(source, callback);
  return source;
}

const stream = Object.assign(Stream, { Stream, Readable, Writable, Duplex, Transform, PassThrough, finished, pipeline,
  addAbortSignal: (signal, s) => { signal.addEventListener('abort', () => s.destroy(nodeAbort(signal))); return s; } });
stream.promises = {
  finished: (s) => new Promise((resolve, reject) => finished(s, (e) => (e ? reject(e) : resolve()))),
  pipeline: (...s) => new Promise((resolve, reject) => pipeline(...s, (e) => (e ? reject(e) : resolve()))),
};

fs.createReadStream = (p, o) => {
  const { encoding, start = 0, end = Infinity, highWaterMark = 65536, fd: given, flags } = options(o, { flags: 'r' });
  let fd = given, at = start;
  const s = new Readable({ encoding: undefined,
    read() {
      later(() => {
        if (fd === undefined) { fd = fs.openSync(p, flags); s.fd = fd; s.emit('open', fd); s.emit('ready'); }
        const n = Math.min(highWaterMark, end - at + 1);
        const b = n > 0 ? onFd('read', host('read', fd, n, at)) : new Uint8Array(0);
        at += b.length;
        return b;
      }, (e, b) => (e ? s.destroy(e) : s.push(b.length ? Buffer.from(b.buffer) : null)));
    },
    destroy(e, callback) { if (fd !== undefined) { try { fs.closeSync(fd); } catch { /* it is closed */ } } callback(e); } });
  s.path = p;
  if (encoding) s.setEncoding(encoding);
  return s;
};
fs.createWriteStream = (p, o) => {
  const { flags, mode, encoding, fd: given } = options(o, { flags: 'w' });
  let fd = given;
  const open = () => { if (fd === undefined) { fd = fs.openSync(p, flags, mode); s.fd = fd; s.emit('open', fd); s.emit('ready'); } };
  const s = new Writable({
    write(chunk, e, callback) { later(() => { open(); fs.writeFileSync(fd, chunk, encoding); s.bytesWritten += chunk.length; }, callback); },
    final(callback) { later(open, callback); },
    destroy(e, callback) { if (fd !== undefined) { try { fs.closeSync(fd); } catch { /* it is closed */ } } callback(e); } });
  s.path = p; s.bytesWritten = 0;
  return s;
};

// Writes to standard output and error are synchronous, as for files and pipes.
class Output extends Writable {
  constructor(fd) { super({ decodeStrings: false }); this.fd = fd; this._type = 'pipe'; this.columns = undefined; this.isTTY = undefined; }
  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    if (typeof chunk !== 'string' && !ArrayBuffer.isView(chunk)) throw argumentError('chunk', 'of type string or an instance of Buffer or Uint8Array', chunk);
    writeAll(this.fd, typeof chunk === 'string' && encodingName(encoding) !== 'utf8' ? encodeText(chunk, encoding) : chunk);
    if (callback) process.nextTick(callback);
    return true;
  }
  end(chunk, encoding, callback) { if (chunk !== undefined && typeof chunk !== 'function') this.write(chunk, encoding); process.nextTick(() => this.emit('finish')); (typeof chunk === 'function' ? chunk : callback)?.(); return this; }
  getColorDepth() { return 1; }
  hasColors() { return false; }
  cursorTo() { return true; } clearLine() { return true; } moveCursor() { return true; } clearScreenDown() { return true; }
}
let stdin;
Object.defineProperties(process, {
  stdout: { value: new Output(1), enumerable: true, configurable: true },
  stderr: { value: new Output(2), enumerable: true, configurable: true },
  stdin: { enumerable: true, configurable: true,
    get() {
      if (!stdin) {
        stdin = new Readable({ read() { later(() => onFd('read', host('read', 0, 65536, -1)), (e, b) => (e ? stdin.destroy(e) : stdin.push(b.length ? Buffer.from(b.buffer) : null))); } });
        stdin.fd = 0; stdin.isTTY = undefined;
        stdin.ref = stdin.unref = () => stdin;
        stdin.setRawMode = () => stdin;
      }
      return stdin;
    } },
});
