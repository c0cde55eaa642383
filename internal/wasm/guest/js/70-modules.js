// The smaller modules of Node.js.

class StringDecoder {
  constructor(encoding = 'utf8') { this.encoding = encodingName(encoding); hide(this, { held: Buffer.alloc(0) }); }
  write(chunk) {
    if (typeof chunk === 'string') return chunk;
    const b = this.held.length ? Buffer.concat([this.held, chunk]) : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let cut = b.length;
    if (this.encoding === 'utf8') cut = wholeUtf8(b);
    else if (this.encoding === 'utf16le') cut -= cut % 2;
    else if (this.encoding.startsWith('base64')) cut -= cut % 3;
    this.held = Buffer.from(b.subarray(cut));
    return b.toString(this.encoding, 0, cut);
  }
  end(chunk) {
    const text = (chunk === undefined ? '' : this.write(chunk)) + (this.held.length ? this.held.toString(this.encoding) : '');
    this.held = Buffer.alloc(0);
    return text;
  }
}

// ---- util

function sameValue(a, b, strict, seen) {
  if (strict ? Object.is(a, b) : a == b || (a !== a && b !== b)) return true; // eslint-disable-line eqeqeq
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (toTag(a) !== toTag(b) || Array.isArray(a) !== Array.isArray(b)) return false;
  if (isDate(a) && a.getTime() !== b.getTime()) return false;
  if (isRegExp(a) && (String(a) !== String(b) || a.lastIndex !== b.lastIndex)) return false;
  if (isError(a) && (a.message !== b.message || a.name !== b.name)) return false;
  for (const C of [Number, String, Boolean, BigInt, Symbol]) {
    if (a instanceof C && !(b instanceof C && Object.is(a.valueOf(), b.valueOf()))) return false;
  }
  for (const [x, y] of seen) if (x === a && y === b) return true;
  seen = [...seen, [a, b]];
  if (isArrayBuffer(a)) [a, b] = [new Uint8Array(a), new Uint8Array(b)];
  if (Array.isArray(a) || isTyped(a)) {
    if (a.length !== b.length) return false;
    if (isTyped(a)) { for (let i = 0; i < a.length; i++) if (!(strict ? Object.is(a[i], b[i]) : a[i] == b[i])) return false; } // eslint-disable-line eqeqeq
  }
  if (isSet(a)) {
    if (a.size !== b.size) return false;
    for (const v of a) if (!b.has(v) && ![...b].some((w) => sameValue(v, w, strict, seen))) return false;
  }
  if (isMap(a)) {
    if (a.size !== b.size) return false;
    for (const [k, v] of a) {
      if (b.has(k) ? !sameValue(v, b.get(k), strict, seen) : ![...b].some(([l, w]) => sameValue(k, l, strict, seen) && sameValue(v, w, strict, seen))) return false;
    }
  }
  const keys = isTyped(a) ? otherKeys(a) : ownKeys(a), others = isTyped(b) ? otherKeys(b) : ownKeys(b);
  if (keys.length !== others.length) return false;
  return keys.every((k) => Object.prototype.hasOwnProperty.call(b, k) && sameValue(a[k], b[k], strict, seen));
}

function promisify(f) {
  checkCallback(f);
  if (f[customPromisify]) return f[customPromisify];
  return function promisified(...args) {
    return new Promise((resolve, reject) => f.call(this, ...args, (e, v) => (e ? reject(e) : resolve(v))));
  };
}
promisify.custom = customPromisify;

