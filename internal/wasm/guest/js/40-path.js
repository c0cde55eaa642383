// The module path, as it is on POSIX systems.

function normalizeParts(text, absolute) {
  const out = [];
  for (const part of text.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') out.push(part);
    else if (out.length && out.at(-1) !== '..') out.pop();
    else if (!absolute) out.push('..');
  }
  return out.join('/');
}

function checkPath(v, name = 'path') {
  if (typeof v !== 'string') throw argumentError(name, 'of type string', v);
}

const path = {
  sep: '/', delimiter: ':',
  isAbsolute(p) { checkPath(p); return p.startsWith('/'); },
  normalize(p) {
    checkPath(p);
    if (p === '') return '.';
    const absolute = p.startsWith('/');
    let out = normalizeParts(p, absolute);
    if (out === '' && !absolute) out = '.';
    if (out !== '' && p.endsWith('/')) out += '/';
    return absolute ? `/${out}` : out;
  },
  join(...parts) {
    parts.forEach((p) => checkPath(p));
    const joined = parts.filter((p) => p !== '').join('/');
    return joined === '' ? '.' : path.normalize(joined);
  },
  resolve(...parts) {
    let out = '';
    for (let i = parts.length - 1; i >= -1 && !out.startsWith('/'); i--) {
      const p = i >= 0 ? parts[i] : process.cwd();
      checkPath(p, `paths[${i}]`);
      if (p !== '') out = out === '' ? p : `${p}/${out}`;
    }
    return `/${normalizeParts(out, true)}`;
  },
  relative(from, to) {
    checkPath(from, 'from'); checkPath(to, 'to');
    const a = path.resolve(from).split('/').filter(Boolean), b = path.resolve(to).split('/').filter(Boolean);
    let i = 0;
    while (i < a.length && i < b.length && a[i] === b[i]) i++;
    return [...a.slice(i).map(() => '..'), ...b.slice(i)].join('/');
  },
  dirname(p) {
    checkPath(p);
    const trimmed = p.replace(/(?<=.)\/+$/, ''), i = trimmed.lastIndexOf('/');
    if (i < 0) return '.';
    return trimmed.slice(0, i).replace(/(?<=.)\/+$/, '') || '/';
  },
  basename(p, suffix) {
    checkPath(p);
    const base = p.replace(/\/+$/, '').split('/').at(-1);
    return suffix && base !== suffix && base.endsWith(suffix) ? base.slice(0, -suffix.length) : base;
  },
  extname(p) {
    const base = path.basename(p), i = base.lastIndexOf('.');
    return i <= 0 || base === '..' ? '' : base.slice(i);
  },
  parse(p) {
    checkPath(p);
    const root = p.startsWith('/') ? '/' : '', base = path.basename(p), ext = path.extname(p);
    let dir = path.dirname(p);
    if (dir === '.' && !p.startsWith('.')) dir = '';
    if (p === '.' || p === '..') dir = '';
    return { root, dir: base === '' && root ? '/' : dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
  },
  format(o) {
    const dir = o.dir || o.root, base = o.base || `${o.name || ''}${o.ext ? (o.ext.startsWith('.') ? '' : '.') + o.ext : ''}`;
    return !dir ? base : dir === o.root ? dir + base : `${dir}/${base}`;
  },
  toNamespacedPath: (p) => p,
};
path.posix = path;
