function deep(n) { if (n === 0) throw new TypeError('boom: ' + n); deep(n - 1); }
deep(3);
