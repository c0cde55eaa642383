package faulty

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// interpreters are the programs that run scripts.
var interpreters = []string{"python3", "node", "sh", "elixir"}

// scriptResult is the result of a script. The functions of the interpreter return it to end the
// script; nil means to continue.
type scriptResult struct{ r sandbar.Result }

func exit(code int) *scriptResult {
	return &scriptResult{sandbar.Result{Outcome: sandbar.Exited, ExitCode: code}}
}

// load returns the script of a command and the program's arguments. NotFound: no such program.
func (b *sandbox) load(c sandbar.Cmd) (script [][]string, args []string, err error) {
	name, rest := c.Args[0], c.Args[1:]
	if _, ok := b.d.verbs[name]; ok {
		for cmd := range splitArgs(c.Args) {
			script = append(script, cmd)
		}
		return script, nil, nil
	}
	missing := slices.Contains(b.d.Missing, name) || !slices.Contains(interpreters, name)
	if missing || len(rest) == 0 {
		return nil, nil, sandbar.Errorf(sandbar.NotFound, "there is no program %s", sandbar.Quote(name, 40))
	}
	text := ""
	if rest[0] == "-c" && len(rest) > 1 {
		text, rest = rest[1], rest[1:]
	} else if text, err = b.fs.text(rest[0]); err != nil {
		return parse("exit 2"), nil, nil // like real interpreters without their file
	}
	return parse(text), rest[1:], nil
}

// splitArgs yields the commands between ";" arguments.
func splitArgs(args []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(args) > 0 {
			n := slices.Index(args, ";")
			if n < 0 {
				n = len(args)
			}
			if !yield(args[:n]) {
				return
			}
			args = args[min(n+1, len(args)):]
		}
	}
}

// parse splits a script into commands, and each into words.
func parse(text string) (script [][]string) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		script = append(script, words(line))
	}
	return script
}

func words(line string) (w []string) {
	for line = strings.TrimLeft(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		if q, err := strconv.QuotedPrefix(line); err == nil && line[0] == '"' {
			s, _ := strconv.Unquote(q) // QuotedPrefix has checked it
			w, line = append(w, s), line[len(q):]
			continue
		}
		n := strings.IndexAny(line, " \t")
		if n < 0 {
			n = len(line)
		}
		w, line = append(w, line[:n]), line[n:]
	}
	return w
}

// verb is one command of the language.
type verb struct {
	operands int // minimum number
	run      func(p *process, w []string) *scriptResult
}

// newVerbs returns the table of commands.
func newVerbs() map[string]verb {
	return map[string]verb{
		"print":       {1, func(p *process, w []string) *scriptResult { return p.put(w[0], strings.Join(w[1:], " ")+"\n") }},
		"write":       {2, func(p *process, w []string) *scriptResult { return p.put(w[0], strings.Join(w[1:], " ")) }},
		"flood":       {2, (*process).flood},
		"dribble":     {3, (*process).dribble},
		"echo-stdin":  {0, (*process).echo},
		"count-stdin": {0, (*process).count},
		"args": {0, func(p *process, _ []string) *scriptResult {
			return p.put("stdout", strings.Join(append(slices.Clone(p.args), ""), "\n"))
		}},
		"dir":         {0, func(p *process, _ []string) *scriptResult { return p.put("stdout", p.cmd.Dir+"\n") }},
		"env":         {1, (*process).env},
		"cat":         {1, (*process).cat},
		"save":        {2, (*process).save},
		"sleep":       {1, (*process).sleep},
		"block-until": {1, func(p *process, w []string) *scriptResult { return p.wait(p.b.d.gate(w[0]).arrive()) }},
		"repeat":      {2, (*process).repeat},
		"serve":       {1, (*process).serve},
		"ignore-term": {0, func(p *process, _ []string) *scriptResult { p.setTerm(true, nil); return nil }},
		"on-term":     {1, func(p *process, w []string) *scriptResult { p.setTerm(false, w); return nil }},
		"usage":       {2, (*process).usage},
		"drain": {1, func(p *process, w []string) *scriptResult {
			return p.duration(w[0], func(d time.Duration) { p.drain = d })
		}},
		"exit": {1, func(p *process, w []string) *scriptResult { return p.number(w[0], 0, 255, exit) }},
		"signal": {1, func(p *process, w []string) *scriptResult {
			return p.number(w[0], 1, 64, func(n int) *scriptResult {
				return &scriptResult{sandbar.Result{Outcome: sandbar.Signaled, Signal: n}}
			})
		}},
		"oom": {0, func(p *process, _ []string) *scriptResult {
			return &scriptResult{sandbar.Result{Outcome: sandbar.OutOfMemory, Signal: 9, OOMKills: 1, PeakMemory: p.b.spec.Limits.Memory}}
		}},
		"lost": {0, func(p *process, _ []string) *scriptResult { p.b.die(); return p.wait(nil) }},
		"hang": {1, func(p *process, w []string) *scriptResult {
			p.hang.Do(func() { close(p.hung) })
			<-p.b.d.gate(w[0]).arrive()
			return &scriptResult{sandbar.Result{Outcome: sandbar.Lost}}
		}},
		"leave":      {0, func(p *process, _ []string) *scriptResult { p.b.leave(p); return nil }},
		"panic-wait": {0, func(p *process, _ []string) *scriptResult { p.waitPanic = true; return nil }},
		"fail-wait": {1, func(p *process, w []string) *scriptResult {
			p.waitErr = fmt.Errorf("%s", strings.Join(w, " "))
			return nil
		}},
	}
}

