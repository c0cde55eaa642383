package awk

import (
	"bufio"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
)

// Env is the environment of a program.
type Env struct {
	Args    []string // ARGV: the name of the program, then files and assignments
	Vars    []string // assignments made before BEGIN, "NAME=value"
	Environ []string // "NAME=value"
	FS      string   // field separator (-F), with escapes; "" means " "
	Stdin   io.Reader
	Stdout  *bufio.Writer
	// Open opens a file for reading, Create for writing.
	Open   func(name string) (io.ReadCloser, error)
	Create func(name string, extend bool) (io.WriteCloser, error)
	// Run runs a shell command until it ends and returns its exit status. A nil stdin or stdout is
	// the program's own.
	Run func(command string, stdin io.Reader, stdout io.Writer) int
	// Warn reports a warning about a file or stream.
	Warn func(message string)
	// Check is called regularly. To end the program, it panics.
	Check func()
	// Time returns the current time, Zone the time zone of strftime.
	Time func() time.Time
	Zone *time.Location
	// Strftime formats a time.
	Strftime func(layout string, t time.Time) string
}

// The predefined variables, by index.
const (
	varNF = iota
	varNR
	varFNR
	varFS
	varOFS
	varORS
	varRS
	varSUBSEP
	varCONVFMT
	varOFMT
	varRSTART
	varRLENGTH
	varFILENAME
	varENVIRON
	varARGC
	varARGV
)

var specialNames = []string{"NF", "NR", "FNR", "FS", "OFS", "ORS", "RS", "SUBSEP", "CONVFMT", "OFMT", "RSTART", "RLENGTH", "FILENAME", "ENVIRON", "ARGC", "ARGV"}

// maxString bounds a string in bytes, and maxCalls the nesting of calls.
const (
	maxString = 64 << 20
	maxCalls  = 4000
	maxFields = 1 << 20
)

type interp struct {
	p       *Program
	env     Env
	globals []*cell
	frame   []*cell
	calls   int
	steps   int

	record   string
	fields   []value // from $1
	split    bool    // fields is valid for record
	joined   bool    // record is valid for fields
	in       inputs
	io       streams
	regexes  map[string]*posixre.Regexp
	result   value // result of a return statement
	status   int
	exiting  bool
	seed     uint64
	lastSeed float64
}

// Run runs a program and returns its exit status. Its errors are of type *Error.
func (p *Program) Run(env Env) (status int, err error) {
	in := &interp{p: p, env: env, regexes: map[string]*posixre.Regexp{}, split: true, joined: true}
	in.io.init()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			status, err = 2, e
		default:
			panic(e)
		}
	}()
	in.setup()
	in.main()
	in.closeAll()
	return in.status, nil
}

func (in *interp) setup() {
	for range len(in.p.globals) {
		in.globals = append(in.globals, &cell{})
	}
	for i, v := range map[int]value{varFS: str(" "), varOFS: str(" "), varORS: str("\n"), varRS: str("\n"), varSUBSEP: str("\x1c"), varCONVFMT: str("%.6g"), varOFMT: str("%.6g"),
		varRLENGTH: num(-1), varNF: num(0), varNR: num(0), varFNR: num(0), varRSTART: num(0), varARGC: num(float64(len(in.env.Args)))} {
		in.globals[i].v = v
	}
	environ := in.globals[varENVIRON].array("ENVIRON")
	for _, kv := range in.env.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			environ.m[k] = input(v)
		}
	}
	argv := in.globals[varARGV].array("ARGV")
	for i, a := range in.env.Args {
		argv.m[strconv.Itoa(i)] = input(a)
	}
	if in.env.FS != "" {
		in.globals[varFS].v = str(unescape(in.env.FS))
	}
	for _, kv := range in.env.Vars {
		in.assignText(kv)
	}
}

// unescape replaces the escapes in an argument of the command line.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i += escape(&b, s[i+1:])
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// assignText executes an assignment NAME=value of the command line.
func (in *interp) assignText(kv string) {
	name, text, _ := strings.Cut(kv, "=")
	i, ok := in.p.globals[name]
	if !ok {
		return // the program does not use the variable
	}
	in.setVar(varRef{name: name, index: i}, input(unescape(text)))
}

