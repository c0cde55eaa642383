// Events.

class EventEmitter {
  static defaultMaxListeners = 10;
  static errorMonitor = Symbol('events.errorMonitor');
  static captureRejectionSymbol = Symbol.for('nodejs.rejection');
  #list() { return this._events ?? (hide(this, { _events: new Map() }), this._events); }
  #add(name, listener, front) {
    if (typeof listener !== 'function') throw argumentError('listener', 'of type function', listener);
    const list = this.#list();
    if (list.has('newListener')) this.emit('newListener', name, listener.listener ?? listener);
    const own = list.get(name) ?? [];
    list.set(name, front ? [listener, ...own] : [...own, listener]);
    return this;
  }
  #wrap(name, listener) {
    const wrapped = (...args) => { this.removeListener(name, wrapped); return listener.apply(this, args); };
    wrapped.listener = listener;
    return wrapped;
  }
  on(name, listener) { return this.#add(name, listener, false); }
  addListener(name, listener) { return this.#add(name, listener, false); }
  prependListener(name, listener) { return this.#add(name, listener, true); }
  once(name, listener) { return this.#add(name, this.#wrap(name, listener), false); }
  prependOnceListener(name, listener) { return this.#add(name, this.#wrap(name, listener), true); }
  off(name, listener) { return this.removeListener(name, listener); }
  removeListener(name, listener) {
    const own = this.#list().get(name) ?? [];
    const i = own.findLastIndex((l) => l === listener || l.listener === listener);
    if (i < 0) return this;
    const rest = own.toSpliced(i, 1);
    if (rest.length) this._events.set(name, rest);
    else this._events.delete(name);
    if (this._events.has('removeListener')) this.emit('removeListener', name, listener);
    return this;
  }
  removeAllListeners(name) {
    if (name === undefined) this.#list().clear();
    else this.#list().delete(name);
    return this;
  }
  emit(name, ...args) {
    const own = this.#list().get(name);
    if (own === undefined) {
      if (name !== 'error') return false;
      if (args[0] instanceof Error) throw args[0];
      throw nodeError(Error, 'ERR_UNHANDLED_ERROR', `Unhandled error. (${typeof args[0] === 'string' ? `'${args[0]}'` : inspect(args[0])})`);
    }
    for (const l of own) l.apply(this, args);
    return true;
  }
  listeners(name) { return (this.#list().get(name) ?? []).map((l) => l.listener ?? l); }
  rawListeners(name) { return [...(this.#list().get(name) ?? [])]; }
  listenerCount(name) { return (this.#list().get(name) ?? []).length; }
  eventNames() { return [...this.#list().keys()]; }
  setMaxListeners() { return this; }
  getMaxListeners() { return EventEmitter.defaultMaxListeners; }
}
// Old code calls the class as a function on an object of its own.
const EventEmitterFunction = new Proxy(EventEmitter, { apply: () => undefined });

function onceEvent(emitter, name) {
  return new Promise((resolve, reject) => {
    const fail = (e) => { emitter.removeListener(name, done); reject(e); };
    const done = (...args) => { emitter.removeListener('error', fail); resolve(args); };
    emitter.once(name, done);
    if (name !== 'error') emitter.once('error', fail);
  });
}

async function* onEvent(emitter, name) {
  const queue = [];
  let wake;
  emitter.on(name, (...args) => { queue.push(args); wake?.(); });
  for (;;) {
    while (queue.length) yield queue.shift();
    await new Promise((resolve) => { wake = resolve; });
  }
}

Object.assign(EventEmitter, { EventEmitter: EventEmitterFunction, once: onceEvent, on: onEvent, listenerCount: (e, n) => e.listenerCount(n), setMaxListeners() {} });

class Event {
  constructor(type, { cancelable = false, bubbles = false } = {}) {
    this.type = `${type}`; this.cancelable = cancelable; this.bubbles = bubbles; this.defaultPrevented = false; this.target = null; this.timeStamp = performanceNow();
  }
  preventDefault() { if (this.cancelable) this.defaultPrevented = true; }
  stopPropagation() {}
  stopImmediatePropagation() { this.stopped = true; }
}
class CustomEvent extends Event {
  constructor(type, init = {}) { super(type, init); this.detail = init.detail ?? null; }
}
class EventTarget {
  #listeners = new Map();
  addEventListener(type, listener, options) {
    const list = this.#listeners.get(type) ?? [];
    if (!list.some((l) => l.listener === listener)) list.push({ listener, once: Boolean(options && options.once) });
    this.#listeners.set(type, list);
  }
  removeEventListener(type, listener) {
    this.#listeners.set(type, (this.#listeners.get(type) ?? []).filter((l) => l.listener !== listener));
  }
  dispatchEvent(event) {
    event.target = this;
    for (const l of [...(this.#listeners.get(event.type) ?? [])]) {
      if (l.once) this.removeEventListener(event.type, l.listener);
      if (typeof l.listener === 'function') l.listener.call(this, event);
      else l.listener.handleEvent(event);
      if (event.stopped) break;
    }
    return !event.defaultPrevented;
  }
}

class AbortSignal extends EventTarget {
  aborted = false; reason = undefined; onabort = null;
  static abort(reason) { const s = new AbortSignal(); abortSignal(s, reason); return s; }
  static timeout(ms) { const s = new AbortSignal(); setTimeout(() => abortSignal(s, domError('TimeoutError', 'The operation was aborted due to timeout')), ms).unref(); return s; }
  throwIfAborted() { if (this.aborted) throw this.reason; }
}
function abortSignal(s, reason = domError('AbortError', 'This operation was aborted')) {
  if (s.aborted) return;
  s.aborted = true; s.reason = reason;
  const event = new Event('abort');
  s.onabort?.(event);
  s.dispatchEvent(event);
}
class AbortController {
  signal = new AbortSignal();
  abort(reason) { abortSignal(this.signal, reason); }
}
