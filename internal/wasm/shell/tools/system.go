package tools

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// randomName returns a name of n random letters and digits.
func randomName(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[randomInt(len(letters))]
	}
	return string(b)
}

func randomInt(n int) int {
	v, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0 // crypto/rand never fails
	}
	return int(v.Int64())
}

func id(t *cmd) {
	kind, name := byte(0), false
	who := t.options(
		"u user", set(&kind, 'u'),
		"g group", set(&kind, 'g'),
		"G groups", set(&kind, 'G'),
		"n name", &name,
		"r real", nil,
	)
	user, number := UserName, UserID
	if len(who) > 0 {
		switch who[0] {
		case UserName, UserID:
		case "root", "0":
			user, number = "root", "0"
		default:
			t.fatal(1, "'%s': no such user", who[0])
		}
	}
	switch {
	case kind == 0:
		fmt.Fprintf(t.out, "uid=%s(%s) gid=%s(%s) groups=%s(%s)\n", number, user, number, user, number, user)
	case name:
		fmt.Fprintln(t.out, user)
	default:
		fmt.Fprintln(t.out, number)
	}
}

func whoami(t *cmd) { fmt.Fprintln(t.out, UserName) }

func hostname(t *cmd) {
	args := t.options("s f short fqdn long", nil)
	if len(args) > 0 {
		t.fatal(1, "you must be root to change the host name")
	}
	fmt.Fprintln(t.out, HostName)
}

func uname(t *cmd) {
	wanted := ""
	note := func(c byte) { wanted += string(c) }
	t.options(
		"a all", note,
		"s kernel-name", note,
		"n nodename", note,
		"r kernel-release", note,
		"v kernel-version", note,
		"m machine", note,
		"o operating-system", note,
	)
	wanted = cmp.Or(wanted, "s")
	fields := []struct {
		letter byte
		value  string
	}{{'s', "Sandbar"}, {'n', HostName}, {'r', "1"}, {'v', "wasm"}, {'m', "wasm32"}, {'o', "Sandbar"}}
	var out []string
	for _, f := range fields {
		if strings.IndexByte(wanted, f.letter) >= 0 || strings.Contains(wanted, "a") {
			out = append(out, f.value)
		}
	}
	fmt.Fprintln(t.out, strings.Join(out, " "))
}

func nproc(t *cmd) { fmt.Fprintln(t.out, 1) }

func arch(t *cmd) { fmt.Fprintln(t.out, "wasm32") }

func tty(t *cmd) {
	fmt.Fprintln(t.out, "not a tty")
	t.status = 1
}

func logname(t *cmd) { fmt.Fprintln(t.out, UserName) }

func env(t *cmd) {
	vars := slices.Clone(t.Env)
	end, dir := "\n", t.Dir
	var split []string
	args := t.leading(
		"i ignore-environment", func(v string) { vars = nil },
		"u: unset", func(v string) {
			vars = slices.DeleteFunc(vars, func(kv string) bool { return strings.HasPrefix(kv, v+"=") })
		},
		"0 null", set(&end, "\x00"),
		"C: chdir", func(v string) {
			dir = absolute(t.Dir, v)
			if !t.isDir(v) {
				t.fatal(125, "cannot change directory to '%s': No such file or directory", v)
			}
		},
		"S: split-string", func(v string) { split = append(split, strings.Fields(v)...) },
	)
	if args = append(split, args...); len(args) > 0 && args[0] == "-" {
		vars, args = nil, args[1:]
	}
	for len(args) > 0 {
		k, _, ok := strings.Cut(args[0], "=")
		if !ok {
			break
		}
		vars = slices.DeleteFunc(vars, func(kv string) bool { return strings.HasPrefix(kv, k+"=") })
		vars, args = append(vars, args[0]), args[1:]
	}
	if len(args) == 0 {
		for _, kv := range vars {
			fmt.Fprint(t.out, kv+end)
		}
		return
	}
	t.status = t.runWith(t.ctx, args, vars, dir)
}

// runWith runs another command with another environment.
func (t *cmd) runWith(ctx context.Context, args, vars []string, dir string) int {
	old := t.Context
	changed := *old
	changed.Env = vars
	t.Context = &changed
	defer func() { t.Context = old }()
	return t.runOther(ctx, args, dir, nil)
}

func printenv(t *cmd) {
	end := "\n"
	names := t.options("0 null", set(&end, "\x00"))
	if len(names) == 0 {
		for _, kv := range t.Env {
			fmt.Fprint(t.out, kv+end)
		}
		return
	}
	for _, n := range names {
		if v, ok := t.LookupEnv(n); ok {
			fmt.Fprint(t.out, v+end)
		} else {
			t.status = 1
		}
	}
}

// duration parses a time such as 1.5 or 2m.
func (t *cmd) duration(text string) time.Duration {
	unit := time.Second
	digits := text
	if text != "" {
		if u, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[text[len(text)-1]]; ok {
			unit, digits = u, text[:len(text)-1]
		}
	}
	if digits == "inf" || digits == "infinity" {
		return 1 << 62
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || f < 0 {
		t.fatal(usageStatus(t.name), "invalid time interval '%s'", text)
	}
	return time.Duration(min(f*float64(unit), 1<<62))
}

func sleep(t *cmd) {
	times := t.options()
	t.need(times, 1)
	total := time.Duration(0)
	for _, text := range times {
		total = min(total+t.duration(text), 1<<62)
	}
	t.sleep(total)
}

func timeout(t *cmd) {
	keep, sig := false, "TERM"
	args := t.leading(
		"p preserve-status", &keep,
		"s: signal", func(v string) { sig = strings.TrimPrefix(strings.ToUpper(v), "SIG") },
		"k: kill-after", nil,
		"v f verbose foreground", nil,
	)
	if len(args) < 2 {
		t.fatal(125, "missing operand")
	}
	d := t.duration(args[0])
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	if d > 0 {
		ctx, cancel = context.WithTimeout(t.ctx, d)
		defer cancel()
	}
	status := t.runOther(ctx, args[1:], t.Dir, nil)
	if ctx.Err() == nil {
		t.status = status
		return
	}
	t.check()
	switch {
	case sig == "KILL" || sig == "9":
		t.status = 137
	case keep:
		t.status = 143
	default:
		t.status = 124
	}
}

// wrapper implements nohup, nice etc., which have no effect and run another command.
func wrapper(specs ...any) func(t *cmd) {
	return func(t *cmd) {
		args := t.leading(specs...)
		if len(args) == 0 {
			t.fatal(125, "missing operand")
		}
		t.status = t.runOther(t.ctx, args, t.Dir, nil)
	}
}

func which(t *cmd) {
	names := t.options("a all", nil)
	for _, n := range names {
		if p := t.lookPath(n); p != "" {
			fmt.Fprintln(t.out, p)
		} else {
			t.status = 1
		}
	}
}

func (t *cmd) lookPath(name string) string {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for dir := range strings.SplitSeq(t.Getenv("PATH"), ":") {
			candidates = append(candidates, join(dir, name))
		}
	}
	for _, c := range candidates {
		if info, err := t.FS.Stat(t.Dir, c); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return c
		}
	}
	return ""
}

// builtinTool makes a builtin of the shell available as a utility, for programs that run it.
func builtinTool(script string) program.Program {
	return func(ctx context.Context, c *program.Context) int {
		if c.Run == nil {
			return 126
		}
		copied := *c
		copied.Args = append([]string{"sh", "-c", script, "sh"}, c.Args[1:]...)
		return c.Run(ctx, &copied)
	}
}