func (g *gate) arrive() <-chan struct{} {
	g.arrived.Do(func() { close(g.reached) })
	return g.open
}

// runAll runs commands until one ends the program. It returns nil if none does.
func (p *process) runAll(script [][]string) *scriptResult {
	for _, w := range script {
		select {
		case <-p.stopped: // so that a script that never waits can be killed
			return p.killed()
		default:
		}
		if e := p.runOne(w); e != nil {
			return e
		}
	}
	return nil
}

func (p *process) runOne(w []string) *scriptResult {
	v, ok := p.b.d.verbs[w[0]]
	if !ok || len(w)-1 < v.operands {
		return p.badWord(w[0])
	}
	return v.run(p, w[1:])
}

// badWord ends a program because of an invalid word.
func (p *process) badWord(word string) *scriptResult {
	if e := p.put("stderr", "faulty: cannot understand "+strconv.Quote(word)+"\n"); e != nil {
		return e
	}
	return exit(2)
}

func (p *process) killed() *scriptResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &scriptResult{p.cause}
}

// wait waits until c is closed, or the program is stopped. Meanwhile it runs traps. c may be nil.
func (p *process) wait(c <-chan struct{}) *scriptResult {
	for {
		select {
		case <-c:
			return nil
		case <-p.trap:
			if e := p.trapped(); e != nil {
				return e
			}
		case <-p.stopped:
			return p.killed()
		}
	}
}

func (p *process) trapped() *scriptResult {
	p.mu.Lock()
	cmd := p.onTerm
	p.mu.Unlock()
	return p.runOne(cmd)
}

func (p *process) setTerm(ignore bool, cmd []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ignore, p.onTerm = ignore, cmd
}

// put writes to a stream. It blocks while the pipe is full.
func (p *process) put(stream, text string) *scriptResult {
	var out *pipe
	switch stream {
	case "stdout":
		out = p.out[sandbar.Stdout]
	case "stderr":
		out = p.out[sandbar.Stderr]
	default:
		return p.badWord(stream)
	}
	for len(text) > 0 {
		n := min(len(text), chunk)
		select {
		case <-p.stopped: // a stopped program writes nothing, even if the pipe is not full
			return p.killed()
		default:
		}
		select {
		case out.data <- []byte(text[:n]):
			p.b.d.written.Add(int64(n))
			text = text[n:]
		case <-out.broken:
			return &scriptResult{sandbar.Result{Outcome: sandbar.Signaled, Signal: 13}}
		case <-p.stopped:
			return p.killed()
		}
	}
	return nil
}

func (p *process) flood(w []string) *scriptResult {
	n, err := strconv.ParseInt(w[1], 10, 64)
	if err != nil {
		return p.badWord(w[1])
	}
	// One period longer than a chunk, so that it contains a chunk at every phase.
	period := make([]byte, chunk+26)
	for i := range period {
		period[i] = Pattern(int64(i))
	}
	for at := int64(0); at < n; {
		size := min(n-at, chunk)
		from := at % 26
		if e := p.put(w[0], string(period[from:from+size])); e != nil {
			return e
		}
		at += size
	}
	return nil
}

