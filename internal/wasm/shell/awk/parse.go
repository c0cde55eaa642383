package awk

import (
	"slices"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"
)

type parser struct {
	lex    lexer
	tok    token
	prog   *Program
	locals map[string]int // of the current function
	calls  []*call
	noGT   bool // in print: ">" is a redirection
	depth  int
	loops  int
}

const (
	maxProgram = 1 << 20
	maxDepth   = 400
)

// Parse parses a program. Its errors are of type *Error.
func Parse(text string) (p *Program, err error) {
	if len(text) > maxProgram {
		return nil, &Error{"program is too long"}
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			p, err = nil, e
		default:
			panic(e)
		}
	}()
	ps := &parser{lex: lexer{in: text, line: 1}, prog: &Program{funcs: map[string]*function{}, globals: map[string]int{}}}
	for i, name := range specialNames {
		ps.prog.globals[name] = i
	}
	ps.advance()
	ps.program()
	return ps.prog, nil
}

func (p *parser) advance() { p.tok = p.lex.next() }

func (p *parser) fail() {
	what := p.tok.kind
	if p.tok.text != "" {
		what += " " + p.tok.text
	}
	throw("syntax error at source line %d: unexpected %s", p.tok.line, what)
}

func (p *parser) is(kind string) bool { return p.tok.kind == kind }

func (p *parser) isKeyword(word string) bool { return p.tok.kind == tokKeyword && p.tok.text == word }