const util = {
  inspect, format, promisify,
  formatWithOptions: (o, ...args) => formatWith(o, args),
  inherits(C, P) { Object.defineProperty(C, 'super_', { value: P, writable: true, configurable: true }); Object.setPrototypeOf(C.prototype, P.prototype); },
  callbackify: (f) => (...args) => {
    const callback = args.pop();
    f(...args).then((v) => process.nextTick(callback, null, v), (e) => process.nextTick(callback, e ?? nodeError(Error, 'ERR_FALSY_VALUE_REJECTION', 'Promise was rejected with falsy value')));
  },
  deprecate: (f) => f,
  isDeepStrictEqual: (a, b) => sameValue(a, b, true, []),
  stripVTControlCharacters: (s) => s.replace(/\u001b\[[0-9;]*[A-Za-z]/g, ''),
  toUSVString: (s) => `${s}`.toWellFormed(),
  debuglog: () => Object.assign(() => {}, { enabled: false }),
  styleText: (style, text) => text,
  parseArgs: parseArguments,
  isArray: Array.isArray, isString: (v) => typeof v === 'string', isFunction: (v) => typeof v === 'function',
  TextEncoder, TextDecoder,
  types: {
    isDate, isRegExp, isMap, isSet, isPromise, isArrayBuffer, isWeakMap, isWeakSet, isNativeError: isError,
    isTypedArray: (v) => ArrayBuffer.isView(v) && isTyped(v), isUint8Array: (v) => v instanceof Uint8Array, isAnyArrayBuffer: isArrayBuffer,
    isArrayBufferView: ArrayBuffer.isView, isProxy: (v) => typeof v === 'object' && v !== null && host('proxy', v) !== undefined,
    isAsyncFunction: (v) => typeof v === 'function' && toTag(v).startsWith('Async'), isGeneratorFunction: (v) => typeof v === 'function' && toTag(v).endsWith('GeneratorFunction'),
    isGeneratorObject: (v) => toTag(v) === 'Generator', isBoxedPrimitive: (v) => [Number, String, Boolean, BigInt, Symbol].some((C) => v instanceof C), isDataView: (v) => v instanceof DataView,
  },
};
util.debug = util.debuglog;

function parseArguments({ args = process.argv.slice(2), options: spec = {}, allowPositionals = false, strict = true } = {}) {
  const values = Object.create(null), positionals = [];
  const fail = (code, text) => { throw nodeError(TypeError, code, text); };
  const store = (name, value) => {
    if (spec[name] && spec[name].multiple) (values[name] ??= []).push(value);
    else values[name] = value;
  };
  for (let i = 0; i < args.length; i++) {
    const a = args[i];
    if (a === '--') { positionals.push(...args.slice(i + 1)); break; }
    if (!a.startsWith('-') || a === '-') {
      if (strict && !allowPositionals) fail('ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL', `Unexpected argument '${a}'. This command does not take positional arguments`);
      positionals.push(a);
      continue;
    }
    let [name, value] = a.startsWith('--') ? a.slice(2).split(/=(.*)/s) : [Object.keys(spec).find((k) => spec[k].short === a[1]) ?? a[1], a.length > 2 ? a.slice(2) : undefined];
    if (!spec[name] && strict) fail('ERR_PARSE_ARGS_UNKNOWN_OPTION', `Unknown option '${a}'`);
    if (spec[name] && spec[name].type === 'string') {
      if (value === undefined) value = args[++i];
      if (value === undefined && strict) fail('ERR_PARSE_ARGS_INVALID_OPTION_VALUE', `Option '--${name} <value>' argument missing`);
      store(name, value);
    } else store(name, true);
  }
  for (const [name, s] of Object.entries(spec)) if (s.default !== undefined && !(name in values)) values[name] = s.default;
  return { values, positionals };
}

// ---- assert

class AssertionError extends Error {
  constructor({ message, actual, expected, operator, generated }) {
    super(message);
    this.generatedMessage = Boolean(generated); this.code = 'ERR_ASSERTION'; this.actual = actual; this.expected = expected; this.operator = operator;
    hide(this, { name: 'AssertionError' });
  }
}
function assertThat(ok, message, text, actual, expected, operator) {
  if (ok) return;
  if (message instanceof Error) throw message;
  throw new AssertionError({ message: message ?? text, generated: message === undefined, actual, expected, operator });
}
const both = (a, b) => `\n\n${inspect(a)} !== ${inspect(b)}\n`;
const assert = Object.assign((v, m) => assertThat(v, m, v === undefined ? 'No value argument passed to `assert.ok()`' : 'The expression evaluated to a falsy value', v, true, '=='), {
  AssertionError,
  ok: (v, m) => assertThat(v, m, 'The expression evaluated to a falsy value', v, true, '=='),
  equal: (a, b, m) => assertThat(a == b || (a !== a && b !== b), m, `${inspect(a)} == ${inspect(b)}`, a, b, '=='), // eslint-disable-line eqeqeq
  notEqual: (a, b, m) => assertThat(a != b, m, `${inspect(a)} != ${inspect(b)}`, a, b, '!='), // eslint-disable-line eqeqeq
  strictEqual: (a, b, m) => assertThat(Object.is(a, b), m, `Expected values to be strictly equal:${both(a, b)}`, a, b, 'strictEqual'),
  notStrictEqual: (a, b, m) => assertThat(!Object.is(a, b), m, `Expected "actual" to be strictly unequal to: ${inspect(b)}`, a, b, 'notStrictEqual'),
  deepEqual: (a, b, m) => assertThat(sameValue(a, b, false, []), m, `Expected values to be loosely deep-equal:\n\n${inspect(a)}\n\nshould loosely deep-equal\n\n${inspect(b)}`, a, b, 'deepEqual'),
  notDeepEqual: (a, b, m) => assertThat(!sameValue(a, b, false, []), m, `Expected "actual" not to be loosely deep-equal to: ${inspect(b)}`, a, b, 'notDeepEqual'),
  deepStrictEqual: (a, b, m) => assertThat(sameValue(a, b, true, []), m, `Expected values to be strictly deep-equal:${both(a, b)}`, a, b, 'deepStrictEqual'),
  notDeepStrictEqual: (a, b, m) => assertThat(!sameValue(a, b, true, []), m, `Expected "actual" not to be strictly deep-equal to: ${inspect(b)}`, a, b, 'notDeepStrictEqual'),
  match: (s, re, m) => assertThat(re.test(s), m, `The input did not match the regular expression ${re}. Input:\n\n${inspect(s)}\n`, s, re, 'match'),
  doesNotMatch: (s, re, m) => assertThat(!re.test(s), m, `The input was expected to not match the regular expression ${re}. Input:\n\n${inspect(s)}\n`, s, re, 'doesNotMatch'),
  fail: (m = 'Failed') => assertThat(false, m, m, undefined, undefined, 'fail'),
  ifError(v) { if (v !== null && v !== undefined) throw v; },
  throws(f, expected, m) {
    let error, threw = false;
    try { f(); } catch (e) { error = e; threw = true; }
    checkThrown(threw, error, expected, m, 'Missing expected exception.');
  },
  doesNotThrow(f) { f(); },
  async rejects(p, expected, m) {
    let error, threw = false;
    try { await (typeof p === 'function' ? p() : p); } catch (e) { error = e; threw = true; }
    checkThrown(threw, error, expected, m, 'Missing expected rejection.');
  },
  async doesNotReject(p) { await (typeof p === 'function' ? p() : p); },
});
assert.strict = assert;
assert.assert = assert;

function checkThrown(threw, error, expected, m, missing) {
  if (typeof expected === 'string') [expected, m] = [undefined, expected];
  assertThat(threw, m, missing, undefined, expected, 'throws');
  if (expected === undefined) return;
  if (expected instanceof RegExp) assertThat(expected.test(String(error)), m, `The input did not match the regular expression ${expected}. Input:\n\n${inspect(String(error))}\n`, error, expected, 'throws');
  else if (typeof expected === 'function') {
    if (expected.prototype !== undefined && error instanceof expected) return;
    if (Error.isPrototypeOf(expected)) throw error;
    assertThat(expected.call({}, error) === true, m, 'The function did not return "true"', error, expected, 'throws');
  } else {
    for (const k of Object.keys(expected)) {
      const ok = expected[k] instanceof RegExp && typeof error[k] === 'string' ? expected[k].test(error[k]) : sameValue(error[k], expected[k], true, []);
      assertThat(ok, m, `Expected values to be strictly deep-equal:${both(error[k], expected[k])}`, error, expected, 'throws');
    }
  }
}

// ---- url and querystring

const escapeQuery = (s) => encodeURIComponent(s).replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`).replaceAll('%20', '+');
const unescapeQuery = (s) => { s = s.replaceAll('+', ' '); try { return decodeURIComponent(s); } catch { return s; } };

class URLSearchParams {
  #list = []; #changed;
  constructor(init = '', changed = () => {}) {
    this.#changed = changed;
    if (typeof init === 'string') this.#parse(init);
    else if (init && typeof init[Symbol.iterator] === 'function') for (const [k, v] of init) this.#list.push([`${k}`, `${v}`]);
    else if (init) for (const k of Object.keys(init)) this.#list.push([k, `${init[k]}`]);
  }
  #parse(text) {
    for (const part of text.replace(/^\?/, '').split('&')) {
      if (part === '') continue;
      const i = part.indexOf('=');
      this.#list.push(i < 0 ? [unescapeQuery(part), ''] : [unescapeQuery(part.slice(0, i)), unescapeQuery(part.slice(i + 1))]);
    }
  }
  append(k, v) { this.#list.push([`${k}`, `${v}`]); this.#changed(); }
  delete(k, v) { this.#list = this.#list.filter(([n, w]) => n !== k || (v !== undefined && w !== v)); this.#changed(); }
  get(k) { return this.#list.find(([n]) => n === `${k}`)?.[1] ?? null; }
  getAll(k) { return this.#list.filter(([n]) => n === `${k}`).map(([, v]) => v); }
  has(k, v) { return this.#list.some(([n, w]) => n === `${k}` && (v === undefined || w === v)); }
  set(k, v) {
    const i = this.#list.findIndex(([n]) => n === `${k}`);
    if (i < 0) this.#list.push([`${k}`, `${v}`]);
    else { this.#list[i][1] = `${v}`; this.#list = this.#list.filter(([n], j) => n !== `${k}` || j <= i); }
    this.#changed();
  }
  sort() { this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); this.#changed(); }
  get size() { return this.#list.length; }
  forEach(f, self) { for (const [k, v] of this.#list) f.call(self, v, k, this); }
  *entries() { yield* this.#list.map(([k, v]) => [k, v]); }
  *keys() { for (const [k] of this.#list) yield k; }
  *values() { for (const [, v] of this.#list) yield v; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([k, v]) => `${escapeQuery(k)}=${escapeQuery(v)}`).join('&'); }
  [customInspect](depth, o) {
    return this.#list.length ? `URLSearchParams { ${this.#list.map(([k, v]) => `${quote(k)} => ${quote(v)}`).join(', ')} }` : 'URLSearchParams {}';
  }
}

const specialPorts = { 'http:': '80', 'https:': '443', 'ftp:': '21', 'ws:': '80', 'wss:': '443', 'file:': '' };
const escapeIn = (text, keep) => Array.from(text.toWellFormed(), (c) => (keep.test(c) ? c : encodeURIComponent(c).replace(/['()*!~]/g, (x) => x))).join('');

class URL {
  #p; #params;
  constructor(input, base) {
    this.#p = parseURL(`${input}`.trim(), base === undefined ? undefined : `${base}`);
    if (!this.#p) {
      const e = nodeError(TypeError, 'ERR_INVALID_URL', 'Invalid URL');
      e.input = `${input}`;
      if (base !== undefined) e.base = `${base}`;
      throw e;
    }
    this.#params = new URLSearchParams(this.#p.search, () => { const s = this.#params.toString(); this.#p.search = s ? `?${s}` : ''; });
  }
  static canParse(input, base) { try { new URL(input, base); return true; } catch { return false; } }
  static parse(input, base) { try { return new URL(input, base); } catch { return null; } }
  get protocol() { return this.#p.protocol; } set protocol(v) { this.#p.protocol = `${v}`.replace(/:?$/, ':'); }
  get username() { return this.#p.username; } set username(v) { this.#p.username = encodeURIComponent(v); }
  get password() { return this.#p.password; } set password(v) { this.#p.password = encodeURIComponent(v); }
  get hostname() { return this.#p.hostname; } set hostname(v) { this.#p.hostname = `${v}`.toLowerCase(); }
  get port() { return this.#p.port; } set port(v) { this.#p.port = `${v}` === specialPorts[this.#p.protocol] ? '' : `${v}`; }
  get host() { return this.#p.hostname + (this.#p.port ? `:${this.#p.port}` : ''); } set host(v) { [this.#p.hostname, this.#p.port = ''] = `${v}`.split(':'); }
  get pathname() { return this.#p.pathname; } set pathname(v) { this.#p.pathname = cleanPath(`${v}`, true); }
  get search() { return this.#p.search === '?' ? '' : this.#p.search; }
  set search(v) { v = `${v}`; this.#p.search = v === '' ? '' : escapeIn(v.startsWith('?') ? v : `?${v}`, /[^\s"<>#]/); this.#params = new URLSearchParams(this.#p.search, () => { const s = this.#params.toString(); this.#p.search = s ? `?${s}` : ''; }); }
  get hash() { return this.#p.hash === '#' ? '' : this.#p.hash; } set hash(v) { v = `${v}`; this.#p.hash = v === '' ? '' : v.startsWith('#') ? v : `#${v}`; }
  get origin() { return this.#p.protocol in specialPorts && this.#p.protocol !== 'file:' ? `${this.#p.protocol}//${this.host}` : 'null'; }
  get searchParams() { return this.#params; }
  get href() {
    const p = this.#p, login = p.username ? `${p.username}${p.password ? `:${p.password}` : ''}@` : '';
    return `${p.protocol}${p.slashes ? `//${login}${this.host}` : ''}${p.pathname}${p.search}${p.hash}`;
  }
  set href(v) { this.#p = new URL(v).#p; }
  toString() { return this.href; }
  toJSON() { return this.href; }
  [customInspect](depth, o) {
    const view = {};
    for (const k of ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'searchParams', 'hash']) view[k] = this[k];
    return `URL ${inspect(view, { ...o, depth })}`;
  }
}

function cleanPath(text, special) {
  const escaped = escapeIn(special ? text.replaceAll('\\', '/') : text, /[^\s"<>`{}#?\u0000-\u001f\u0080-\uffff]/u);
  const out = [];
  const parts = escaped.split('/');
  parts.forEach((part, i) => {
    const last = i === parts.length - 1, name = part.replace(/%2e/gi, '.');
    if (name === '..') { if (out.length > 1) out.pop(); if (last) out.push(''); }
    else if (name === '.') { if (last) out.push(''); }
    else out.push(part);
  });
  const joined = out.join('/');
  return special && !joined.startsWith('/') ? `/${joined}` : joined;
}

function parseURL(text, base) {
  text = text.replace(/[\t\n\r]/g, '');
  const m = /^([a-zA-Z][a-zA-Z0-9+.-]*):(.*)$/s.exec(text);
  if (!m) {
    if (base === undefined) return null;
    const b = parseURL(base);
    if (!b) return null;
    const [, pathAndQuery, hash = ''] = /^([^#]*)(#.*)?$/s.exec(text), [, p, search] = /^([^?]*)(\?.*)?$/s.exec(pathAndQuery);
    if (p.startsWith('//')) return parseURL(b.protocol + text);
    const out = { ...b, hash };
    if (p === '') { out.search = search ?? b.search; if (text === '') out.hash = ''; return out; }
    out.search = search ?? '';
    out.pathname = cleanPath(p.startsWith('/') ? p : b.pathname.replace(/[^/]*$/, '') + p, true);
    return out;
  }
  const protocol = `${m[1].toLowerCase()}:`, special = protocol in specialPorts;
  let rest = m[2];
  const out = { protocol, username: '', password: '', hostname: '', port: '', pathname: '', search: '', hash: '', slashes: false };
  let i = rest.indexOf('#');
  if (i >= 0) { out.hash = escapeIn(rest.slice(i), /[^\s"<>`]/); rest = rest.slice(0, i); }
  i = rest.indexOf('?');
  if (i >= 0) { out.search = escapeIn(rest.slice(i), special ? /[^\s"<>'\u0080-\uffff]/ : /[^\s"<>]/); rest = rest.slice(0, i); }
  if (special) rest = rest.replaceAll('\\', '/').replace(/^\/*/, '//');
  if (rest.startsWith('//')) {
    out.slashes = true;
    const slash = rest.indexOf('/', 2), authority = slash < 0 ? rest.slice(2) : rest.slice(2, slash);
    rest = slash < 0 ? '' : rest.slice(slash);
    const at = authority.lastIndexOf('@');
    if (at >= 0) { const [u, ...p] = authority.slice(0, at).split(':'); out.username = u; out.password = p.join(':'); }
    const h = /^(\[[0-9a-fA-F:.]+\]|[^:]*)(?::(\d*))?$/.exec(authority.slice(at + 1));
    if (!h || (special && protocol !== 'file:' && h[1] === '') || /[\s<>^|%\\]/.test(h[1]) || Number(h[2] || 0) > 65535) return null;
    out.hostname = special ? decodeURIComponent(h[1]).toLowerCase() : h[1];
    out.port = h[2] === undefined || h[2] === '' || String(Number(h[2])) === specialPorts[protocol] ? '' : String(Number(h[2]));
  }
  out.pathname = special || out.slashes ? cleanPath(rest, special || rest !== '') : rest;
  if (special && out.pathname === '') out.pathname = '/';
  return out;
}

const querystring = {
  escape: encodeURIComponent, unescape: unescapeQuery,
  parse(text, sep = '&', eq = '=') {
    const out = Object.create(null);
    for (const part of `${text}`.split(sep)) {
      if (part === '') continue;
      const i = part.indexOf(eq), k = unescapeQuery(i < 0 ? part : part.slice(0, i)), v = i < 0 ? '' : unescapeQuery(part.slice(i + eq.length));
      if (k in out) out[k] = [].concat(out[k], v);
      else out[k] = v;
    }
    return out;
  },
  stringify: (o, sep = '&', eq = '=') => Object.entries(o ?? {}).flatMap(([k, v]) => [].concat(v).map((x) => `${encodeURIComponent(k)}${eq}${encodeURIComponent(x ?? '')}`)).join(sep),
};
querystring.decode = querystring.parse; querystring.encode = querystring.stringify;

const url = {
  URL, URLSearchParams,
  fileURLToPath: (u) => toPath(u instanceof URL ? u : new URL(u)),
  pathToFileURL: (p) => new URL(`file://${path.resolve(p).split('/').map(encodeURIComponent).join('/')}`),
  parse(text, query) {
    let u;
    try { u = new URL(text); } catch {
      const [, pathname, search = '', hash = ''] = /^([^?#]*)(\?[^#]*)?(#.*)?$/s.exec(text);
      return { protocol: null, host: null, hostname: null, port: null, pathname, search: search || null, query: query ? querystring.parse(search.slice(1)) : search.slice(1) || null, hash: hash || null, path: pathname + search, href: text };
    }
    return { protocol: u.protocol, slashes: true, auth: u.username ? `${u.username}${u.password ? `:${u.password}` : ''}` : null, host: u.host, port: u.port || null, hostname: u.hostname, hash: u.hash || null,
      search: u.search || null, query: query ? querystring.parse(u.search.slice(1)) : u.search.slice(1) || null, pathname: u.pathname, path: u.pathname + u.search, href: u.href };
  },
  format: (u) => (typeof u === 'string' ? u : u.href ?? `${u.protocol ?? ''}${u.protocol && !u.protocol.endsWith(':') ? ':' : ''}//${u.host ?? u.hostname ?? ''}${u.port && !u.host ? `:${u.port}` : ''}${u.pathname ?? ''}${u.search ?? ''}${u.hash ?? ''}`),
  resolve: (from, to) => new URL(to, from).href,
};

// ---- os, crypto, child_process, readline and others

const os = {
  EOL: '\n', platform: () => 'linux', type: () => 'Linux', arch: () => 'wasm32', release: () => '0', machine: () => 'wasm32', version: () => 'Sandbar', hostname: () => 'sandbox',
  homedir: () => process.env.HOME || '/home/user', tmpdir: () => process.env.TMPDIR || '/tmp', endianness: () => 'LE', uptime: process.uptime, loadavg: () => [0, 0, 0],
  totalmem: () => info.memory, freemem: () => Math.max(0, info.memory - host('memory')), cpus: () => [{ model: 'WebAssembly', speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }],
  availableParallelism: () => 1, networkInterfaces: () => ({}), userInfo: () => ({ uid: 1000, gid: 1000, username: 'user', homedir: os.homedir(), shell: '/bin/sh' }),
  constants: { signals: { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGTERM: 15 }, errno: info.numbers }, devNull: '/dev/null',
};

class Hash {
  #name; #key; #parts = []; #done = false;
  constructor(name, key) {
    this.#name = name.toLowerCase(); this.#key = key;
    if (typeof host('hash', this.#name, new Uint8Array(0)) === 'number') throw nodeError(Error, 'ERR_OSSL_EVP_UNSUPPORTED', 'Digest method not supported');
  }
  update(data, encoding) {
    if (this.#done) throw nodeError(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    this.#parts.push(Uint8Array.from(dataBytes(data, encoding)));
    return this;
  }
  digest(encoding) {
    if (this.#done) throw nodeError(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    this.#done = true;
    const data = Buffer.concat(this.#parts), sum = (b) => host('hash', this.#name, b);
    if (this.#key === undefined) return inEncoding(sum(data), encoding);
    const block = /sha(384|512)/.test(this.#name) ? 128 : 64;
    const key = Buffer.alloc(block);
    key.set(this.#key.length > block ? sum(this.#key) : this.#key);
    const inner = sum(Buffer.concat([key.map((b) => b ^ 0x36), data]));
    return inEncoding(sum(Buffer.concat([key.map((b) => b ^ 0x5c), inner])), encoding);
  }
  copy() { const h = new Hash(this.#name, this.#key); h.#parts = [...this.#parts]; return h; }
}
const hex = (b) => Array.from(b, (c) => c.toString(16).padStart(2, '0')).join('');
const crypto = {
  randomBytes(n, callback) { const b = Buffer.from(host('random', n).buffer); if (callback) { process.nextTick(callback, null, b); return undefined; } return b; },
  randomUUID() {
    const b = host('random', 16);
    b[6] = (b[6] & 15) | 64; b[8] = (b[8] & 63) | 128;
    const h = hex(b);
    return `${h.slice(0, 8)}-${h.slice(8, 12)}-${h.slice(12, 16)}-${h.slice(16, 20)}-${h.slice(20)}`;
  },
  randomInt(min, max, callback) {
    if (typeof max !== 'number') [min, max, callback] = [0, min, max];
    const n = min + Math.floor(Math.random() * (max - min));
    if (callback) process.nextTick(callback, null, n);
    return n;
  },
  randomFillSync(b) { bytesOf(b).set(host('random', b.byteLength)); return b; },
  getRandomValues(b) {
    if (!ArrayBuffer.isView(b) || b instanceof Float32Array || b instanceof Float64Array) throw domError('TypeMismatchError', 'The data argument must be an integer-type TypedArray');
    if (b.byteLength > 65536) throw domError('QuotaExceededError', 'The requested length exceeds 65,536 bytes');
    return crypto.randomFillSync(b);
  },
  createHash: (name) => new Hash(name), createHmac: (name, key) => new Hash(name, dataBytes(key)),
  hash: (name, data, encoding = 'hex') => new Hash(name).update(data).digest(encoding),
  getHashes: () => ['md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512'],
  timingSafeEqual(a, b) {
    if (a.byteLength !== b.byteLength) throw nodeError(RangeError, 'ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH', 'Input buffers must have the same byte length');
    return Buffer.compare(bytesOf(a), bytesOf(b)) === 0;
  },
};
crypto.webcrypto = { getRandomValues: crypto.getRandomValues, randomUUID: crypto.randomUUID,
  subtle: { digest: async (name, data) => { const h = host('hash', String(name.name ?? name).toLowerCase().replace('-', ''), bytesOf(data)); if (typeof h === 'number') throw domError('NotSupportedError', 'Unrecognized algorithm name'); return h.buffer; } } };

function runProgram(args, o = {}) {
  const env = Object.entries(o.env ?? process.env).filter(([, v]) => v !== undefined).map(([k, v]) => `${k}=${v}`);
  const input = o.input === undefined || o.input === null ? new Uint8Array(0) : dataBytes(o.input);
  const r = host('spawn', JSON.stringify({ args: args.map(String), env, dir: o.cwd === undefined ? directory : path.resolve(toPath(o.cwd)) }), input);
  const pid = process.pid + 1;
  if (typeof r === 'number') {
    const e = systemError(-r, `spawnSync ${args[0]}`);
    e.message = `spawnSync ${args[0]} ${e.code}`; e.path = args[0]; e.spawnargs = args.slice(1);
    return { error: e, status: null, signal: null, output: null, pid: 0, stdout: null, stderr: null };
  }
  const view = new DataView(r.buffer), size = view.getUint32(4, true);
  let stdout = Buffer.from(r.buffer, 8, size), stderr = Buffer.from(r.buffer, 8 + size);
  const where = (i) => (Array.isArray(o.stdio) ? o.stdio[i] : o.stdio) ?? (i === 2 && o.inheritErrors ? 'inherit' : 'pipe');
  if (where(1) === 'inherit') { writeAll(1, stdout); stdout = null; } else if (where(1) === 'ignore') stdout = null;
  if (where(2) === 'inherit') { writeAll(2, stderr); if (!o.inheritErrors) stderr = null; } else if (where(2) === 'ignore') stderr = null;
  const text = (b) => (b && o.encoding && o.encoding !== 'buffer' ? b.toString(o.encoding) : b);
  return { pid, output: [null, text(stdout), text(stderr)], stdout: text(stdout), stderr: text(stderr), status: view.getInt32(0, true), signal: null };
}

function outcomeOf(r, command) {
  if (r.error) throw r.error;
  if (r.status === 0) return r.stdout;
  const e = new Error(`Command failed: ${command}${r.stderr && r.stderr.length ? `\n${r.stderr}` : ''}`);
  throw Object.assign(e, { status: r.status, signal: null, output: r.output, pid: r.pid, stdout: r.stdout, stderr: r.stderr });
}
const shellArgs = (command, o) => [typeof o.shell === 'string' ? o.shell : '/bin/sh', '-c', command];

function spawnLater(args, o, command) {
  const child = new EventEmitter();
  const sink = (s) => { const r = new Readable({ read() {} }); s(r); return r; };
  let input = [];
  Object.assign(child, { pid: process.pid + 1, exitCode: null, signalCode: null, killed: false, connected: false, spawnargs: args, spawnfile: args[0], kill: () => false, ref() {}, unref() {} });
  const piped = (i) => ((Array.isArray(o.stdio) ? o.stdio[i] : o.stdio) ?? 'pipe') === 'pipe';
  child.stdout = piped(1) ? sink(() => {}) : null;
  child.stderr = piped(2) ? sink(() => {}) : null;
  const run = () => setImmediate(() => {
    const r = runProgram(args, { ...o, encoding: undefined, input: Buffer.concat(input) });
    if (r.error) { r.error.message = r.error.message.replace('spawnSync', 'spawn'); r.error.syscall = r.error.syscall.replace('spawnSync', 'spawn'); child.emit('error', r.error); child.stdout?.push(null); child.stderr?.push(null); return; }
    child.emit('spawn');
    if (r.stdout?.length && child.stdout) child.stdout.push(r.stdout);
    if (r.stderr?.length && child.stderr) child.stderr.push(r.stderr);
    child.stdout?.push(null); child.stderr?.push(null);
    child.exitCode = r.status;
    setImmediate(() => { child.emit('exit', r.status, null); setImmediate(() => child.emit('close', r.status, null)); });
  });
  let used = false;
  child.stdin = piped(0) ? new Writable({ write(chunk, e, callback) { input.push(chunk); callback(); }, final(callback) { callback(); run(); } }) : null;
  if (child.stdin) {
    const write = child.stdin.write, end = child.stdin.end;
    child.stdin.write = function (...a) { used = true; return write.apply(this, a); };
    child.stdin.end = function (...a) { used = true; return end.apply(this, a); };
    setImmediate(() => { if (!used && !child.stdin.listenerCount('pipe')) child.stdin.end(); });
  } else run();
  return child;
}

const childProcess = {
  spawnSync: (file, args = [], o = {}) => { if (!Array.isArray(args)) [args, o] = [[], args ?? {}]; return runProgram(o.shell ? shellArgs([file, ...args].join(' '), o) : [file, ...args], o); },
  execFileSync: (file, args = [], o = {}) => { if (!Array.isArray(args)) [args, o] = [[], args ?? {}]; return outcomeOf(runProgram([file, ...args], { inheritErrors: true, ...o }), [file, ...args].join(' ')); },
  execSync: (command, o = {}) => outcomeOf(runProgram(shellArgs(command, o), { inheritErrors: true, ...o }), command),
  spawn: (file, args = [], o = {}) => { if (!Array.isArray(args)) [args, o] = [[], args ?? {}]; return spawnLater(o.shell ? shellArgs([file, ...args].join(' '), o) : [file, ...args], o); },
  exec(command, o, callback) { return childProcess.execFile(...shellArgs(command, {}).slice(0, 1), ['-c', command], typeof o === 'function' ? {} : o ?? {}, typeof o === 'function' ? o : callback); },
  execFile(file, args, o, callback) {
    if (typeof args === 'function') [args, o, callback] = [[], {}, args];
    else if (!Array.isArray(args)) [args, o, callback] = [[], args ?? {}, o];
    else if (typeof o === 'function') [o, callback] = [{}, o];
    const child = spawnLater([file, ...args], {});
    const parts = { stdout: [], stderr: [] };
    child.stdout.on('data', (d) => parts.stdout.push(d));
    child.stderr.on('data', (d) => parts.stderr.push(d));
    const text = (k) => inEncoding(Buffer.concat(parts[k]), (o && o.encoding) ?? 'utf8');
    child.on('error', (e) => callback?.(e, '', ''));
    child.on('close', (code) => {
      const out = text('stdout'), err = text('stderr');
      if (code === 0) return callback?.(null, out, err);
      const e = Object.assign(new Error(`Command failed: ${args[0] === '-c' ? args[1] : [file, ...args].join(' ')}\n${err}`), { code, killed: false, signal: null, cmd: args[0] === '-c' ? args[1] : [file, ...args].join(' '), stdout: out, stderr: err });
      return callback?.(e, out, err);
    });
    return child;
  },
  fork() { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', 'child_process.fork is not available in this sandbox'); },
};
for (const name of ['exec', 'execFile']) {
  childProcess[name][customPromisify] = (...args) => new Promise((resolve, reject) => childProcess[name](...args, (e, stdout, stderr) => (e ? reject(e) : resolve({ stdout, stderr }))));
}

class Interface extends EventEmitter {
  #text = ''; #closed = false; #questions = []; #lines = []; #o;
  constructor(o) {
    super();
    this.#o = o; this.terminal = false; this.line = '';
    const decoder = new StringDecoder();
    o.input.on('data', (d) => this.#take(decoder.write(d)));
    o.input.on('end', () => { const rest = this.#text; this.#text = ''; if (rest !== '') this.#line(rest); this.close(); });
  }
  #take(text) {
    this.#text += text;
    const lines = this.#text.split(/\r\n|\n|\r/);
    this.#text = lines.pop();
    for (const l of lines) this.#line(l);
  }
  #line(text) {
    const q = this.#questions.shift();
    if (q) q(text);
    else if (this.listenerCount('line') > 0) this.emit('line', text);
    else this.#lines.push(text);
  }
  setPrompt(p) { this.#o.prompt = p; }
  getPrompt() { return this.#o.prompt ?? '> '; }
  prompt() { this.#o.output?.write(this.getPrompt()); }
  question(text, o, callback) {
    if (typeof o === 'function') callback = o;
    this.#o.output?.write(text);
    if (this.#lines.length) { const l = this.#lines.shift(); process.nextTick(() => callback(l)); } else this.#questions.push(callback);
  }
  write() {} pause() { this.#o.input.pause(); return this; } resume() { this.#o.input.resume(); return this; }
  close() { if (!this.#closed) { this.#closed = true; this.#o.input.pause(); this.emit('close'); } }
  async *[Symbol.asyncIterator]() {
    const queue = this.#lines;
    let wake, over = this.#closed;
    this.on('line', (l) => { queue.push(l); wake?.(); });
    this.on('close', () => { over = true; wake?.(); });
    for (;;) {
      while (queue.length) yield queue.shift();
      if (over) return;
      await new Promise((resolve) => { wake = resolve; });
    }
  }
}
const createInterface = (input, output) => new Interface(input.on ? { input, output } : input);
const readline = { Interface, createInterface, clearLine() {}, cursorTo() {}, moveCursor() {}, clearScreenDown() {}, emitKeypressEvents() {},
  promises: { Interface, createInterface(o) { const i = createInterface(o); const ask = i.question.bind(i); i.question = (text) => new Promise((resolve) => ask(text, resolve)); return i; } } };

const performance = {
  now: performanceNow, timeOrigin: 0, mark: () => ({}), measure: () => ({}), clearMarks() {}, clearMeasures() {}, getEntries: () => [], getEntriesByName: () => [], getEntriesByType: () => [],
  eventLoopUtilization: () => ({ idle: 0, active: 0, utilization: 0 }), toJSON: () => ({ timeOrigin: performance.timeOrigin }), timerify: (f) => f,
};

class AsyncLocalStorage {
  #value;
  run(value, f, ...args) { const before = this.#value; this.#value = value; try { return f(...args); } finally { this.#value = before; } }
  getStore() { return this.#value; }
  enterWith(value) { this.#value = value; }
  exit(f, ...args) { return this.run(undefined, f, ...args); }
  disable() { this.#value = undefined; }
}

function structuredClone(value, o) {
  const seen = new Map();
  const fail = (v) => domError('DataCloneError', `${typeof v === 'symbol' ? String(v) : typeof v === 'function' ? v.toString() : inspect(v)} could not be cloned.`);
  const clone = (v) => {
    if (typeof v === 'symbol' || typeof v === 'function') throw fail(v);
    if (typeof v !== 'object' || v === null) return v;
    if (seen.has(v)) return seen.get(v);
    const keep = (c) => { seen.set(v, c); return c; };
    if (isDate(v)) return keep(new Date(v.getTime()));
    if (isRegExp(v)) return keep(new RegExp(v.source, v.flags));
    for (const C of [Number, String, Boolean, BigInt]) if (v instanceof C) return keep(Object(v.valueOf()));
    if (isArrayBuffer(v)) return keep(v.slice(0));
    if (v instanceof DataView) return keep(new DataView(clone(v.buffer), v.byteOffset, v.byteLength));
    if (isTyped(v)) { const C = v instanceof Buffer ? Uint8Array : v.constructor; return keep(new C(clone(v.buffer), v.byteOffset, v.length)); }
    if (isMap(v)) { const c = keep(new Map()); for (const [k, x] of v) c.set(clone(k), clone(x)); return c; }
    if (isSet(v)) { const c = keep(new Set()); for (const x of v) c.add(clone(x)); return c; }
    if (isError(v)) {
      const C = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }[v.name] ?? Error;
      const c = keep(new C(v.message));
      Object.defineProperty(c, 'stack', { value: v.stack, writable: true, configurable: true });
      if ('cause' in v) c.cause = clone(v.cause);
      return c;
    }
    if (isPromise(v) || isWeakMap(v) || isWeakSet(v)) throw domError('DataCloneError', `#<${constructorName(v)}> could not be cloned.`);
    const c = keep(Array.isArray(v) ? new Array(v.length) : {});
    for (const k of Object.keys(v)) c[k] = clone(v[k]);
    return c;
  };
  return clone(value);
}

const noNetwork = 'this sandbox has no network';
function fetch() {
  const e = new TypeError('fetch failed');
  e.cause = nodeError(Error, 'ENETUNREACH', noNetwork);
  return Promise.reject(e);
}

const timersModule = { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval: clearTimeout, clearImmediate,
  promises: { setTimeout: wait, setImmediate: (v) => new Promise((resolve) => setImmediate(resolve, v)), scheduler: { wait },
    async *setInterval(ms, value) { for (;;) { await wait(ms); yield value; } } } };
