// console.

class Console {
  #out; #err; #indent = ''; #counts = new Map(); #timers = new Map();
  constructor(out, err) {
    if (out && out.stdout) [out, err] = [out.stdout, out.stderr];
    this.#out = out; this.#err = err ?? out;
    for (const name of Object.getOwnPropertyNames(Console.prototype)) {
      if (name !== 'constructor') this[name] = this[name].bind(this);
    }
  }
  #print(stream, args) {
    let text = formatWith({ breakLength: 80 }, args);
    if (this.#indent) text = this.#indent + text.replaceAll('\n', `\n${this.#indent}`);
    stream.write(`${text}\n`);
  }
  log(...args) { this.#print(this.#out, args); }
  info(...args) { this.#print(this.#out, args); }
  debug(...args) { this.#print(this.#out, args); }
  error(...args) { this.#print(this.#err, args); }
  warn(...args) { this.#print(this.#err, args); }
  trace(...args) { const e = new Error(); this.#print(this.#err, [`Trace${args.length ? `: ${formatWith({}, args)}` : ''}\n${e.stack}`.trimEnd()]); }
  dir(value, o) { this.#print(this.#out, [inspect(value, { customInspect: false, ...o })]); }
  dirxml(...args) { this.log(...args); }
  assert(ok, ...args) {
    if (ok) return;
    if (typeof args[0] === 'string') args[0] = `Assertion failed: ${args[0]}`;
    else args.unshift('Assertion failed');
    this.warn(...args);
  }
  group(...args) { if (args.length) this.log(...args); this.#indent += '  '; }
  groupCollapsed(...args) { this.group(...args); }
  groupEnd() { this.#indent = this.#indent.slice(0, -2); }
  count(label = 'default') { const n = (this.#counts.get(`${label}`) ?? 0) + 1; this.#counts.set(`${label}`, n); this.log(`${label}: ${n}`); }
  countReset(label = 'default') { this.#counts.delete(`${label}`); }
  time(label = 'default') { this.#timers.set(`${label}`, performanceNow()); }
  #took(label) {
    const ms = performanceNow() - this.#timers.get(`${label}`);
    return ms >= 1000 ? `${(ms / 1000).toFixed(3)}s` : `${Number(ms.toFixed(3))}ms`;
  }
  timeLog(label = 'default', ...args) { if (this.#timers.has(`${label}`)) this.log(`${label}: ${this.#took(label)}`, ...args); }
  timeEnd(label = 'default') { if (this.#timers.has(`${label}`)) { this.log(`${label}: ${this.#took(label)}`); this.#timers.delete(`${label}`); } }
  timeStamp() {} profile() {} profileEnd() {}
  table(data, columns) {
    if (data === null || typeof data !== 'object') return this.log(data);
    const show = (v) => inspect(v, { maxArrayLength: 3, breakLength: Infinity, depth: v !== null && typeof v === 'object' && !Array.isArray(v) && Object.keys(v).length > 2 ? -1 : 0 });
    const head = [], rows = [], values = [];
    let index = '(index)', plain = false;
    const entries = isMap(data) ? [...data].map(([k, v], i) => [i, v, k]) : isSet(data) ? [...data].map((v, i) => [i, v]) : Object.keys(data).map((k) => [k, data[k]]);
    if (isMap(data)) { index = '(iteration index)'; }
    if (isSet(data)) { index = '(iteration index)'; }
    for (const [key, row, mapKey] of entries) {
      const cells = {};
      if (isMap(data)) cells.Key = show(mapKey);
      let value;
      if (row !== null && typeof row === 'object' && !isMap(data) && !isSet(data)) {
        for (const k of columns ?? Object.keys(row)) {
          if (!head.includes(k)) head.push(k);
          if (Object.prototype.hasOwnProperty.call(row, k)) cells[k] = show(row[k]);
        }
      } else { value = show(row); plain = true; }
      rows.push([`${key}`, cells]);
      values.push(value);
    }
    const names = [...(isMap(data) ? ['Key'] : []), ...head];
    const table = [[index, ...names, ...(plain ? ['Values'] : [])], ...rows.map(([k, cells], i) => [k, ...names.map((n) => cells[n] ?? ''), ...(plain ? [values[i] ?? ''] : [])])];
    const widths = table[0].map((_, c) => Math.max(...table.map((r) => width(r[c]))) + 2);
    const cell = (text, w) => ` ${text}${' '.repeat(w - width(text) - 1)}`;
    const line = (r) => `│${r.map((t, c) => cell(t, widths[c])).join('│')}│`;
    const rule = (l, m, r) => l + widths.map((w) => '─'.repeat(w)).join(m) + r;
    return this.log([rule('┌', '┬', '┐'), line(table[0]), rule('├', '┼', '┤'), ...table.slice(1).map(line), rule('└', '┴', '┘')].join('\n'));
  }
}
const console = new Console(process.stdout, process.stderr);
hide(console, { Console });
