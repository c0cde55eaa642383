// util.inspect and util.format.

const customInspect = Symbol.for('nodejs.util.inspect.custom');
const inspectDefaults = {
  depth: 2, showHidden: false, colors: false, customInspect: true, maxArrayLength: 100,
  maxStringLength: 10000, breakLength: 80, compact: 3, sorted: false, getters: false, numericSeparator: false,
};
const identifier = /^[a-zA-Z_][a-zA-Z_0-9]*$/;
const toTag = (v) => Object.prototype.toString.call(v).slice(8, -1);
const propertyIsEnumerable = Object.prototype.propertyIsEnumerable;
const TypedArray = Object.getPrototypeOf(Uint8Array);
const typedName = Object.getOwnPropertyDescriptor(TypedArray.prototype, Symbol.toStringTag).get;
const isTyped = (v) => typedName.call(v) !== undefined;
const generatorProto = Object.getPrototypeOf(function* () {}).prototype;

// is reports whether a method of a builtin class accepts v: then v is of that
// class, whatever its prototype is.
function is(probe) {
  return (v) => {
    try { probe(v); return true; } catch { return false; }
  };
}
const getter = (C, name) => Object.getOwnPropertyDescriptor(C.prototype, name).get;
const mapSize = getter(Map, 'size'), setSize = getter(Set, 'size'), bufferSize = getter(ArrayBuffer, 'byteLength');
const isMap = is((v) => mapSize.call(v)), isSet = is((v) => setSize.call(v));
const isDate = is((v) => Date.prototype.getTime.call(v));
const isArrayBuffer = is((v) => bufferSize.call(v));
const isWeakMap = is((v) => WeakMap.prototype.has.call(v, v)), isWeakSet = is((v) => WeakSet.prototype.has.call(v, v));
const isError = (v) => v instanceof Error || toTag(v) === 'Error';
const isPromise = (v) => v instanceof Promise;
const isRegExp = (v) => toTag(v) === 'RegExp' && v instanceof RegExp;

function quote(s) {
  let mark = "'";
  if (s.includes("'")) {
    if (!s.includes('"')) mark = '"';
    else if (!s.includes('`') && !s.includes('${')) mark = '`';
  }
  const named = { '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r', '\\': '\\\\', '\v': '\\v' };
  let out = mark;
  for (let i = 0; i < s.length; i++) {
    const c = s[i], n = s.charCodeAt(i);
    if (named[c]) out += named[c];
    else if (c === mark) out += '\\' + c;
    else if (n < 32 || (n >= 127 && n < 160)) out += '\\x' + n.toString(16).toUpperCase().padStart(2, '0');
    else if (n >= 0xd800 && n < 0xe000) {
      const next = s.charCodeAt(i + 1);
      if (n < 0xdc00 && next >= 0xdc00 && next < 0xe000) out += c + s[++i];
      else out += '\\u' + n.toString(16);
    } else out += c;
  }
  return out + mark;
}

function formatNumber(n) {
  return Object.is(n, -0) ? '-0' : `${n}`;
}

function formatPrimitive(ctx, value) {
  switch (typeof value) {
    case 'string': {
      let trailer = '';
      if (value.length > ctx.maxStringLength) {
        const rest = value.length - ctx.maxStringLength;
        value = value.slice(0, ctx.maxStringLength);
        trailer = `... ${rest} more character${rest > 1 ? 's' : ''}`;
      }
      if (ctx.compact !== true && value.length > 16 && value.length > ctx.breakLength - ctx.indentation - 4) {
        return value.split(/(?<=\n)/).map(quote).join(` +\n${' '.repeat(ctx.indentation + 2)}`) + trailer;
      }
      return quote(value) + trailer;
    }
    case 'number': return formatNumber(value);
    case 'bigint': return `${value}n`;
    case 'symbol': return Symbol.prototype.toString.call(value);
    default: return `${value}`;
  }
}