// main runs the BEGIN rules, the rules for each record, and the END rules.
func (in *interp) main() {
	for _, b := range in.p.begin {
		if in.action(b) == flowExit {
			break
		}
	}
	if !in.exiting && (len(in.p.rules) > 0 || len(in.p.end) > 0) {
		in.lines()
	}
	in.exiting = false
	for _, b := range in.p.end {
		if in.action(b) == flowExit {
			break
		}
	}
}

func (in *interp) lines() {
	for in.nextRecord() {
		for _, r := range in.p.rules {
			if !in.matches(r) {
				continue
			}
			if r.noBody {
				in.printRecord()
				continue
			}
			switch in.action(r.body) {
			case flowExit:
				return
			case flowNextFile:
				in.in.skipFile()
			case flowNext:
			default:
				continue
			}
			break
		}
	}
}

func (in *interp) printRecord() {
	in.write(in.env.Stdout, in.getRecord()+in.globals[varORS].v.text("%.6g"))
}

// matches reports whether a rule applies to the current record.
func (in *interp) matches(r *rule) bool {
	switch {
	case r.from == nil:
		return true
	case r.to == nil:
		return in.eval(r.from).truth()
	}
	if !r.active && !in.eval(r.from).truth() {
		return false
	}
	r.active = !in.eval(r.to).truth()
	return true
}

func (in *interp) step() {
	if in.steps++; in.steps%1024 == 0 {
		in.env.Check()
	}
}

// action runs an action, which exit, next and nextfile can also leave from within functions.
func (in *interp) action(list []stmt) (f flow) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case unwind:
			f = e.f
			in.frame, in.calls = nil, 0
		default:
			panic(e)
		}
	}()
	return in.exec(list)
}

func (in *interp) exec(list []stmt) flow {
	for _, s := range list {
		if f := in.stmt(s); f != flowNone {
			return f
		}
	}
	return flowNone
}

func (in *interp) stmt(s stmt) flow {
	in.step()
	switch s := s.(type) {
	case exprStmt:
		in.eval(s.x)
	case printStmt:
		in.print(s)
	case blockStmt:
		return in.exec(s.list)
	case ifStmt:
		if in.eval(s.test).truth() {
			return in.exec(s.yes)
		}
		return in.exec(s.no)
	case whileStmt:
		return in.while(s)
	case forStmt:
		return in.forLoop(s)
	case forInStmt:
		return in.forIn(s)
	case deleteStmt:
		arr := in.array(s.array)
		if s.subs == nil {
			clear(arr.m)
		} else {
			delete(arr.m, in.subscript(s.subs))
		}
	case returnStmt:
		in.result = value{}
		if s.x != nil {
			in.result = in.eval(s.x)
		}
		return flowReturn
	case exitStmt:
		if s.x != nil {
			in.status = int(in.eval(s.x).number()) & 0xff
		}
		in.exiting = true
		return flowExit
	case simpleStmt:
		return s.what
	}
	return flowNone
}

// loop runs the body of a loop once. It reports whether the loop ends and how.
func (in *interp) loop(body []stmt) (ends bool, f flow) {
	in.step()
	switch f := in.exec(body); f {
	case flowNone, flowContinue:
		return false, flowNone
	case flowBreak:
		return true, flowNone
	default:
		return true, f
	}
}

func (in *interp) while(s whileStmt) flow {
	for s.do || in.eval(s.test).truth() {
		if ends, f := in.loop(s.body); ends {
			return f
		}
		if s.do && !in.eval(s.test).truth() {
			break
		}
	}
	return flowNone
}

func (in *interp) forLoop(s forStmt) flow {
	if s.init != nil {
		in.stmt(s.init)
	}
	for s.test == nil || in.eval(s.test).truth() {
		if ends, f := in.loop(s.body); ends {
			return f
		}
		if s.post != nil {
			in.stmt(s.post)
		}
	}
	return flowNone
}