func (p *parser) accept(kind string) bool {
	if p.tok.kind == kind {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(kind string) {
	if !p.accept(kind) {
		p.fail()
	}
}

func (p *parser) acceptKeyword(word string) bool {
	if p.isKeyword(word) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) newlines() {
	for p.is(tokNewline) {
		p.advance()
	}
}

// terminators skips newlines and semicolons.
func (p *parser) terminators() {
	for p.is(tokNewline) || p.is(";") {
		p.advance()
	}
}

// enter bounds the nesting of the program.
func (p *parser) enter() func() {
	if p.depth++; p.depth > maxDepth {
		throw("program is nested too deeply at source line %d", p.tok.line)
	}
	return func() { p.depth-- }
}

func (p *parser) program() {
	for p.terminators(); !p.is(tokEOF); p.terminators() {
		switch {
		case p.isKeyword("function") || p.isKeyword("func"):
			p.function()
		case p.acceptKeyword("BEGIN"):
			p.prog.begin = append(p.prog.begin, p.block())
		case p.acceptKeyword("END"):
			p.prog.end = append(p.prog.end, p.block())
		default:
			p.rule()
		}
	}
	for _, c := range p.calls {
		if c.fn = p.prog.funcs[c.name]; c.fn == nil {
			throw("function %s is not defined", c.name)
		}
		if len(c.args) > len(c.fn.params) {
			throw("function %s is called with %d arguments but takes %d", c.name, len(c.args), len(c.fn.params))
		}
	}
}

func (p *parser) rule() {
	r := &rule{}
	if !p.is("{") {
		r.from = p.expr()
		if p.accept(",") {
			p.newlines()
			r.to = p.expr()
		}
	}
	if p.is("{") {
		r.body = p.block()
	} else {
		r.noBody = true
	}
	p.prog.rules = append(p.prog.rules, r)
}

func (p *parser) function() {
	p.advance()
	f := &function{name: p.tok.text}
	if !p.accept(tokFunc) && !p.accept(tokName) {
		p.fail()
	}
	if p.prog.funcs[f.name] != nil {
		throw("function %s is defined twice", f.name)
	}
	p.prog.funcs[f.name] = f
	p.expect("(")
	p.locals = map[string]int{}
	for !p.is(")") {
		p.newlines()
		name := p.tok.text
		p.expect(tokName)
		if _, ok := p.locals[name]; ok {
			throw("function %s has the parameter %s twice", f.name, name)
		}
		p.locals[name] = len(f.params)
		f.params = append(f.params, name)
		if !p.accept(",") {
			break
		}
		p.newlines()
	}
	p.expect(")")
	p.newlines()
	f.body = p.block()
	p.locals = nil
}

func (p *parser) block() []stmt {
	defer p.enter()()
	p.expect("{")
	var list []stmt
	for p.terminators(); !p.is("}"); p.terminators() {
		if p.is(tokEOF) {
			p.fail()
		}
		list = append(list, p.stmt())
	}
	p.advance()
	return list
}

// body parses the statement of an if, while or for.
func (p *parser) body() []stmt {
	p.newlines()
	if p.accept(";") {
		return nil
	}
	if p.is("{") {
		return p.block()
	}
	return []stmt{p.stmt()}
}

func (p *parser) loopBody() []stmt {
	p.loops++
	defer func() { p.loops-- }()
	return p.body()
}

// stmtEnd parses the end of a statement.
func (p *parser) stmtEnd() {
	if p.is(tokNewline) || p.is(";") {
		p.advance()
		return
	}
	if !p.is("}") && !p.is(tokEOF) {
		p.fail()
	}
}

func (p *parser) stmt() stmt {
	defer p.enter()()
	if p.is("{") {
		return blockStmt{p.block()}
	}
	if p.tok.kind == tokKeyword {
		switch p.tok.text {
		case "if":
			return p.ifStmt()
		case "while":
			p.advance()
			test := p.paren()
			return whileStmt{test: test, body: p.loopBody()}
		case "do":
			return p.doStmt()
		case "for":
			return p.forStmt()
		}
	}
	s := p.simple()
	p.stmtEnd()
	return s
}

func (p *parser) paren() expr {
	p.expect("(")
	noGT := p.noGT
	p.noGT = false
	x := p.expr()
	p.noGT = noGT
	p.expect(")")
	return x
}

func (p *parser) ifStmt() stmt {
	p.advance()
	s := ifStmt{test: p.paren()}
	s.yes = p.body()
	p.skipToElse()
	if p.acceptKeyword("else") {
		s.no = p.body()
	}
	return s
}

// skipToElse skips newlines and semicolons if they are followed by else.
func (p *parser) skipToElse() {
	saved, tok := p.lex, p.tok
	p.terminators()
	if !p.isKeyword("else") {
		p.lex, p.tok = saved, tok
	}
}

func (p *parser) doStmt() stmt {
	p.advance()
	body := p.loopBody()
	p.terminators()
	if !p.acceptKeyword("while") {
		p.fail()
	}
	s := whileStmt{body: body, do: true, test: p.paren()}
	p.stmtEnd()
	return s
}

func (p *parser) forStmt() stmt {
	p.advance()
	p.expect("(")
	if s, ok := p.forIn(); ok {
		return s
	}
	s := forStmt{}
	if !p.is(";") {
		s.init = p.simple()
	}
	p.expect(";")
	p.newlines()
	if !p.is(";") {
		s.test = p.expr()
	}
	p.expect(";")
	p.newlines()
	if !p.is(")") {
		s.post = p.simple()
	}
	p.expect(")")
	s.body = p.loopBody()
	return s
}

// forIn parses "key in array)" and the body, if they follow.
func (p *parser) forIn() (stmt, bool) {
	saved, tok := p.lex, p.tok
	if p.is(tokName) {
		name := p.tok.text
		p.advance()
		if p.acceptKeyword("in") && p.is(tokName) {
			array := p.tok.text
			p.advance()
			if p.accept(")") {
				s := forInStmt{key: p.variable(name), array: p.variable(array)}
				s.body = p.loopBody()
				return s, true
			}
		}
	}
	p.lex, p.tok = saved, tok
	return nil, false
}

// simple parses a statement without a body.
func (p *parser) simple() stmt {
	if p.tok.kind != tokKeyword || p.isKeyword("getline") {
		return exprStmt{p.expr()}
	}
	word := p.tok.text
	switch word {
	case "print", "printf":
		return p.print()
	case "next", "nextfile":
		p.advance()
		return simpleStmt{map[string]flow{"next": flowNext, "nextfile": flowNextFile}[word]}
	case "break", "continue":
		p.advance()
		if p.loops == 0 {
			throw("%s outside of a loop at source line %d", word, p.tok.line)
		}
		return simpleStmt{map[string]flow{"break": flowBreak, "continue": flowContinue}[word]}
	case "return":
		if p.locals == nil {
			throw("return outside of a function at source line %d", p.tok.line)
		}
		p.advance()
		return returnStmt{p.optional()}
	case "exit":
		p.advance()
		return exitStmt{p.optional()}
	case "delete":
		p.advance()
		name := p.tok.text
		p.expect(tokName)
		s := deleteStmt{array: p.variable(name)}
		if p.accept("[") {
			s.subs = p.list()
			p.expect("]")
		}
		return s
	}
	p.fail()
	return nil
}

// optional parses an expression, if there is one.
func (p *parser) optional() expr {
	if p.is(";") || p.is(tokNewline) || p.is("}") || p.is(tokEOF) {
		return nil
	}
	return p.expr()
}

func (p *parser) print() stmt {
	s := printStmt{format: p.tok.text == "printf"}
	p.advance()
	noGT := p.noGT
	p.noGT = true
	if !slices.Contains([]string{">", ">>", "|", ";", "}", tokNewline, tokEOF}, p.tok.kind) {
		s.args = p.list()
		if g, ok := s.args[0].(group); ok && len(s.args) == 1 {
			s.args = g.list
		}
	}
	if s.format && len(s.args) == 0 {
		throw("printf without a format at source line %d", p.tok.line)
	}
	if p.is(">") || p.is(">>") || p.is("|") {
		s.redir = p.tok.kind
		p.advance()
		s.dest = p.concat()
	}
	p.noGT = noGT
	return s
}

// list parses a comma-separated list of expressions.
func (p *parser) list() []expr {
	list := []expr{p.expr()}
	for p.accept(",") {
		p.newlines()
		list = append(list, p.expr())
	}
	return list
}

func (p *parser) expr() expr {
	defer p.enter()()
	x := p.ternary()
	switch p.tok.kind {
	case "=", "+=", "-=", "*=", "/=", "%=", "^=":
		if !isLvalue(x) {
			p.fail()
		}
		op := p.tok.kind[:len(p.tok.kind)-1]
		p.advance()
		p.newlines()
		return assign{target: x, op: op, value: p.expr()}
	}
	return x
}

func isLvalue(x expr) bool {
	switch x.(type) {
	case varRef, indexRef, fieldRef:
		return true
	}
	return false
}

func (p *parser) ternary() expr {
	x := p.or()
	if !p.accept("?") {
		return x
	}
	p.newlines()
	yes := p.expr()
	p.newlines()
	p.expect(":")
	p.newlines()
	return cond{x, yes, p.expr()}
}

func (p *parser) or() expr {
	x := p.and()
	for p.accept("||") {
		p.newlines()
		x = binary{"||", x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	x := p.in()
	for p.accept("&&") {
		p.newlines()
		x = binary{"&&", x, p.in()}
	}
	return x
}

func (p *parser) in() expr {
	x := p.match()
	for p.isKeyword("in") {
		p.advance()
		name := p.tok.text
		p.expect(tokName)
		subs := []expr{x}
		if g, ok := x.(group); ok {
			subs = g.list
		}
		x = inOp{subs, p.variable(name)}
	}
	return x
}

func (p *parser) match() expr {
	x := p.comparison()
	for p.is("~") || p.is("!~") {
		not := p.is("!~")
		p.advance()
		x = matchOp{x, p.comparison(), not}
	}
	return x
}

func (p *parser) comparison() expr {
	x := p.concat()
	for {
		switch {
		case p.is("<") || p.is("<=") || p.is("==") || p.is("!=") || p.is(">=") || p.is(">") && !p.noGT:
			op := p.tok.kind
			p.advance()
			x = binary{op, x, p.concat()}
		case p.is("|") && !p.noGT || p.is("|") && p.pipesToGetline():
			p.advance()
			if !p.acceptKeyword("getline") {
				p.fail()
			}
			x = getline{target: p.optionalLvalue(), kind: '|', source: x}
		default:
			return x
		}
	}
}

// pipesToGetline reports whether getline follows the "|".
func (p *parser) pipesToGetline() bool {
	saved, tok := p.lex, p.tok
	p.advance()
	ok := p.isKeyword("getline")
	p.lex, p.tok = saved, tok
	return ok
}

func (p *parser) concat() expr {
	x := p.sum()
	for {
		switch p.tok.kind {
		case tokNumber, tokString, tokName, tokFunc, tokBuiltin, "$", "!", "(", "++", "--":
			x = binary{" ", x, p.sum()}
		default:
			return x
		}
	}
}

func (p *parser) sum() expr {
	x := p.product()
	for p.is("+") || p.is("-") {
		op := p.tok.kind
		p.advance()
		x = binary{op, x, p.product()}
	}
	return x
}

func (p *parser) product() expr {
	x := p.unary()
	for p.is("*") || p.is("/") || p.is("%") {
		op := p.tok.kind
		p.advance()
		x = binary{op, x, p.unary()}
	}
	return x
}

func (p *parser) unary() expr {
	defer p.enter()()
	if p.is("!") || p.is("-") || p.is("+") {
		op := p.tok.kind
		p.advance()
		return unary{op, p.unary()}
	}
	return p.power()
}

func (p *parser) power() expr {
	x := p.postfix()
	if !p.accept("^") {
		return x
	}
	if p.is("-") || p.is("+") || p.is("!") {
		op := p.tok.kind
		p.advance()
		return binary{"^", x, unary{op, p.power()}}
	}
	return binary{"^", x, p.power()}
}

func (p *parser) postfix() expr {
	x := p.primary()
	if isLvalue(x) && (p.is("++") || p.is("--")) {
		d := map[string]float64{"++": 1, "--": -1}[p.tok.kind]
		p.advance()
		return incDec{x, d, true}
	}
	return x
}

func (p *parser) primary() expr {
	defer p.enter()()
	t := p.tok
	switch t.kind {
	case tokNumber:
		p.advance()
		return numLit{num(t.num)}
	case tokString:
		p.advance()
		return strLit{str(t.text)}
	case "/":
		return p.regex("")
	case "/=":
		return p.regex("=")
	case "$":
		p.advance()
		if p.is("++") || p.is("--") || p.is("-") || p.is("+") || p.is("!") {
			if p.is("++") || p.is("--") {
				return fieldRef{p.primary()}
			}
			op := p.tok.kind
			p.advance()
			return fieldRef{unary{op, p.primary()}}
		}
		return fieldRef{p.primary()}
	case "++", "--":
		p.advance()
		x := p.primary()
		if !isLvalue(x) {
			p.fail()
		}
		return incDec{x, map[string]float64{"++": 1, "--": -1}[t.kind], false}
	case "(":
		return p.grouping()
	case tokFunc:
		return p.call()
	case tokBuiltin:
		return p.builtin()
	case tokName:
		p.advance()
		v := p.variable(t.text)
		if p.accept("[") {
			subs := p.subscripts()
			return indexRef{v, subs}
		}
		return v
	case tokKeyword:
		if p.acceptKeyword("getline") {
			g := getline{target: p.optionalLvalue()}
			if p.accept("<") {
				g.kind, g.source = '<', p.postfix() // without concatenation
			}
			return g
		}
	}
	p.fail()
	return nil
}

func (p *parser) subscripts() []expr {
	noGT := p.noGT
	p.noGT = false
	subs := p.list()
	p.noGT = noGT
	p.expect("]")
	return subs
}

func (p *parser) grouping() expr {
	p.advance()
	noGT := p.noGT
	p.noGT = false
	list := p.list()
	p.noGT = noGT
	p.expect(")")
	if len(list) > 1 {
		return group{list}
	}
	if isLvalue(list[0]) {
		return list[0]
	}
	// group distinguishes it from the same expression without parentheses.
	return group{list}
}

func (p *parser) regex(start string) expr {
	text := start + p.lex.regex()
	p.advance()
	return regexLit{compile(text)}
}

func compile(text string) *posixre.Regexp {
	re, err := posixre.Compile(literalOctal(text), posixre.Options{Extended: true, Escapes: true})
	if err != nil {
		throw("regular expression /%s/: %v", text, err)
	}
	return re
}

func (p *parser) variable(name string) varRef {
	if i, ok := p.locals[name]; ok {
		return varRef{name, i, true}
	}
	i, ok := p.prog.globals[name]
	if !ok {
		i = len(p.prog.globals)
		p.prog.globals[name] = i
	}
	return varRef{name, i, false}
}

func (p *parser) optionalLvalue() expr {
	switch p.tok.kind {
	case "$":
		p.advance()
		return fieldRef{p.primary()}
	case tokName:
		name := p.tok.text
		p.advance()
		v := p.variable(name)
		if p.accept("[") {
			return indexRef{v, p.subscripts()}
		}
		return v
	}
	return nil
}

// arguments parses (a, b, …).
func (p *parser) arguments() []expr {
	p.expect("(")
	noGT := p.noGT
	p.noGT = false
	defer func() { p.noGT = noGT }()
	var args []expr
	p.newlines()
	if !p.is(")") {
		args = p.list()
	}
	p.newlines()
	p.expect(")")
	return args
}

func (p *parser) call() expr {
	c := &call{name: p.tok.text, line: p.tok.line}
	p.advance()
	c.args = p.arguments()
	p.calls = append(p.calls, c)
	return c
}

// arity has the minimum and maximum number of arguments of the built-in functions.
var arity = map[string][2]int{
	"atan2": {2, 2}, "close": {1, 2}, "cos": {1, 1}, "exp": {1, 1}, "fflush": {0, 1}, "gensub": {3, 4}, "gsub": {2, 3}, "index": {2, 2}, "int": {1, 1}, "length": {0, 1},
	"log": {1, 1}, "match": {2, 3}, "mktime": {1, 1}, "rand": {0, 0}, "sin": {1, 1}, "split": {2, 3}, "sprintf": {1, 1 << 20}, "sqrt": {1, 1}, "srand": {0, 1},
	"strftime": {0, 3}, "sub": {2, 3}, "substr": {2, 3}, "system": {1, 1}, "systime": {0, 0}, "tolower": {1, 1}, "toupper": {1, 1},
	"and": {2, 2}, "or": {2, 2}, "xor": {2, 2}, "lshift": {2, 2}, "rshift": {2, 2}, "compl": {1, 1}, "strtonum": {1, 1}, "asort": {1, 2}, "asorti": {1, 2},
}

func (p *parser) builtin() expr {
	c := builtinCall{name: p.tok.text}
	line := p.tok.line
	p.advance()
	if p.is("(") {
		c.args = p.arguments()
	} else if c.name != "length" {
		p.fail()
	}
	if n := arity[c.name]; len(c.args) < n[0] || len(c.args) > n[1] {
		throw("%s is called with %d arguments at source line %d", c.name, len(c.args), line)
	}
	return c
}
