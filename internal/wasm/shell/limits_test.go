package shell

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
)

// run runs a script with given limits and returns output, errors and status.
func run(t testing.TB, c Config) (out, errs string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if c.FS == nil {
		c.FS = newFS(t)
	}
	var o, e bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &o
	}
	c.Stderr = &e
	exit, err := Run(ctx, c)
	if err != nil {
		t.Fatalf("Run: %v; stderr: %s", err, &e)
	}
	return o.String(), e.String(), exit
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string
		limits Limits
		exit   int
		out    string // of stdout
		errs   string // somewhere in stderr
	}{
		{name: "recursion", script: `f() { f; }; f; echo no`, exit: 2, errs: "nesting"},
		{name: "recursion in a subshell", script: `(f() { f; }; f); echo $?`, out: "2\n", errs: "nesting"},
		{name: "recursion of eval", script: `x='eval "$x"'; eval "$x"`, exit: 2, errs: "nesting"},
		{name: "recursion of source", script: `echo '. ./s' > s; . ./s`, exit: 2, errs: "nesting"},
		{name: "recursion of arithmetic", script: `x=x+1; echo $((x))`, exit: 2, errs: "nesting"},
		{name: "recursion of substitutions", script: `f() { echo $(f); }; f`, limits: Limits{Processes: 50}, errs: "Cannot fork"},
		{name: "recursion of shells", script: `echo 'sh ./s' > s; sh ./s; echo $?`, limits: Limits{Processes: 20}, out: "2\n", errs: "Cannot fork"},
		{name: "deep parentheses", script: strings.Repeat("(", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "deep braces", script: strings.Repeat("{ ", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "deep substitutions", script: strings.Repeat("$(", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "deep conditions", script: strings.Repeat("if ", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "deep arithmetic", script: "echo $((" + strings.Repeat("(", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "deep test", script: "[[ " + strings.Repeat("( ", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "deep defaults", script: "echo " + strings.Repeat("${a:-", 200_000), exit: 2, errs: "nested too deeply"},
		{name: "long value", script: `x=0123456789; while :; do x=$x$x; done`, exit: 2, errs: "longer than the limit"},
		{name: "long output of a substitution", script: `x=$(yes); echo ${#x}`, limits: Limits{Bytes: 1 << 20}, exit: 0, errs: "Cannot allocate memory"},
		{name: "long replacement", script: `x=$(printf '%5000s'); y=${x// /$x}; echo no`, limits: Limits{Bytes: 1 << 20}, exit: 2, errs: "longer than the limit"},
		{name: "wide printf", script: `printf '%999999999d' 1 | wc -c`, out: "65536\n"},
		{name: "long printf", script: `printf '%60000s' $(seq 100); echo $?`, limits: Limits{Bytes: 1 << 20}, errs: "too long"},
		{name: "large brace", script: `echo {1..1000000000}`, exit: 2, errs: "too many words"},
		{name: "braces of braces", script: `echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}`, exit: 2, errs: "too many words"},
		{name: "glob of globs", script: `mkdir t; cd t; for i in $(seq 60); do mkdir d$i; done; echo */../*/../*/../*/..`, exit: 2, errs: "too many paths"},
		{name: "descriptors", script: `i=3; while :; do eval "exec $i>f" || break; i=$((i+1)); done; echo $i`, limits: Limits{Descriptors: 50}, exit: 2, errs: "descriptor"},
		{name: "descriptor number", script: `exec 99999>f`, exit: 2, errs: "Bad file descriptor"},
		{name: "fork bomb", script: `f() { f | f & }; f; wait; echo over`, out: "over\n", errs: ""},
		{name: "jobs", script: `i=0; while [ $i -lt 1000 ]; do sleep 60 & i=$((i+1)); done`, limits: Limits{Processes: 20}, exit: 2, errs: "Cannot fork"},
		{name: "long pipeline", script: "true" + strings.Repeat(" | cat", 500), limits: Limits{Processes: 20}, exit: 2, errs: "Cannot fork"},
		{name: "full disk", script: `yes > f; echo $?; rm f; echo ok > g; cat g`, out: "1\nok\n", errs: "No space left on device"},
		{name: "full of files", script: `i=0; while : > f$i; do i=$((i+1)); done 2>/dev/null; rm f*; : > x && echo ok`, out: "ok\n"},
		{name: "full disk for awk", script: `yes | awk '{print > "f"}'; echo $?`, out: "2\n", errs: "No space left on device"},
		{name: "full disk for sort", script: `yes $(printf '%999s' | tr ' ' x) | head -n 5000 > f; sort -o g f f f f; echo $?`, out: "2\n", errs: "No space left on device"},
		{name: "sparse file", script: `truncate -s 1000000000000 f; echo $?; truncate -s 12M f; wc -c < f`, out: "1\n12582912\n", errs: "File too large"},
		{name: "sed grows", script: `echo x | sed ':a;G;h;ba'`, exit: 4, errs: "too long"},
		{name: "sed loops", script: `echo x | timeout 0.05 sed ':a;ba'; echo $?`, out: "124\n"},
		{name: "awk loops", script: `timeout 0.05 awk 'BEGIN{while(1) i++}'; echo $?`, out: "124\n"},
		{name: "awk grows", script: `awk 'BEGIN{s="x"; while(1) s = s s}'`, exit: 2, errs: "too long"},
		{name: "awk recursion", script: `awk 'function f(){f()} BEGIN{f()}'`, exit: 2, errs: "too deeply"},
		{name: "awk fields", script: `echo x | awk '{$100000000="y"}'`, exit: 2, errs: "too large"},
		{name: "jq loops", script: `timeout 0.05 jq -n 'def f: f; f'; echo $?`, out: "124\n"},
		{name: "bad regex", script: `echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab | grep -E '^(a*)*(a*)*\1b\2$'; echo over`, out: ""},
		{name: "empty loop", script: `timeout 0.05 sh -c 'while :; do :; done'; echo $?`, out: "124\n"},
		{name: "yes to head", script: `yes | head -n 2; seq 1 1000000000 | head -n 1`, out: "y\ny\n1\n"},
		{name: "writers end with their readers", script: `{ while :; do echo y; done; } | head -n 1; (trap '' PIPE; echo x; sleep 0; echo z 2>/dev/null || echo failed >&2) | true`, out: "y\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, exit := run(t, Config{Script: c.script, Limits: c.limits, Dir: "/w"})
			if c.errs != "" && !strings.Contains(errs, c.errs) {
				t.Errorf("stderr %.300q, want %q in it", errs, c.errs)
			}
			if c.out != "" && out != c.out {
				t.Errorf("stdout %.300q, want %q", out, c.out)
			}
			if c.exit != 0 && exit != c.exit {
				t.Errorf("exit status %d, want %d", exit, c.exit)
			}
		})
	}
}

// slowWriter blocks each write until the test permits it.
type slowWriter struct {
	next  chan bool
	wrote int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	if !<-w.next {
		return 0, errors.New("gone")
	}
	w.wrote += len(p)
	return len(p), nil
}

// If the reader does not read, a full pipe blocks its writers.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{next: make(chan bool)}
		done := make(chan int)
		f := newFS(t)
		go func() {
			exit, _ := Run(context.Background(), Config{FS: f, Script: `yes | cat; exit 5`, Stdout: w})
			done <- exit
		}()
		for range 10 {
			w.next <- true
		}
		synctest.Wait() // everything is blocked, or this would not return
		if w.wrote > 10*64<<10 {
			t.Errorf("ten writes took %d bytes", w.wrote)
		}
		w.next <- false
		if exit := <-done; exit != 5 {
			t.Errorf("exit status %d, want 5", exit)
		}
	})
}

func TestContextEndsEverything(t *testing.T) {
	for _, script := range []string{
		`sleep 1000000`, `cat`, `read x`, `while :; do :; done`, `yes | cat > /dev/null`, `sleep 1000000 | sleep 1000000`, `(sleep 1000000) & wait`, `x=$(sleep 1000000)`,
		`awk 'BEGIN{while(1);}'`, `cat <(sleep 1000000)`, `trap '' TERM INT; sleep 1000000`, `sed ':a;ba' /etc/passwd`, `tail -f /etc/passwd`, `xargs sleep < /dev/zero`, `find / -exec sleep 1000000 \;`,
		`sh -c 'sh -c "sleep 1000000"'`, `seq 1 100000000000 > /dev/null`, `timeout 1000000 sleep 1000000`, `jq -n 'def f: f; f'`, `for ((;;)); do :; done`, `until false; do true; done`,
	} {
		t.Run(script, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			in, stop := io.Pipe()
			defer stop.Close()
			started := make(chan struct{})
			var once sync.Once
			out := writerFunc(func(p []byte) (int, error) { once.Do(func() { close(started) }); return len(p), nil })
			go func() {
				<-started
				cancel()
			}()
			exit, err := Run(ctx, Config{FS: newFS(t), Script: "echo started\n" + script, Stdin: in, Stdout: out})
			if !errors.Is(err, context.Canceled) || exit != 137 {
				t.Errorf("Run returned %d, %v, want 137 and context.Canceled", exit, err)
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestJobsLingerAsLongAsTheyMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const script = `(sleep 1; echo job) & (sleep 3600; echo never) & echo shell`
		for linger, want := range map[time.Duration]string{0: "shell\n", 2 * time.Second: "shell\njob\n"} {
			out, _, _ := run(t, Config{Script: script, Linger: linger})
			if out != want {
				t.Errorf("with %v: %q, want %q", linger, out, want)
			}
		}
	})
}

func TestProgramsOfTheCaller(t *testing.T) {
	f := memfs.New(memfs.Limits{})
	programs := map[string]Program{
		"shout": func(_ context.Context, c *ProgramContext) int {
			in, _ := io.ReadAll(c.Stdin)
			_, _ = io.WriteString(c.Stdout, strings.ToUpper(string(in))+strings.Join(c.Args[1:], "+")+c.Getenv("MARK"))
			return 3
		},
		"broken": func(_ context.Context, c *ProgramContext) int {
			for {
				if _, err := io.WriteString(c.Stdout, "x"); err != nil {
					_, _ = io.WriteString(c.Stderr, "told: "+err.Error()+"\n")
					return 4
				}
			}
		},
		"crash": func(context.Context, *ProgramContext) int { panic("of a program") },
	}
	if err := Install(f, programs); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		`echo hi | MARK=! shout a b; echo " $?"`:                                  "HI\na+b! 3\n",
		`echo x | xargs shout; echo " $?"`:                                        "x 123\n",
		`command -v shout`:                                                        "/usr/bin/shout\n",
		`(broken; echo "status $?" >&2) | head -c 1; echo`:                        "x\n",
		`crash; echo $?; echo still here`:                                         "70\nstill here\n",
		`rm /usr/bin/shout; shout; echo $?`:                                       "127\n",
		`printf '#!/usr/bin/shout\n' > s; chmod +x s; ./s </dev/null | tail -c 4`: "./s",
		`PATH=/nowhere; shout; echo $?`:                                           "127\n",
	} {
		s := f.Snapshot()
		out, errs, _ := run(t, Config{FS: f, Script: script, Dir: "/tmp", Programs: programs})
		if strings.TrimPrefix(out, "\n") != want {
			t.Errorf("%s\ngot %q, want %q; stderr %q", script, out, want, errs)
		}
		f.Restore(s)
	}
}

func TestArgs(t *testing.T) {
	for want, args := range map[string][]string{
		"a b":    {"printf", "%s %s", "a", "b"},
		"x $y *": {"printf", "%s", "x $y *"},
		"0-1-2":  {"sh", "-c", `printf %s "$0-$1-$2"`, "0", "1", "2"},
		"/w/d":   {"sh", "-c", "cd d; printf $PWD"},
		"A=1":    {"env", "-i", "A=1", "printf", "A=1"},
	} {
		out, errs, _ := run(t, Config{Args: args, Dir: "/w"})
		if out != want {
			t.Errorf("%q: %q, want %q; stderr %q", args, out, want, errs)
		}
	}
	if _, errs, exit := run(t, Config{Args: []string{"nope"}}); exit != 127 || !strings.Contains(errs, "nope: not found") {
		t.Errorf("a command that does not exist: %d, %q", exit, errs)
	}
}

func TestInputIsSharedAndLeft(t *testing.T) {
	out, _, _ := run(t, Config{Script: `read a; head -c 3; echo; sh -c 'read b; echo "b=$b"'; cat`, Stdin: strings.NewReader("one\ntwothree\nfour\nfive\n")})
	if want := "two\nb=three\nfour\nfive\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestOutputThatFailsEndsTheScript(t *testing.T) {
	n := 0
	w := writerFunc(func(p []byte) (int, error) {
		if n++; n > 3 {
			return 0, errors.New("gone")
		}
		return len(p), nil
	})
	_, _, exit := run(t, Config{Script: `while :; do echo x; done`, Stdout: w})
	if exit != 141 {
		t.Errorf("exit status %d, want 141", exit)
	}
}