func (in *interp) forIn(s forInStmt) flow {
	arr := in.array(s.array)
	for _, k := range sortedKeys(arr) {
		if _, ok := arr.m[k]; !ok {
			continue // deleted by the body
		}
		in.set(s.key, input(k))
		if ends, f := in.loop(s.body); ends {
			return f
		}
	}
	return flowNone
}

// sortedKeys returns the keys of an array: numbers by value, then strings. AWK does not define the
// order; a fixed one makes runs reproducible.
func sortedKeys(a *array) []string {
	keys := make([]string, 0, len(a.m))
	for k := range a.m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y string) int {
		n, okN := looksNumeric(x)
		m, okM := looksNumeric(y)
		switch {
		case okN && okM && n != m:
			if n < m {
				return -1
			}
			return 1
		case okN != okM:
			if okN {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
	return keys
}

func (in *interp) cell(r varRef) *cell {
	if r.local {
		return in.frame[r.index]
	}
	return in.globals[r.index]
}

func (in *interp) array(r varRef) *array { return in.cell(r).array(r.name) }

// convfmt returns CONVFMT, the format for the conversion of numbers to strings.
func (in *interp) convfmt() string { return in.globals[varCONVFMT].v.s }

func (in *interp) text(x expr) string { return in.eval(x).text(in.convfmt()) }

// subscript joins the parts of an index.
func (in *interp) subscript(subs []expr) string {
	if len(subs) == 1 {
		return in.text(subs[0])
	}
	parts := make([]string, len(subs))
	for i, x := range subs {
		parts[i] = in.text(x)
	}
	return strings.Join(parts, in.globals[varSUBSEP].v.text(in.convfmt()))
}

func (in *interp) eval(x expr) value {
	switch x := x.(type) {
	case numLit:
		return x.v
	case strLit:
		return x.v
	case regexLit:
		return boolean(x.re.Match(in.getRecord()))
	case varRef:
		return in.getVar(x)
	case indexRef:
		arr, k := in.array(x.array), in.subscript(x.subs)
		v, ok := arr.m[k]
		if !ok {
			arr.m[k] = value{} // a reference creates the element
		}
		return v
	case fieldRef:
		return in.field(in.eval(x.index).number())
	case assign:
		return in.assign(x)
	case cond:
		if in.eval(x.test).truth() {
			return in.eval(x.yes)
		}
		return in.eval(x.no)
	case binary:
		return in.binary(x)
	case unary:
		return in.unary(x)
	case incDec:
		old := in.eval(x.target).number()
		in.set(x.target, num(old+x.delta))
		if x.post {
			return num(old)
		}
		return num(old + x.delta)
	case matchOp:
		return boolean(in.regex(x.re).Match(in.text(x.x)) != x.not)
	case inOp:
		_, ok := in.array(x.array).m[in.subscript(x.subs)]
		return boolean(ok)
	case group:
		if len(x.list) == 1 {
			return in.eval(x.list[0])
		}
		return str(in.subscript(x.list))
	case *call:
		return in.call(x)
	case builtinCall:
		return in.builtin(x)
	case getline:
		return in.getline(x)
	}
	throw("internal error: unknown expression %T", x)
	return value{}
}

func (in *interp) unary(x unary) value {
	v := in.eval(x.x)
	switch x.op {
	case "!":
		return boolean(!v.truth())
	case "-":
		return num(-v.number())
	}
	return num(v.number())
}

func (in *interp) binary(x binary) value {
	switch x.op {
	case "&&":
		return boolean(in.eval(x.a).truth() && in.eval(x.b).truth())
	case "||":
		return boolean(in.eval(x.a).truth() || in.eval(x.b).truth())
	case " ":
		a := in.text(x.a)
		return in.str(a + in.text(x.b))
	}
	a, b := in.eval(x.a), in.eval(x.b)
	switch x.op {
	case "<", "<=", "==", "!=", ">", ">=":
		return boolean(in.compare(x.op, a, b))
	}
	return num(arithmetic(x.op, a.number(), b.number()))
}

// str returns a string value and fails if it is too long.
func (in *interp) str(s string) value {
	if len(s) > maxString {
		throw("string is too long")
	}
	return str(s)
}

func (in *interp) compare(op string, a, b value) bool {
	c := 0
	n, okN := a.numeric()
	m, okM := b.numeric()
	if okN && okM && !(a.kind == kindNone && b.kind == kindNone) {
		switch {
		case n < m:
			c = -1
		case n > m:
			c = 1
		case n != m: // not a number
			return op == "!="
		}
	} else {
		c = strings.Compare(a.text(in.convfmt()), b.text(in.convfmt()))
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case "==":
		return c == 0
	case "!=":
		return c != 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func arithmetic(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		if b == 0 {
			throw("division by zero")
		}
		return a / b
	case "%":
		if b == 0 {
			throw("division by zero in %%")
		}
		return math.Mod(a, b)
	}
	return math.Pow(a, b)
}

func (in *interp) assign(x assign) value {
	v := in.eval(x.value)
	if x.op != "" {
		v = num(arithmetic(x.op, in.eval(x.target).number(), v.number()))
	}
	in.set(x.target, v)
	return v
}

// set assigns a variable, an element or a field.
func (in *interp) set(target expr, v value) {
	switch t := target.(type) {
	case varRef:
		in.setVar(t, v)
	case indexRef:
		arr := in.array(t.array)
		arr.m[in.subscript(t.subs)] = v
	case fieldRef:
		in.setField(in.eval(t.index).number(), v)
	}
}

func (in *interp) getVar(r varRef) value {
	if !r.local && r.index == varNF {
		in.splitRecord()
		return num(float64(len(in.fields)))
	}
	c := in.cell(r)
	if c.arr != nil {
		throw("array %s is used as a value", r.name)
	}
	return c.v
}

func (in *interp) setVar(r varRef, v value) {
	c := in.cell(r)
	if c.arr != nil {
		throw("array %s is used as a variable", r.name)
	}
	if r.local {
		c.v = v
		return
	}
	switch r.index {
	case varNF:
		in.setNF(v.number())
		return
	case varFS, varOFS, varORS, varRS, varSUBSEP, varCONVFMT, varOFMT:
		if r.index == varFS {
			in.splitRecord() // the current record is split with the old FS
		}
		if r.index == varOFS {
			in.getRecord() // and joined with the old OFS
		}
		v = str(v.text(in.convfmt()))
	}
	c.v = v
}

// call runs a function of the program.
func (in *interp) call(c *call) value {
	if in.calls++; in.calls > maxCalls {
		throw("function %s: calls are nested too deeply", c.name)
	}
	frame := make([]*cell, len(c.fn.params))
	for i := range frame {
		frame[i] = &cell{}
		if i >= len(c.args) {
			continue
		}
		if r, ok := c.args[i].(varRef); ok {
			if outer := in.cell(r); outer.arr != nil {
				frame[i].arr = outer.arr
				continue
			} else if outer.v.kind == kindNone && (r.local || r.index >= len(specialNames)) {
				frame[i].up = outer
				continue
			}
		}
		frame[i].v = in.eval(c.args[i])
	}
	saved := in.frame
	in.frame, in.result = frame, value{}
	f := in.exec(c.fn.body)
	in.frame = saved
	in.calls--
	if f == flowExit || f == flowNext || f == flowNextFile {
		panic(unwind{f})
	}
	v := in.result
	in.result = value{}
	return v
}

// unwind is the panic value with which exit, next and nextfile leave functions.
type unwind struct{ f flow }

// regex returns the regular expression for an operand.
func (in *interp) regex(x expr) *posixre.Regexp {
	if r, ok := x.(regexLit); ok {
		return r.re
	}
	if g, ok := x.(group); ok && len(g.list) == 1 {
		return in.regex(g.list[0])
	}
	return in.dynamic(in.text(x))
}

// dynamic compiles a regular expression and caches it.
func (in *interp) dynamic(text string) *posixre.Regexp {
	re := in.regexes[text]
	if re == nil {
		re = compile(text)
		if len(in.regexes) >= 500 {
			clear(in.regexes)
		}
		in.regexes[text] = re
	}
	return re
}