// width returns the number of terminal columns of a text.
function width(text) {
  let n = 0;
  for (const c of text.replace(/\u001b\[\d\d?m/g, '')) {
    const p = c.codePointAt(0);
    if (p < 32 || (p >= 0x7f && p < 0xa0) || (p >= 0x300 && p <= 0x36f) || (p >= 0x200b && p <= 0x200f) || (p >= 0xfe00 && p <= 0xfe0f)) continue;
    const wide = p >= 0x1100 && (p <= 0x115f || (p >= 0x2e80 && p <= 0xa4cf && p !== 0x303f) || (p >= 0xac00 && p <= 0xd7a3) ||
      (p >= 0xf900 && p <= 0xfaff) || (p >= 0xfe30 && p <= 0xfe6f) || (p >= 0xff00 && p <= 0xff60) || (p >= 0xffe0 && p <= 0xffe6) ||
      (p >= 0x1f300 && p <= 0x1f64f) || (p >= 0x1f900 && p <= 0x1f9ff) || (p >= 0x20000 && p <= 0x3fffd));
    n += wide ? 2 : 1;
  }
  return n;
}

function instanceOf(value, C) {
  try { return value instanceof C; } catch { return false; }
}

// constructorName returns the name of an object's nearest class, or null if it
// has none.
function constructorName(value) {
  for (let o = value; o !== null; o = Object.getPrototypeOf(o)) {
    const d = Object.getOwnPropertyDescriptor(o, 'constructor');
    if (d !== undefined && typeof d.value === 'function' && d.value.name !== '' && instanceOf(value, d.value)) {
      return String(d.value.name);
    }
  }
  return null;
}

function prefix(name, tag, fallback, size = '') {
  if (name === null) {
    return tag !== '' && fallback !== tag ? `[${fallback}${size}: null prototype] [${tag}] ` : `[${fallback}${size}: null prototype] `;
  }
  return tag !== '' && name !== tag ? `${name}${size} [${tag}] ` : `${name}${size} `;
}

function functionBase(value, name, tag) {
  const text = Function.prototype.toString.call(value);
  if (text.startsWith('class') && text.endsWith('}')) {
    const own = Object.prototype.hasOwnProperty.call(value, 'name') && value.name;
    let base = own ? `[class ${value.name}` : '[class (anonymous)';
    if (name !== 'Function' && name !== null) base += ` [${name}]`;
    if (tag !== '' && name !== tag) base += ` [${tag}]`;
    const parent = Object.getPrototypeOf(value);
    if (name === null) base += ' extends [null prototype]';
    else if (parent && parent.name) base += ` extends ${parent.name}`;
    return base + ']';
  }
  const kind = toTag(value).endsWith('Function') ? toTag(value) : 'Function';
  let base = `[${kind}`;
  if (name === null) base += ' (null prototype)';
  base += value.name === '' ? ' (anonymous)]' : `: ${typeof value.name === 'string' ? value.name : inspect(value.name)}]`;
  if (name !== kind && name !== null && name !== 'Function') base += ` ${name}`;
  if (tag !== '' && name !== tag && tag !== kind) base += ` [${tag}]`;
  return base;
}

function errorStack(e) {
  const name = e.name === undefined ? 'Error' : String(e.name);
  let message = '';
  try { message = String(e.message); } catch { /* what it throws is of no use here */ }
  const head = message === '' ? name : name === '' ? message : `${name}: ${message}`;
  const stack = typeof e.stack === 'string' ? e.stack.replace(/\n+$/, '') : '';
  if (stack === '') return `[${head}]`;
  return stack.startsWith('    at') ? `${head}\n${stack}` : stack;
}

function errorBase(ctx, e, name, tag, keys) {
  let text = errorStack(e);
  const removed = ['name', 'message', 'stack'];
  for (const key of removed) {
    const i = keys.indexOf(key);
    if (i >= 0 && (typeof e[key] !== 'string' || text.includes(e[key]))) keys.splice(i, 1);
  }
  if ('cause' in e && Object.prototype.hasOwnProperty.call(e, 'cause') && !keys.includes('cause')) keys.push('cause');
  if (Array.isArray(e.errors) && Object.prototype.hasOwnProperty.call(e, 'errors') && !keys.includes('errors')) keys.push('errors');
  if (name !== null && e.name === 'Error' && name !== 'Error' && text.startsWith('Error')) text = name + text.slice(5);
  if (ctx.indentation !== 0) text = text.replaceAll('\n', '\n' + ' '.repeat(ctx.indentation));
  return text;
}

function formatValue(ctx, value, level, typed) {
  if (typeof value !== 'object' && typeof value !== 'function') return formatPrimitive(ctx, value);
  if (value === null) return 'null';
  const proxy = host('proxy', value);
  if (proxy !== undefined) value = proxy;
  if (ctx.customInspect) {
    const custom = value[customInspect];
    if (typeof custom === 'function' && custom !== inspect && !(value.constructor && value.constructor.prototype === value)) {
      const depth = ctx.depth === null ? null : ctx.depth - level;
      const result = custom.call(value, depth, { ...ctx.user, depth, stylize: (s) => `${s}` }, inspect);
      if (result !== value) {
        if (typeof result !== 'object') return `${result}`;
        return formatValue(ctx, result, level).replaceAll('\n', `\n${' '.repeat(ctx.indentation)}`);
      }
    }
  }
  if (ctx.seen.includes(value)) {
    let index = 1;
    if (ctx.circular === undefined) ctx.circular = new Map([[value, 1]]);
    else if (ctx.circular.has(value)) index = ctx.circular.get(value);
    else ctx.circular.set(value, index = ctx.circular.size + 1);
    return `[Circular *${index}]`;
  }
  return formatRaw(ctx, value, level, typed);
}

function ownKeys(value, hidden) {
  const symbols = Object.getOwnPropertySymbols(value);
  if (hidden) return [...Object.getOwnPropertyNames(value), ...symbols];
  return [...Object.keys(value), ...symbols.filter((s) => propertyIsEnumerable.call(value, s))];
}

const arrayIndex = /^(0|[1-9][0-9]*)$/;
const otherKeys = (value, hidden) => ownKeys(value, hidden).filter((k) => typeof k === 'symbol' || !arrayIndex.test(k));

function formatRaw(ctx, value, level, typed) {
  const name = constructorName(value);
  let tag = value[Symbol.toStringTag];
  if (typeof tag !== 'string' || (tag !== '' && (ctx.showHidden ? Object.prototype.hasOwnProperty : propertyIsEnumerable).call(value, Symbol.toStringTag))) tag = '';
  let keys, base = '', braces = ['{', '}'], formatter = () => [], isList = false, plain = false;

  if (Array.isArray(value)) {
    keys = otherKeys(value, ctx.showHidden);
    const p = name !== 'Array' || tag !== '' ? prefix(name, tag, 'Array', `(${value.length})`) : '';
    braces = [`${p}[`, ']'];
    if (value.length === 0 && keys.length === 0) return `${braces[0]}]`;
    isList = true;
    formatter = formatArray;
  } else if (isSet(value)) {
    keys = ownKeys(value, ctx.showHidden);
    const p = prefix(name, tag, 'Set', `(${setSize.call(value)})`);
    braces[0] = `${p}{`;
    if (setSize.call(value) === 0 && keys.length === 0) return `${p}{}`;
    formatter = formatSet;
  } else if (isMap(value)) {
    keys = ownKeys(value, ctx.showHidden);
    const p = prefix(name, tag, 'Map', `(${mapSize.call(value)})`);
    braces[0] = `${p}{`;
    if (mapSize.call(value) === 0 && keys.length === 0) return `${p}{}`;
    formatter = formatMap;
  } else if (isTyped(value)) {
    keys = otherKeys(value, ctx.showHidden);
    const kind = typedName.call(value);
    const p = prefix(name, tag, kind, `(${value.length})`);
    braces = [`${p}[`, ']'];
    if (value.length === 0 && keys.length === 0) return `${braces[0]}]`;
    isList = true;
    formatter = formatTyped;
  } else if (toTag(value) === 'Map Iterator' || toTag(value) === 'Set Iterator') {
    keys = ownKeys(value, ctx.showHidden);
    braces = [`[${tag}] {`, '}'];
    formatter = (ctx, v) => formatSet(ctx, new Set(value[Symbol.iterator] ? [] : []));
    plain = true;
  } else {
    keys = ownKeys(value, ctx.showHidden);
    if (toTag(value) === 'Arguments') {
      braces[0] = '[Arguments] {';
      if (keys.length === 0) return '[Arguments] {}';
    } else if (typeof value === 'function') {
      base = functionBase(value, name, tag);
      if (keys.length === 0) return base;
    } else if (isRegExp(value)) {
      base = RegExp.prototype.toString.call(value);
      const p = prefix(name, tag, 'RegExp');
      if (p !== 'RegExp ') base = p + base;
      if (keys.length === 0) return base;
    } else if (isDate(value)) {
      base = Number.isNaN(value.getTime()) ? 'Invalid Date' : Date.prototype.toISOString.call(value);
      const p = prefix(name, tag, 'Date');
      if (p !== 'Date ') base = p + base;
      if (keys.length === 0) return base;
    } else if (isError(value)) {
      base = errorBase(ctx, value, name, tag, keys);
      if (keys.length === 0) return base;
    } else if (isArrayBuffer(value)) {
      const p = prefix(name, tag, 'ArrayBuffer');
      if (typed === undefined) formatter = formatBuffer;
      else if (keys.length === 0) return p + `{ byteLength: ${value.byteLength} }`;
      braces[0] = `${p}{`;
      keys.unshift('byteLength');
    } else if (toTag(value) === 'DataView') {
      braces[0] = `${prefix(name, tag, 'DataView')}{`;
      keys.unshift('byteLength', 'byteOffset', 'buffer');
    } else if (isPromise(value)) {
      braces[0] = `${prefix(name, tag, 'Promise')}{`;
      formatter = formatPromise;
    } else if (isWeakSet(value) || isWeakMap(value)) {
      braces[0] = `${prefix(name, tag, isWeakSet(value) ? 'WeakSet' : 'WeakMap')}{`;
      formatter = () => ['<items unknown>'];
    } else if (value instanceof WeakRef) {
      braces[0] = `${prefix(name, tag, 'WeakRef')}{`;
      formatter = (ctx, v, l) => { ctx.indentation += 2; const s = formatValue(ctx, v.deref(), l); ctx.indentation -= 2; return [s]; };
    } else if (name === 'Module' && tag === '' ) {
      braces[0] = `[Module: null prototype] {`;
    } else {
      const boxed = boxedPrimitive(ctx, value, name, tag, keys);
      if (boxed !== undefined) {
        base = boxed;
        if (keys.length === 0) return base;
      } else if (keys.length === 0) {
        return name === 'Object' && tag === '' ? '{}' : `${prefix(name, tag, tag === 'Module' ? 'Module' : 'Object')}{}`.replace(/^\[Module: null prototype\] \[Module\]/, '[Module: null prototype]');
      } else if (tag === 'Module' && name === null) {
        braces[0] = '[Module: null prototype] {';
      } else if (name !== 'Object' || tag !== '') {
        braces[0] = `${prefix(name, tag, 'Object')}{`;
      }
    }
  }

  if (level > ctx.depth && ctx.depth !== null) {
    const short = prefix(name, tag, Array.isArray(value) ? 'Array' : 'Object').slice(0, -1);
    return `[${name === null ? short : short}]`;
  }
  level += 1;
  ctx.seen.push(value);
  ctx.currentDepth = level;
  let output;
  const indentation = ctx.indentation;
  try {
    output = formatter(ctx, value, level);
    for (const key of keys) output.push(formatProperty(ctx, value, level, key, isList));
  } catch (e) {
    ctx.indentation = indentation;
    if (e instanceof RangeError || e.name === 'InternalError') return `[${name || tag || 'Object'}: Inspection interrupted prematurely. Maximum call stack size exceeded.]`;
    throw e;
  }
  if (ctx.circular !== undefined) {
    const index = ctx.circular.get(value);
    if (index !== undefined) {
      if (base !== '') base = `<ref *${index}> ${base}`;
      else braces[0] = `<ref *${index}> ${braces[0]}`;
    }
  }
  ctx.seen.pop();
  if (ctx.sorted) {
    const compare = ctx.sorted === true ? undefined : ctx.sorted;
    if (!isList) output.sort(compare);
    else if (keys.length > 1) output = [...output.slice(0, -keys.length), ...output.slice(-keys.length).sort(compare)];
  }
  return joinOutput(ctx, output, base, braces, isList, level, value);
}

function boxedPrimitive(ctx, value, name, tag, keys) {
  for (const C of [Number, String, Boolean, BigInt, Symbol]) {
    let inner;
    try { inner = C.prototype.valueOf.call(value); } catch { continue; }
    if (C === String) keys.splice(0, inner.length);
    let text = `[${C.name}`;
    if (C.name !== name) text += name === null ? ' (null prototype)' : ` (${name})`;
    text += `: ${formatPrimitive({ ...ctx, compact: true }, inner)}]`;
    if (tag !== '' && tag !== name && C !== Symbol && C !== BigInt) text += ` [${tag}]`;
    return text;
  }
  return undefined;
}

const moreItems = (n) => `... ${n} more item${n > 1 ? 's' : ''}`;

function formatArray(ctx, value, level) {
  const output = [], limit = Math.min(Math.max(0, ctx.maxArrayLength), value.length);
  let i = 0;
  for (; i < value.length && output.length < limit; i++) {
    if (Object.prototype.hasOwnProperty.call(value, i)) {
      output.push(formatProperty(ctx, value, level, i, 'element'));
      continue;
    }
    let end = i;
    while (end < value.length && !Object.prototype.hasOwnProperty.call(value, end)) end++;
    output.push(`<${end - i} empty item${end - i > 1 ? 's' : ''}>`);
    i = end - 1;
  }
  if (i < value.length) output.push(moreItems(value.length - i));
  return output;
}

function formatTyped(ctx, value) {
  const limit = Math.min(Math.max(0, ctx.maxArrayLength), value.length), output = [];
  for (let i = 0; i < limit; i++) output.push(formatPrimitive(ctx, value[i]));
  if (value.length > limit) output.push(moreItems(value.length - limit));
  return output;
}

function formatBuffer(ctx, value) {
  const bytes = new Uint8Array(value), limit = Math.min(Math.max(0, ctx.maxArrayLength), bytes.length);
  let text = Array.from(bytes.subarray(0, limit), (b) => b.toString(16).padStart(2, '0')).join(' ');
  if (bytes.length > limit) text += ` ... ${bytes.length - limit} more byte${bytes.length - limit > 1 ? 's' : ''}`;
  return [`[Uint8Contents]: <${text}>`];
}

function formatSet(ctx, value, level) {
  const output = [], limit = Math.max(0, ctx.maxArrayLength);
  ctx.indentation += 2;
  for (const v of Set.prototype.values.call(value)) {
    if (output.length >= limit) { output.push(moreItems(setSize.call(value) - limit)); break; }
    output.push(formatValue(ctx, v, level));
  }
  ctx.indentation -= 2;
  return output;
}

function formatMap(ctx, value, level) {
  const output = [], limit = Math.max(0, ctx.maxArrayLength);
  ctx.indentation += 2;
  for (const [k, v] of Map.prototype.entries.call(value)) {
    if (output.length >= limit) { output.push(moreItems(mapSize.call(value) - limit)); break; }
    output.push(`${formatValue(ctx, k, level)} => ${formatValue(ctx, v, level)}`);
  }
  ctx.indentation -= 2;
  return output;
}

function formatPromise(ctx, value, level) {
  const state = host('promiseState', value);
  if (state === 0) return ['<pending>'];
  ctx.indentation += 2;
  const text = formatValue(ctx, host('promiseResult', value), level);
  ctx.indentation -= 2;
  return [state === 2 ? `<rejected> ${text}` : text];
}

function formatProperty(ctx, value, level, key, list) {
  let text, space = ' ';
  const d = Object.getOwnPropertyDescriptor(value, key) || { value: value[key], enumerable: true };
  if ('value' in d) {
    const more = ctx.compact !== true || list ? 2 : 3;
    ctx.indentation += more;
    text = formatValue(ctx, d.value, level);
    if (more === 3 && ctx.breakLength < width(text)) space = `\n${' '.repeat(ctx.indentation)}`;
    ctx.indentation -= more;
  } else if (d.get !== undefined) {
    text = d.set !== undefined ? '[Getter/Setter]' : '[Getter]';
    if (ctx.getters) {
      try {
        ctx.indentation += 2;
        const got = d.get.call(value), inner = formatValue(ctx, got, level);
        ctx.indentation -= 2;
        text = typeof got === 'object' && got !== null ? `${text.slice(0, -1)}] ${inner}` : `${text.slice(0, -1)}: ${inner}]`;
      } catch (e) { text = `${text.slice(0, -1)}: <Inspection threw (${e.message})>]`; }
    }
  } else {
    text = d.set !== undefined ? '[Setter]' : 'undefined';
  }
  if (list === 'element') return text;
  let name;
  if (typeof key === 'symbol') name = `[${Symbol.prototype.toString.call(key)}]`;
  else if (key === '__proto__') name = "['__proto__']";
  else if (d.enumerable === false) name = `[${key}]`;
  else if (identifier.test(key)) name = key;
  else name = quote(key);
  return `${name}:${space}${text}`;
}

function groupElements(ctx, output, value) {
  let total = 0, longest = 0, count = output.length;
  if (ctx.maxArrayLength < output.length) count--; // the last one is the number of further elements
  const gap = 2, lengths = [];
  for (let i = 0; i < count; i++) {
    lengths[i] = width(output[i]);
    total += lengths[i] + gap;
    longest = Math.max(longest, lengths[i]);
  }
  const widest = longest + gap;
  if (widest * 3 + ctx.indentation >= ctx.breakLength || !(total / widest > 5 || longest <= 6)) return output;
  const bias = Math.sqrt(widest - total / output.length), biased = Math.max(widest - 3 - bias, 1);
  const columns = Math.min(
    Math.round(Math.sqrt(2.5 * biased * count) / biased),
    Math.floor((ctx.breakLength - ctx.indentation) / widest), ctx.compact * 4, 15);
  if (columns <= 1) return output;
  const widths = [];
  for (let i = 0; i < columns; i++) {
    let line = 0;
    for (let j = i; j < count; j += columns) line = Math.max(line, lengths[j]);
    widths.push(line + gap);
  }
  let numbers = true;
  if (value !== undefined) {
    for (let i = 0; i < output.length; i++) {
      if (typeof value[i] !== 'number' && typeof value[i] !== 'bigint') { numbers = false; break; }
    }
  }
  const lines = [];
  for (let i = 0; i < count; i += columns) {
    const max = Math.min(i + columns, count);
    let text = '', j = i;
    for (; j < max - 1; j++) {
      const pad = widths[j - i] + output[j].length - lengths[j], cell = `${output[j]}, `;
      text += numbers ? cell.padStart(pad) : cell.padEnd(pad);
    }
    text += numbers ? output[j].padStart(widths[j - i] + output[j].length - lengths[j] - gap) : output[j];
    lines.push(text);
  }
  if (ctx.maxArrayLength < output.length) lines.push(output[count]);
  return lines;
}

function joinOutput(ctx, output, base, braces, isList, level, value) {
  const lead = base ? `${base} ` : '';
  if (ctx.compact !== true) {
    if (typeof ctx.compact === 'number' && ctx.compact >= 1) {
      const entries = output.length;
      if (isList && entries > 6) output = groupElements(ctx, output, value);
      if (ctx.currentDepth - level < ctx.compact && entries === output.length) {
        const start = output.length + ctx.indentation + braces[0].length + base.length + 10;
        if (fits(ctx, output, start, base)) {
          const joined = output.join(', ');
          if (!joined.includes('\n')) return `${lead}${braces[0]} ${joined} ${braces[1]}`;
        }
      }
    }
    const indent = `\n${' '.repeat(ctx.indentation)}`;
    return `${lead}${braces[0]}${indent}  ${output.join(`,${indent}  `)}${indent}${braces[1]}`;
  }
  if (fits(ctx, output, 0, base)) return `${braces[0]}${base ? ` ${base}` : ''} ${output.join(', ')} ${braces[1]}`;
  const indent = `\n${' '.repeat(ctx.indentation)}`;
  const line = base === '' && braces[0].length === 1 ? ' ' : `${base ? ` ${base}` : ''}\n${indent}  `;
  return `${braces[0]}${line}${output.join(`,${indent}  `)} ${braces[1]}`;
}

function fits(ctx, output, start, base) {
  let total = output.length + start;
  if (total + output.length > ctx.breakLength) return false;
  for (const s of output) {
    total += s.length;
    if (total > ctx.breakLength) return false;
  }
  return base === '' || !base.includes('\n');
}

function inspect(value, options, ...legacy) {
  const ctx = { ...inspectDefaults, indentation: 0, currentDepth: 0, seen: [], circular: undefined, user: {} };
  if (typeof options === 'boolean') {
    ctx.showHidden = options;
    if (legacy[0] !== undefined) ctx.depth = legacy[0];
  } else if (options) {
    ctx.user = options;
    for (const key of Object.keys(options)) if (key in inspectDefaults && options[key] !== undefined) ctx[key] = options[key];
  }
  if (ctx.maxArrayLength === null) ctx.maxArrayLength = Infinity;
  if (ctx.maxStringLength === null) ctx.maxStringLength = Infinity;
  if (ctx.depth === Infinity) ctx.depth = null;
  return formatValue(ctx, value, 0);
}
inspect.custom = customInspect;
inspect.defaultOptions = { ...inspectDefaults };
inspect.colors = Object.create(null);
inspect.styles = Object.create(null);

// format formats values as printf does, and appends the remaining ones.
function formatWith(options, args) {
  const first = args[0];
  if (args.length === 1) return typeof first === 'string' ? first : inspect(first, options);
  let text = '', used = 0;
  if (typeof first === 'string') {
    used = 1;
    let last = 0;
    for (let i = 0; i < first.length - 1; i++) {
      if (first[i] !== '%') continue;
      const kind = first[i + 1];
      if (kind === '%') {
        text += first.slice(last, i) + '%';
        last = i + 2; i++;
        continue;
      }
      if (used === args.length) continue;
      const value = args[used];
      let piece;
      switch (kind) {
        case 's':
          if (typeof value === 'number') piece = formatNumber(value);
          else if (typeof value === 'bigint') piece = `${value}n`;
          else if (typeof value !== 'object' || value === null || hasOwnToString(value)) piece = String(value);
          else piece = inspect(value, { ...options, depth: 0, compact: 3 });
          break;
        case 'd': piece = typeof value === 'bigint' ? `${value}n` : typeof value === 'symbol' ? 'NaN' : formatNumber(Number(value)); break;
        case 'i': piece = typeof value === 'bigint' ? `${value}n` : typeof value === 'symbol' ? 'NaN' : formatNumber(parseInt(value)); break;
        case 'f': piece = typeof value === 'symbol' ? 'NaN' : formatNumber(parseFloat(value)); break;
        case 'j': try { piece = JSON.stringify(value); } catch (e) { if (!/circular/i.test(e.message)) throw e; piece = '[Circular]'; } break;
        case 'o': piece = inspect(value, { ...options, showHidden: true, depth: 4 }); break;
        case 'O': piece = inspect(value, options); break;
        case 'c': piece = ''; break;
        default: continue;
      }
      text += first.slice(last, i) + piece;
      last = i + 2; i++; used++;
    }
    text += first.slice(last);
  }
  for (; used < args.length; used++) {
    const value = args[used];
    text += (used > 0 ? ' ' : '') + (typeof value === 'string' ? value : inspect(value, options));
  }
  return text;
}

function hasOwnToString(value) {
  if (isError(value) || isDate(value)) return isError(value) ? false : true;
  if (typeof value.toString !== 'function') return false;
  if (Object.prototype.hasOwnProperty.call(value, 'toString')) return true;
  let o = value;
  do { o = Object.getPrototypeOf(o); } while (o && !Object.prototype.hasOwnProperty.call(o, 'toString'));
  const C = o && Object.getOwnPropertyDescriptor(o, 'constructor');
  return Boolean(C && typeof C.value === 'function' && !builtinNames.has(C.value.name));
}
const builtinNames = new Set(Object.getOwnPropertyNames(global).filter((n) => /^[A-Z]/.test(n)));

const format = (...args) => formatWith({}, args);