func (p *process) dribble(w []string) *scriptResult {
	for i := range len(w[1]) {
		if e := p.put(w[0], w[1][i:i+1]); e != nil {
			return e
		}
		if e := p.sleep(w[2:]); e != nil {
			return e
		}
	}
	return nil
}

func (p *process) sleep(w []string) *scriptResult {
	d, err := time.ParseDuration(w[0])
	if err != nil {
		return p.badWord(w[0])
	}
	c := make(chan struct{})
	t := time.AfterFunc(d, func() { close(c) })
	defer t.Stop()
	return p.wait(c)
}

// input calls each for every piece of stdin. It reads in another goroutine, because a Read may
// block beyond the program's end.
func (p *process) input(each func([]byte) *scriptResult) *scriptResult {
	if p.std.Stdin == nil {
		return nil
	}
	pieces := make(chan []byte)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 4<<10)
			n, err := p.std.Stdin.Read(b)
			select {
			case pieces <- b[:n]:
			case <-p.ended:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case b, ok := <-pieces:
			if !ok {
				return nil
			}
			if e := each(b); e != nil {
				return e
			}
		case <-p.trap:
			if e := p.trapped(); e != nil {
				return e
			}
		case <-p.stopped:
			return p.killed()
		}
	}
}

func (p *process) echo([]string) *scriptResult {
	return p.input(func(b []byte) *scriptResult { return p.put("stdout", string(b)) })
}

func (p *process) count([]string) *scriptResult {
	n := 0
	if e := p.input(func(b []byte) *scriptResult { n += len(b); return nil }); e != nil {
		return e
	}
	return p.put("stdout", strconv.Itoa(n)+"\n")
}

func (p *process) env(w []string) *scriptResult {
	v, ok := p.cmd.Env[w[0]]
	if !ok {
		v, ok = p.b.spec.Env[w[0]]
	}
	if !ok {
		return p.put("stdout", w[0]+" is unset\n")
	}
	return p.put("stdout", w[0]+"="+v+"\n")
}

func (p *process) cat(w []string) *scriptResult {
	text, err := p.b.fs.text(w[0])
	if err != nil {
		return p.failed(err)
	}
	return p.put("stdout", text)
}

func (p *process) save(w []string) *scriptResult {
	f, err := p.b.fs.Create(context.Background(), w[0], sandbar.CreateOptions{Parents: true})
	if err != nil {
		return p.failed(err)
	}
	if _, err = io.WriteString(f, strings.Join(w[1:], " ")); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}

// failed ends a program because of an error.
func (p *process) failed(err error) *scriptResult {
	if e := p.put("stderr", "faulty: "+err.Error()+"\n"); e != nil {
		return e
	}
	return exit(1)
}

func (p *process) repeat(w []string) *scriptResult {
	n, err := strconv.Atoi(w[0])
	if err != nil {
		return p.badWord(w[0])
	}
	for range n {
		if e := p.runAll([][]string{w[1:]}); e != nil {
			return e
		}
	}
	return nil
}

func (p *process) serve(w []string) *scriptResult {
	return p.number(w[0], 1, 65535, func(n int) *scriptResult {
		p.b.mu.Lock()
		defer p.b.mu.Unlock()
		p.b.ports[n] = true
		return nil
	})
}

func (p *process) usage(w []string) *scriptResult {
	n, err := strconv.ParseInt(w[1], 10, 64)
	if err != nil {
		return p.badWord(w[1])
	}
	p.result.PeakMemory = n
	return p.duration(w[0], func(d time.Duration) { p.result.CPUTime = d })
}

func (p *process) duration(s string, use func(time.Duration)) *scriptResult {
	d, err := time.ParseDuration(s)
	if err != nil {
		return p.badWord(s)
	}
	use(d)
	return nil
}

func (p *process) number(s string, lo, hi int, use func(int) *scriptResult) *scriptResult {
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return p.badWord(s)
	}
	return use(n)
}
