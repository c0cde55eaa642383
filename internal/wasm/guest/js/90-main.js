// Modules, and the program itself.

const unavailable = (name, why) => new Proxy({}, { get(target, key) { if (typeof key === 'symbol' || key === 'then' || key === '__esModule' || key === 'default') return undefined; throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', `${name}.${key}: ${why}`); } });
const noThreads = 'there are no threads in this sandbox';

const builtins = {
  assert: () => assert, 'assert/strict': () => assert, buffer: () => ({ Buffer, kMaxLength: 2 ** 31, constants: { MAX_LENGTH: 2 ** 31, MAX_STRING_LENGTH: 2 ** 30 }, atob, btoa, SlowBuffer: Buffer, isUtf8: (b) => host('isUtf8', bytesOf(b)), isAscii: (b) => bytesOf(b).every((c) => c < 128) }),
  child_process: () => childProcess, console: () => console, constants: () => ({ ...fsConstants, ...os.constants.signals }), crypto: () => crypto, events: () => EventEmitterFunction,
  fs: () => fs, 'fs/promises': () => fs.promises, os: () => os, path: () => path, 'path/posix': () => path,
  perf_hooks: () => ({ performance, PerformanceObserver: class { observe() {} disconnect() {} } }), process: () => process, querystring: () => querystring, readline: () => readline, 'readline/promises': () => readline.promises,
  stream: () => stream, 'stream/promises': () => stream.promises, string_decoder: () => ({ StringDecoder }), timers: () => timersModule, 'timers/promises': () => timersModule.promises, tty: () => ({ isatty: () => false }),
  url: () => url, util: () => util, 'util/types': () => util.types, v8: () => ({ serialize: (v) => Buffer.from(JSON.stringify(v)), deserialize: (b) => JSON.parse(b), getHeapStatistics: () => ({ used_heap_size: host('memory'), heap_size_limit: info.memory }) }),
  vm: () => ({ runInThisContext: (code, o) => host('eval', code, (o && o.filename) || o || 'evalmachine.<anonymous>', 0), runInNewContext: (code, context = {}) => new Function(...Object.keys(context), `return eval(${JSON.stringify(code)})`)(...Object.values(context)) }),
  module: () => ({ createRequire: (from) => makeRequire(path.dirname(toPath(from instanceof URL || !`${from}`.startsWith('file:') ? from : new URL(from)))), builtinModules: Object.keys(builtins), isBuiltin: (n) => n.replace(/^node:/, '') in builtins }),
  async_hooks: () => ({ AsyncLocalStorage, AsyncResource: class { runInAsyncScope(f, self, ...args) { return f.apply(self, args); } } }), diagnostics_channel: () => ({ channel: () => ({ hasSubscribers: false, publish() {}, subscribe() {} }) }),
  worker_threads: () => Object.assign(Object.create(unavailable('worker_threads', noThreads)), { isMainThread: true, parentPort: null, workerData: null, threadId: 0 }),
  cluster: () => unavailable('cluster', noThreads),
};
for (const name of ['http', 'https', 'http2', 'net', 'tls', 'dgram', 'dns', 'dns/promises']) builtins[name] = () => unavailable(name, noNetwork);
for (const name of ['zlib', 'inspector', 'repl', 'wasi']) builtins[name] = () => unavailable(name, 'it is not available in this sandbox');

const loadedBuiltins = new Map();
function builtin(name) {
  const plain = name.replace(/^node:/, '');
  if (!Object.hasOwn(builtins, plain)) return undefined;
  if (!loadedBuiltins.has(plain)) loadedBuiltins.set(plain, builtins[plain]());
  return loadedBuiltins.get(plain);
}

const isFile = (p) => { const r = host('stat', p, 0); return typeof r === 'string' && r.startsWith('4 '); };
const isFolder = (p) => { const r = host('stat', p, 0); return typeof r === 'string' && r.startsWith('3 '); };

function packageOf(file) {
  for (let dir = path.dirname(file); ; dir = path.dirname(dir)) {
    const p = `${dir === '/' ? '' : dir}/package.json`;
    if (isFile(p)) { try { return { dir, json: JSON.parse(fs.readFileSync(p, 'utf8')) }; } catch (e) { throw new Error(`Invalid package config ${p}.`, { cause: e }); } }
    if (dir === '/') return null;
  }
}

function asFile(p, extensions) {
  if (isFile(p)) return p;
  return extensions.map((e) => p + e).find(isFile);
}
function asFolder(p) {
  if (!isFolder(p)) return undefined;
  if (isFile(`${p}/package.json`)) {
    const { main } = JSON.parse(fs.readFileSync(`${p}/package.json`, 'utf8'));
    if (main) { const m = path.join(p, main), found = asFile(m, ['.js', '.json']) ?? asFile(`${m}/index`, ['.js', '.json']); if (found) return found; }
  }
  return asFile(`${p}/index`, ['.js', '.json', '.mjs', '.cjs']);
}

// exportsOf returns the target for a subpath in "exports" of a package.json.
function exportsOf(value, conditions) {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) { for (const v of value) { const r = exportsOf(v, conditions); if (r) return r; } return undefined; }
  if (value && typeof value === 'object') for (const k of Object.keys(value)) if (k === 'default' || conditions.includes(k)) { const r = exportsOf(value[k], conditions); if (r) return r; }
  return undefined;
}

// resolveModule returns the file of a module for an importer in a directory.
function resolveModule(name, from, conditions) {
  if (name.startsWith('file:')) return toPath(new URL(name));
  if (/^\.{0,2}\//.test(name) || name === '.' || name === '..') {
    const p = path.resolve(from, name);
    return (name.endsWith('/') ? undefined : asFile(p, ['.js', '.json', '.mjs', '.cjs'])) ?? asFolder(p);
  }
  const [, packageName, rest = ''] = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(name) ?? [, name];
  for (let dir = from; ; dir = path.dirname(dir)) {
    const root = `${dir === '/' ? '' : dir}/node_modules/${packageName}`;
    if (isFolder(root)) {
      const json = isFile(`${root}/package.json`) ? JSON.parse(fs.readFileSync(`${root}/package.json`, 'utf8')) : {};
      if (json.exports !== undefined) {
        const table = typeof json.exports === 'object' && !Array.isArray(json.exports) && Object.keys(json.exports).some((k) => k.startsWith('.')) ? json.exports : { '.': json.exports };
        const target = exportsOf(table[`.${rest}`], conditions);
        if (target) return path.join(root, target);
      }
      const found = rest ? asFile(root + rest, ['.js', '.json', '.mjs', '.cjs']) ?? asFolder(root + rest) : asFolder(root);
      if (found) return found;
    }
    if (dir === '/') return undefined;
  }
}

function notFound(name, from) {
  return Object.assign(nodeError(Error, 'MODULE_NOT_FOUND', `Cannot find module '${name}'`), { requireStack: [from] });
}

const cache = Object.create(null);

class Module {
  constructor(id) { this.id = id; this.path = path.dirname(id); this.exports = {}; this.filename = id; this.loaded = false; this.children = []; this.paths = []; }
}

function makeRequire(dir, parent) {
  const require = (name) => {
    if (typeof name !== 'string') throw argumentError('id', 'of type string', name);
    const b = builtin(name);
    if (b !== undefined) return b;
    if (name.startsWith('node:')) throw nodeError(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${name}`);
    const file = resolveModule(name, dir, ['require', 'node']);
    if (file === undefined) throw notFound(name, parent);
    return loadFile(file);
  };
  require.resolve = (name) => (builtin(name) !== undefined ? name : resolveModule(name, dir, ['require', 'node']) ?? (() => { throw notFound(name, parent); })());
  require.cache = cache;
  require.main = mainModule;
  require.extensions = {};
  return require;
}
let mainModule;

const wrapper = 'exports, require, module, __filename, __dirname';
const cleanSource = (text) => text.replace(/^\ufeff/, '').replace(/^#!.*/, '');

function runCommonJS(module, source) {
  const f = host('eval', `(function (${wrapper}) {${source}\n})`, module.filename, 0);
  f.call(module.exports, module.exports, makeRequire(module.path, module.filename), module, module.filename, module.path);
  module.loaded = true;
}

function loadFile(file) {
  if (cache[file]) return cache[file].exports;
  const module = cache[file] = new Module(file);
  const text = cleanSource(fs.readFileSync(file, 'utf8'));
  try {
    if (file.endsWith('.json')) {
      try { module.exports = JSON.parse(text); } catch (e) { e.message = `${file}: ${e.message}`; throw e; }
    } else if (isModule(file)) {
      throw nodeError(Error, 'ERR_REQUIRE_ESM', `require() of ES Module ${file} not supported.`);
    } else runCommonJS(module, text);
  } catch (e) { delete cache[file]; throw e; }
  return module.exports;
}

// isModule reports whether a file is declared as an ECMAScript module; null if
// it has no declaration.
function isModule(file) {
  if (file.endsWith('.mjs')) return true;
  if (file.endsWith('.cjs') || file.endsWith('.json')) return false;
  const p = packageOf(file);
  return Boolean(p && p.json.type === 'module');
}

// ---- ECMAScript modules: the runner calls these functions for the name and the
// text of an import.

const reserved = new Set('break case catch class const continue debugger default delete do else enum export extends false finally for function if import in instanceof new null return super switch this throw true try typeof var void while with yield let static implements interface package private protected public await eval arguments'.split(' '));
const exported = (o) => Object.keys(o).filter((k) => /^[A-Za-z_$][A-Za-z0-9_$]*$/.test(k) && !reserved.has(k));

function normalizeImport(base, name) {
  if (builtin(name) !== undefined) return `node:${name.replace(/^node:/, '')}`;
  if (name.startsWith('node:')) throw nodeError(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${name}`);
  if (/^https?:/.test(name)) throw nodeError(Error, 'ERR_UNSUPPORTED_ESM_URL_SCHEME', `${name}: ${noNetwork}`);
  const from = base.startsWith('/') ? path.dirname(base) : directory;
  const file = resolveModule(name, from, ['import', 'node']);
  if (file === undefined) throw nodeError(Error, 'ERR_MODULE_NOT_FOUND', `Cannot find ${/^\.{0,2}\//.test(name) ? 'module' : 'package'} '${/^\.{0,2}\//.test(name) ? path.resolve(from, name) : name}' imported from ${base}`);
  return file;
}

function importText(name) {
  let value;
  if (name.startsWith('node:')) value = builtin(name);
  else if (isModule(name) || (!name.endsWith('.json') && !name.endsWith('.cjs') && looksLikeModule(fs.readFileSync(name, 'utf8')))) {
    const url = JSON.stringify(`file://${name}`);
    return `import.meta.url = ${url}; import.meta.filename = ${JSON.stringify(name)}; import.meta.dirname = ${JSON.stringify(path.dirname(name))}; import.meta.resolve = (s) => new URL(s, ${url}).href; ${cleanSource(fs.readFileSync(name, 'utf8'))}`;
  } else value = loadFile(name);
  importable.set(name, value);
  const names = value !== null && (typeof value === 'object' || typeof value === 'function') ? exported(value) : [];
  const get = `globalThis[Symbol.for('sandbar.import')](${JSON.stringify(name)})`;
  return `const m = ${get}; export default m; ${names.map((n) => `export const ${n} = m[${JSON.stringify(n)}];`).join(' ')}`;
}
const importable = new Map();
hide(global, { [Symbol.for('sandbar.import')]: (name) => importable.get(name) });

const looksLikeModule = (text) => /^\s*(?:import\s*(?:[\w*{"'$]|\{)|export\s+(?:default|const|let|var|function|class|async|\{|\*)|export\s*[{*])/m.test(text.replace(/\/\*[\s\S]*?\*\//g, ''));

// ---- the global object

hide(global, {
  global, process, console, Buffer, setTimeout, setInterval, setImmediate, clearTimeout, clearInterval: clearTimeout, clearImmediate,
  queueMicrotask: (f) => { checkCallback(f); Promise.resolve().then(() => { try { f(); } catch (e) { process.nextTick(() => { throw e; }); } }); },
  TextEncoder, TextDecoder, atob, btoa, URL, URLSearchParams, Event, CustomEvent, EventTarget, AbortController, AbortSignal, structuredClone, performance, crypto: crypto.webcrypto, fetch,
});
delete global.host;

// ---- the program

const usage = `Usage: node [options] [ script.js ] [arguments]

A JavaScript interpreter (QuickJS) with the interface of Node.js, as far as a
sandbox without network and threads has one.

  -                 script read from standard input
  -e, --eval ...    evaluate script
  -p, --print ...   evaluate script and print result
  -c, --check       syntax check script without executing
  -v, --version     print the version
  --input-type=...  "commonjs" or "module", for --eval and standard input
`;

function main() {
  const args = info.args.slice(1);
  let code, print = false, check = false, type = '';
  while (args.length && args[0].startsWith('-') && args[0] !== '-') {
    const a = args.shift();
    if (a === '--') break;
    if (a === '-e' || a === '--eval') code = args.shift();
    else if (a === '-p' || a === '--print' || a === '-pe') { code = args.shift(); print = true; }
    else if (a === '-c' || a === '--check') check = true;
    else if (a === '-v' || a === '--version') { writeAll(1, `${process.version}\n`); return; }
    else if (a === '-h' || a === '--help') { writeAll(1, usage); return; }
    else if (a.startsWith('--input-type=')) type = a.slice(13);
    else if (a === '-r' || a === '--require') { const r = args.shift(); makeRequire(directory, '[cli]')(r); }
    else if (!a.startsWith('--')) { writeAll(2, `node: bad option: ${a}\n`); process.exit(9); }
    if ((a === '-e' || a === '-p' || a === '-pe' || a === '--eval' || a === '--print') && code === undefined) { writeAll(2, `node: ${a} requires an argument\n`); process.exit(9); }
  }
  if (code !== undefined) {
    process.argv.push(...args);
    return evaluate(code, '[eval]', print, type);
  }
  const script = args.shift();
  if (script === undefined || script === '-') {
    if (script === '-') process.argv.push('-');
    process.argv.push(...args);
    return evaluate(fs.readFileSync(0, 'utf8'), '[stdin]', print, type);
  }
  const file = asFile(path.resolve(script), ['.js', '.json', '.mjs', '.cjs']) ?? asFolder(path.resolve(script));
  if (file === undefined) throw Object.assign(nodeError(Error, 'MODULE_NOT_FOUND', `Cannot find module '${path.resolve(script)}'`), { requireStack: [] });
  process.argv.push(file, ...args);
  const real = fs.realpathSync(file), text = cleanSource(fs.readFileSync(real, 'utf8'));
  if (check) { host('eval', `(function (${wrapper}) {${text}\n})`, real, 0); return undefined; }
  if (real.endsWith('.json')) { loadFile(real); return undefined; }
  return start(real, text, isModule(real) || (!real.endsWith('.cjs') && looksLikeModule(text)));
}

function start(file, text, asModule) {
  if (asModule) return host('import', file);
  mainModule = cache[file] = new Module(file);
  mainModule.id = '.';
  process.mainModule = mainModule;
  runCommonJS(mainModule, text);
  return undefined;
}

// evaluate runs text that is not a file. Imports are relative to the working directory.
function evaluate(text, name, print, type) {
  text = cleanSource(text);
  if (type === 'module' || (type === '' && !print && looksLikeModule(text))) return host('eval', text, `${directory}/${name}`, 1);
  const module = new Module(`${directory}/${name}`);
  module.filename = name; module.id = name;
  hide(global, { require: makeRequire(directory, name), module, exports: module.exports, __filename: name, __dirname: '.' });
  const value = host('eval', text, name, 0);
  if (print) console.log(value);
  return undefined;
}

return { begin, tick, step, failed, rejected, normalizeImport, importText };
