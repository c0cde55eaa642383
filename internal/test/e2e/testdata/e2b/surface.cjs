// Records which methods of E2B's packages a program calls itself, not those that they call for it,
// and prints "called KEY" for each when the program exits. With the argument "declared" it prints
// "declared KEY" for each public method in the packages' typings instead. A KEY is CLASS.METHOD,
// with "static " before it for static ones.
const { AsyncLocalStorage } = require('node:async_hooks')

const inside = new AsyncLocalStorage()
const called = new Set(), seen = new Set([Object.prototype, Function.prototype])

// watch replaces the functions of an object by ones that record their calls.
function watch(owner, prefix) {
  if (seen.has(owner)) return
  seen.add(owner)
  for (const name of Object.getOwnPropertyNames(owner)) {
    const property = Object.getOwnPropertyDescriptor(owner, name)
    if (typeof property.value !== 'function' || name === 'constructor' || !property.writable) continue
    const original = property.value
    Object.defineProperty(owner, name, { ...property, value(...args) {
      if (inside.getStore()) return original.apply(this, args)
      called.add(prefix + name)
      const result = inside.run(true, () => original.apply(this, args))
      if (typeof result?.then === 'function') result.then(discover, () => {})
      else discover(result)
      return result
    } })
  }
}

// discover watches the classes of an object and of what it has.
function discover(value) {
  for (const v of Array.isArray(value) ? value : [value]) {
    if (typeof v !== 'object' || v === null) continue
    for (const part of [v, ...Object.values(v)]) if (typeof part === 'object' && part !== null) watchClass(part.constructor)
  }
}

function watchClass(kind) {
  for (let c = kind; typeof c === 'function' && c.prototype && !String(c).includes('[native code]'); c = Object.getPrototypeOf(c)) {
    watch(c.prototype, c.name + '.')
    watch(c, 'static ' + c.name + '.')
  }
}

function record() {
  for (const name of ['e2b', '@e2b/code-interpreter']) {
    for (const v of Object.values(require(name))) if (typeof v === 'function' && /^class /.test(v)) watchClass(v)
  }
  watch(require('e2b').Template, 'static TemplateBase.') // a function with the class's static methods
  process.on('exit', () => { for (const key of called) console.log('called', key) })
}

function declared() {
  const ts = require('typescript')
  const files = ['e2b', '@e2b/code-interpreter'].map((name) => require.resolve(name).replace(/index\.js$/, 'index.d.ts'))
  const program = ts.createProgram(files, {})
  const checker = program.getTypeChecker()
  const resolve = (symbol) => symbol && symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
  const keys = new Set()
  const visit = (symbol) => {
    for (const d of symbol?.declarations ?? []) {
      if (!ts.isClassDeclaration(d)) continue
      const all = [], bases = (d.heritageClauses ?? []).filter((h) => h.token === ts.SyntaxKind.ExtendsKeyword).flatMap((h) => [...h.types])
      for (const base of bases) {
        if (base.expression.getText() === 'Error') return false
        if (visit(resolve(checker.getSymbolAtLocation(base.expression))) === false) return false
      }
      for (const m of d.members) {
        const flags = ts.getCombinedModifierFlags(m)
        if (ts.isMethodDeclaration(m) && !(flags & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected | ts.ModifierFlags.Abstract))) {
          all.push((flags & ts.ModifierFlags.Static ? 'static ' : '') + d.name.text + '.' + m.name.getText())
        }
      }
      all.forEach((key) => keys.add(key))
    }
  }
  for (const file of files) checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file))).forEach((s) => visit(resolve(s)))
  for (const key of keys) console.log('declared', key)
}

if (process.argv[2] === 'declared') declared()
else record()
