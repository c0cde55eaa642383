// The files of this directory, concatenated in the order of their names, are one
// function: the prelude, which gives QuickJS the API of Node.js. This file has the
// interface to the runner (host) and errors.

const global = globalThis;
const info = JSON.parse(host('tables'));

// An error of a system call, with the text of Node.js.
function systemError(errno, syscall, path, dest) {
  const [code, text] = info.errors[errno] || ['EIO', 'i/o error'];
  let message = `${code}: ${text}, ${syscall}`;
  if (path !== undefined) message += ` '${path}'`;
  if (dest !== undefined) message += ` -> '${dest}'`;
  const e = new Error(message);
  e.errno = -info.numbers[code] || -5;
  e.code = code;
  e.syscall = syscall;
  if (path !== undefined) e.path = path;
  if (dest !== undefined) e.dest = dest;
  return e;
}

function nodeError(Base, code, message) {
  const e = new Base(message);
  e.code = code;
  Object.defineProperty(e, 'name', { value: Base.name, enumerable: false, writable: true, configurable: true });
  return e;
}

function describe(value) {
  if (value == null) return `${value}`;
  if (typeof value === 'function') return `function ${value.name}`;
  if (typeof value === 'object') {
    return value.constructor && value.constructor.name ? `an instance of ${value.constructor.name}` : inspect(value, { depth: -1 });
  }
  let text = inspect(value);
  if (text.length > 28) text = text.slice(0, 25) + '...';
  return `type ${typeof value} (${text})`;
}

function argumentError(name, expected, actual) {
  const kind = name.includes('.') ? 'property' : 'argument';
  return nodeError(TypeError, 'ERR_INVALID_ARG_TYPE',
    `The "${name}" ${kind} must be ${expected}. Received ${describe(actual)}`);
}

function hide(object, properties) {
  for (const key of Reflect.ownKeys(properties)) {
    Object.defineProperty(object, key, { value: properties[key], writable: true, enumerable: false, configurable: true });
  }
  return object;
}

// Without this, Math.random would repeat its sequence in each program of a snapshot.
{
  let pool = new Float64Array(0), at = 0;
  hide(Math, {
    random() {
      if (at === pool.length) {
        const bits = new BigUint64Array(host('random', 1024).buffer);
        pool = Float64Array.from(bits, (b) => Number(b >> 11n) / 2 ** 53);
        at = 0;
      }
      return pool[at++];
    },
  });
}
