// Text, base64 and Buffer.

const utf8 = (text) => host('encode', `${text}`);
const fromUtf8 = (bytes) => host('decode', bytes);

class TextEncoder {
  get encoding() { return 'utf-8'; }
  encode(text = '') { return utf8(text); }
  encodeInto(text, target) {
    let read = 0, written = 0;
    for (const c of text) {
      const b = utf8(c);
      if (written + b.length > target.length) break;
      target.set(b, written);
      written += b.length; read += c.length;
    }
    return { read, written };
  }
}

class TextDecoder {
  #fatal; #ignoreBOM; #encoding; #held = new Uint8Array(0);
  constructor(encoding = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
    const name = { 'utf-8': 'utf-8', utf8: 'utf-8', latin1: 'latin1', ascii: 'latin1', 'iso-8859-1': 'latin1', 'windows-1252': 'latin1', 'utf-16le': 'utf16le', 'utf-16': 'utf16le' }[String(encoding).trim().toLowerCase()];
    if (!name) throw nodeError(RangeError, 'ERR_ENCODING_NOT_SUPPORTED', `The "${encoding}" encoding is not supported`);
    this.#encoding = name; this.#fatal = fatal; this.#ignoreBOM = ignoreBOM;
  }
  get encoding() { return { 'utf-8': 'utf-8', latin1: 'windows-1252', utf16le: 'utf-16le' }[this.#encoding]; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBOM; }
  decode(input = new Uint8Array(0), { stream = false } = {}) {
    let bytes = bytesOf(input);
    if (this.#encoding !== 'utf-8') return Buffer.from(bytes).toString(this.#encoding);
    if (this.#held.length > 0) {
      const all = new Uint8Array(this.#held.length + bytes.length);
      all.set(this.#held); all.set(bytes, this.#held.length);
      bytes = all;
      this.#held = new Uint8Array(0);
    }
    if (stream) {
      const cut = wholeUtf8(bytes);
      this.#held = bytes.slice(cut);
      bytes = bytes.subarray(0, cut);
    }
    if (this.#fatal && !host('isUtf8', bytes)) {
      throw nodeError(TypeError, 'ERR_ENCODING_INVALID_ENCODED_DATA', 'The encoded data was not valid for encoding utf-8');
    }
    const text = fromUtf8(bytes);
    return !this.#ignoreBOM && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
}

// wholeUtf8 returns the number of bytes before an incomplete character at the end.
function wholeUtf8(b) {
  for (let back = 1; back <= 3 && back <= b.length; back++) {
    const c = b[b.length - back];
    if (c >= 0xc0) {
      const need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
      return need > back ? b.length - back : b.length;
    }
    if (c < 0x80) break;
  }
  return b.length;
}

function bytesOf(v) {
  if (v instanceof Uint8Array) return v;
  if (ArrayBuffer.isView(v)) return new Uint8Array(v.buffer, v.byteOffset, v.byteLength);
  if (isArrayBuffer(v)) return new Uint8Array(v);
  if (typeof SharedArrayBuffer !== 'undefined' && v instanceof SharedArrayBuffer) return new Uint8Array(v);
  throw argumentError('input', 'an instance of ArrayBuffer or ArrayBufferView', v);
}

const base64Alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const base64Values = new Int8Array(128).fill(-1);
for (let i = 0; i < 64; i++) base64Values[base64Alphabet.charCodeAt(i)] = i;
base64Values[45] = 62; base64Values[95] = 63;

function toBase64(b, url) {
  const parts = [];
  for (let i = 0; i < b.length; i += 3) {
    const n = (b[i] << 16) | ((b[i + 1] || 0) << 8) | (b[i + 2] || 0);
    parts.push(base64Alphabet[n >> 18] + base64Alphabet[(n >> 12) & 63] +
      (i + 1 < b.length ? base64Alphabet[(n >> 6) & 63] : '=') + (i + 2 < b.length ? base64Alphabet[n & 63] : '='));
  }
  const text = parts.join('');
  return url ? text.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '') : text;
}

function fromBase64(text) {
  const out = new Uint8Array(Math.ceil(text.length * 3 / 4));
  let bits = 0, count = 0, n = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i), v = c < 128 ? base64Values[c] : -1;
    if (c === 61) break;
    if (v < 0) continue;
    bits = (bits << 6) | v;
    count += 6;
    if (count >= 8) { count -= 8; out[n++] = (bits >> count) & 255; }
  }
  return out.subarray(0, n);
}

function domError(name, message) {
  return new DOMException(message, name);
}

function btoa(text) {
  const b = new Uint8Array(`${text}`.length);
  for (let i = 0; i < b.length; i++) {
    const c = `${text}`.charCodeAt(i);
    if (c > 255) throw domError('InvalidCharacterError', 'Invalid character');
    b[i] = c;
  }
  return toBase64(b);
}

function atob(text) {
  const clean = `${text}`.replace(/[\t\n\f\r ]/g, '');
  if (/[^A-Za-z0-9+/=]/.test(clean) || clean.replace(/={1,2}$/, '').length % 4 === 1) {
    throw domError('InvalidCharacterError', 'The string to be decoded is not correctly encoded.');
  }
  return latin1(fromBase64(clean));
}

function latin1(b, mask = 255) {
  let text = '';
  for (let i = 0; i < b.length; i += 4096) {
    text += String.fromCharCode.apply(null, Array.from(b.subarray(i, i + 4096), (c) => c & mask));
  }
  return text;
}

const encodings = { utf8: 'utf8', 'utf-8': 'utf8', hex: 'hex', base64: 'base64', base64url: 'base64url', ascii: 'ascii', latin1: 'latin1', binary: 'latin1', ucs2: 'utf16le', 'ucs-2': 'utf16le', utf16le: 'utf16le', 'utf-16le': 'utf16le' };

function encodingName(name) {
  if (name === undefined || name === null || name === '') return 'utf8';
  const found = encodings[`${name}`.toLowerCase()];
  if (!found) throw nodeError(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${name}`);
  return found;
}

function encodeText(text, encoding) {
  switch (encodingName(encoding)) {
    case 'utf8': return utf8(text);
    case 'hex': {
      const pairs = text.match(/^(?:[0-9a-fA-F]{2})*/)[0];
      return Uint8Array.from({ length: pairs.length / 2 }, (_, i) => parseInt(pairs.slice(i * 2, i * 2 + 2), 16));
    }
    case 'base64': case 'base64url': return fromBase64(text);
    case 'ascii': case 'latin1': return Uint8Array.from({ length: text.length }, (_, i) => text.charCodeAt(i) & 255);
    default: {
      const b = new Uint8Array(text.length * 2);
      for (let i = 0; i < text.length; i++) { b[i * 2] = text.charCodeAt(i) & 255; b[i * 2 + 1] = text.charCodeAt(i) >> 8; }
      return b;
    }
  }
}

class Buffer extends Uint8Array {
  static poolSize = 8192;
  static from(value, encodingOrOffset, length) {
    if (typeof value === 'string') return Buffer.#own(encodeText(value, encodingOrOffset));
    if (isArrayBuffer(value)) return new Buffer(value, encodingOrOffset, length);
    if (value && value.type === 'Buffer' && Array.isArray(value.data)) return Buffer.#own(Uint8Array.from(value.data));
    if (value != null && typeof value === 'object' && typeof value.length === 'number') return Buffer.#own(Uint8Array.from(value, (n) => n & 255));
    if (value != null && typeof value === 'object' && typeof value.valueOf() !== 'object') return Buffer.from(value.valueOf(), encodingOrOffset, length);
    throw nodeError(TypeError, 'ERR_INVALID_ARG_TYPE', `The first argument must be of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object. Received ${describe(value)}`);
  }
  static #own(bytes) { return new Buffer(bytes.buffer, bytes.byteOffset, bytes.byteLength); }
  static of(...values) { return Buffer.from(values); }
  static alloc(size, fill, encoding) {
    checkSize(size);
    const b = new Buffer(size);
    return fill === undefined || fill === 0 ? b : b.fill(fill, encoding);
  }
  static allocUnsafe(size) { checkSize(size); return new Buffer(size); }
  static allocUnsafeSlow(size) { checkSize(size); return new Buffer(size); }
  static isBuffer(v) { return v instanceof Buffer; }
  static isEncoding(v) { return typeof v === 'string' && v.toLowerCase() in encodings; }
  static byteLength(v, encoding) { return typeof v === 'string' ? encodeText(v, encoding).length : v.byteLength; }
  static compare(a, b) {
    const n = Math.min(a.length, b.length);
    for (let i = 0; i < n; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
    return Math.sign(a.length - b.length);
  }
  static concat(list, total = list.reduce((n, b) => n + b.length, 0)) {
    const out = Buffer.alloc(total);
    let at = 0;
    for (const b of list) {
      const part = b.subarray(0, Math.max(0, total - at));
      out.set(part, at);
      at += part.length;
    }
    return out;
  }
  get parent() { return this.buffer; }
  get offset() { return this.byteOffset; }
  toString(encoding, start = 0, end = this.length) {
    const b = this.subarray(Math.max(0, start), Math.min(this.length, end));
    switch (encodingName(encoding)) {
      case 'utf8': return fromUtf8(b);
      case 'hex': return Array.from(b, (c) => c.toString(16).padStart(2, '0')).join('');
      case 'base64': return toBase64(b);
      case 'base64url': return toBase64(b, true);
      case 'ascii': return latin1(b, 127);
      case 'latin1': return latin1(b);
      default: {
        let text = '';
        for (let i = 0; i + 1 < b.length; i += 2) text += String.fromCharCode(b[i] | (b[i + 1] << 8));
        return text;
      }
    }
  }
  toLocaleString(...args) { return this.toString(...args); }
  toJSON() { return { type: 'Buffer', data: Array.from(this) }; }
  equals(other) { return Buffer.compare(this, other) === 0; }
  compare(other) { return Buffer.compare(this, other); }
  write(text, offset = 0, length, encoding) {
    if (typeof offset === 'string') [encoding, offset, length] = [offset, 0, undefined];
    else if (typeof length === 'string') [encoding, length] = [length, undefined];
    let b = encodeText(text, encoding).subarray(0, Math.min(length ?? Infinity, this.length - offset));
    if (encodingName(encoding) === 'utf8') b = b.subarray(0, wholeUtf8(b));
    this.set(b, offset);
    return b.length;
  }
  fill(value, start = 0, end = this.length, encoding) {
    if (typeof start === 'string') [encoding, start, end] = [start, 0, this.length];
    if (typeof value === 'number') { super.fill(value & 255, start, end); return this; }
    const b = typeof value === 'string' ? encodeText(value, encoding) : bytesOf(value);
    if (b.length === 0) { super.fill(0, start, end); return this; }
    for (let i = start; i < end; i++) this[i] = b[(i - start) % b.length];
    return this;
  }
  copy(target, at = 0, start = 0, end = this.length) {
    const part = this.subarray(start, Math.min(end, start + target.length - at));
    target.set(part, at);
    return part.length;
  }
  slice(start, end) { return this.subarray(start, end); }
  indexOf(value, from = 0, encoding) { return search(this, value, from, encoding, false); }
  lastIndexOf(value, from = this.length, encoding) { return search(this, value, from, encoding, true); }
  includes(value, from, encoding) { return this.indexOf(value, from, encoding) >= 0; }
  swap16() { for (let i = 0; i + 1 < this.length; i += 2) [this[i], this[i + 1]] = [this[i + 1], this[i]]; return this; }
  readUIntBE(at, n) { let v = 0; for (let i = 0; i < n; i++) v = v * 256 + this[at + i]; return v; }
  readUIntLE(at, n) { let v = 0; for (let i = n - 1; i >= 0; i--) v = v * 256 + this[at + i]; return v; }
  readIntBE(at, n) { const v = this.readUIntBE(at, n), top = 2 ** (8 * n); return v >= top / 2 ? v - top : v; }
  readIntLE(at, n) { const v = this.readUIntLE(at, n), top = 2 ** (8 * n); return v >= top / 2 ? v - top : v; }
  writeUIntBE(v, at, n) { for (let i = n - 1; i >= 0; i--) { this[at + i] = v % 256; v = Math.floor(v / 256); } return at + n; }
  writeUIntLE(v, at, n) { for (let i = 0; i < n; i++) { this[at + i] = v % 256; v = Math.floor(v / 256); } return at + n; }
  writeIntBE(v, at, n) { return this.writeUIntBE(v < 0 ? v + 2 ** (8 * n) : v, at, n); }
  writeIntLE(v, at, n) { return this.writeUIntLE(v < 0 ? v + 2 ** (8 * n) : v, at, n); }
  [customInspect](depth, ctx) {
    const shown = Array.from(this.subarray(0, 50), (b) => b.toString(16).padStart(2, '0')).join(' ');
    const more = this.length > 50 ? ` ... ${this.length - 50} more byte${this.length > 51 ? 's' : ''}` : '';
    return `<${this.constructor.name} ${shown}${more}>`;
  }
}

function checkSize(size) {
  if (typeof size !== 'number') throw argumentError('size', 'of type number', size);
  if (!(size >= 0 && size <= 2 ** 31)) throw nodeError(RangeError, 'ERR_OUT_OF_RANGE', `The value of "size" is out of range. It must be >= 0 && <= 2147483648. Received ${size}`);
}

function search(b, value, from, encoding, last) {
  if (typeof from === 'string') [encoding, from] = [from, last ? b.length : 0];
  if (typeof value === 'number') return last ? Uint8Array.prototype.lastIndexOf.call(b, value & 255, from) : Uint8Array.prototype.indexOf.call(b, value & 255, from);
  const v = typeof value === 'string' ? encodeText(value, encoding) : value;
  if (from < 0) from = Math.max(0, b.length + from);
  const at = (i) => { for (let j = 0; j < v.length; j++) if (b[i + j] !== v[j]) return false; return true; };
  if (last) { for (let i = Math.min(from, b.length - v.length); i >= 0; i--) if (at(i)) return i; return -1; }
  for (let i = from; i + v.length <= b.length; i++) if (at(i)) return i;
  return -1;
}

// DataView implements the methods for fixed-size numbers.
for (const [name, kind, size] of [['UInt8', 'Uint8', 1], ['Int8', 'Int8', 1], ['UInt16', 'Uint16', 2], ['Int16', 'Int16', 2], ['UInt32', 'Uint32', 4],
  ['Int32', 'Int32', 4], ['BigUInt64', 'BigUint64', 8], ['BigInt64', 'BigInt64', 8], ['Float', 'Float32', 4], ['Double', 'Float64', 8]]) {
  for (const order of size === 1 ? [''] : ['LE', 'BE']) {
    const view = (b, at) => {
      if (!Number.isInteger(at) || at < 0 || at + size > b.length) {
        if (b.length < size) throw nodeError(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', 'Attempt to access memory outside buffer bounds');
        throw nodeError(RangeError, 'ERR_OUT_OF_RANGE', `The value of "offset" is out of range. It must be >= 0 and <= ${b.length - size}. Received ${at}`);
      }
      return new DataView(b.buffer, b.byteOffset, b.byteLength);
    };
    const methods = {
      [`read${name}${order}`](at = 0) { return view(this, at)[`get${kind}`](at, order === 'LE'); },
      [`write${name}${order}`](value, at = 0) { view(this, at)[`set${kind}`](at, value, order === 'LE'); return at + size; },
    };
    hide(Buffer.prototype, methods);
    const alias = {};
    for (const key of Object.keys(methods)) if (key.includes('UInt')) alias[key.replace('UInt', 'Uint')] = methods[key];
    hide(Buffer.prototype, alias);
  }
}
