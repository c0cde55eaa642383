package awk

import "github.com/sandbar-dev/sandbar/internal/wasm/shell/posixre"

// expr is an expression.
type expr interface{}

type (
	numLit   struct{ v value }
	strLit   struct{ v value }
	regexLit struct{ re *posixre.Regexp }
	// varRef is a variable: a global by index, or a local of the function.
	varRef struct {
		name  string
		index int
		local bool
	}
	indexRef struct {
		array varRef
		subs  []expr
	}
	fieldRef struct{ index expr }
	assign   struct {
		target expr
		op     string // "" or the operator before "="
		value  expr
	}
	cond   struct{ test, yes, no expr }
	binary struct {
		op   string
		a, b expr
	}
	unary struct {
		op string
		x  expr
	}
	incDec struct {
		target expr
		delta  float64
		post   bool
	}
	matchOp struct {
		x, re expr
		not   bool
	}
	inOp struct {
		subs  []expr
		array varRef
	}
	group struct{ list []expr } // (a, b) before in, or in print
	call  struct {
		name string
		fn   *function // set after all functions are parsed
		args []expr
		line int
	}
	builtinCall struct {
		name string
		args []expr
	}
	getline struct {
		target expr // nil: $0
		kind   byte // 0: the input, '<': a file, '|': a command
		source expr
	}
)

// stmt is a statement.
type stmt interface{}

type (
	exprStmt  struct{ x expr }
	printStmt struct {
		args   []expr
		format bool
		redir  string // "", ">", ">>", "|"
		dest   expr
	}
	ifStmt struct {
		test    expr
		yes, no []stmt
	}
	whileStmt struct {
		test expr
		body []stmt
		do   bool // do … while
	}
	forStmt struct {
		init, post stmt
		test       expr
		body       []stmt
	}
	forInStmt struct {
		key   expr
		array varRef
		body  []stmt
	}
	deleteStmt struct {
		array varRef
		subs  []expr // nil: the whole array
	}
	blockStmt  struct{ list []stmt }
	returnStmt struct{ x expr }
	exitStmt   struct{ x expr }
	simpleStmt struct{ what flow } // next, nextfile, break, continue
)

// flow is a transfer of control out of a statement.
type flow uint8

const (
	flowNone flow = iota
	flowBreak
	flowContinue
	flowNext
	flowNextFile
	flowReturn
	flowExit
)

// rule is a pattern and its action.
type rule struct {
	from, to expr // nil: all records; to is set for a range
	body     []stmt
	noBody   bool // no action: print $0
	active   bool // within a range
}

type function struct {
	name   string
	params []string
	body   []stmt
}

// Program is a parsed program. It runs once.
type Program struct {
	begin, end [][]stmt
	rules      []*rule
	funcs      map[string]*function
	globals    map[string]int
}
