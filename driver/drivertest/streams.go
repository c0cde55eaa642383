package drivertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// streamCases test that every byte is delivered once, in order and in bounded memory.
func streamCases() []testCase {
	return []testCase{
		{name: "stderr-first", run: func(c *C) {
			r := c.sh(c.box(), `head -c 200000 /dev/zero | tr '\0' e >&2; echo out`)
			c.exited(r, 0, "a program")
			if r.out != "out\n" || r.errOut != strings.Repeat("e", 200000) {
				c.Errorf("200,000 bytes on stderr before stdout: got %d, and %q", len(r.errOut), r.out)
			}
		}},
		{name: "both-at-once", run: func(c *C) {
			n := c.s.amount(16 << 20)
			r := c.sh(c.box(), fmt.Sprintf(`head -c %d /dev/zero & head -c %d /dev/zero >&2; wait`, n, n))
			if len(r.out) != n || len(r.errOut) != n {
				c.Errorf("got %d and %d bytes of %d each", len(r.out), len(r.errOut), n)
			}
		}},
		{name: "order", run: func(c *C) {
			n := c.s.amount(200000)
			r := c.sh(c.box(), fmt.Sprintf("seq 1 %d", n))
			var want strings.Builder
			for i := 1; i <= n; i++ {
				want.WriteString(strconv.Itoa(i))
				want.WriteByte('\n')
			}
			if r.out != want.String() {
				c.Errorf("numbered lines are not what was written: %d bytes of %d", len(r.out), want.Len())
			}
		}},
		{name: "every-byte", run: func(c *C) {
			var script, want strings.Builder
			for b := range 256 {
				fmt.Fprintf(&script, `\%03o`, b)
				want.WriteByte(byte(b))
			}
			r := c.sh(c.box(), "printf '"+script.String()+"'; printf '\\377\\376\\000\\355\\240\\200' >&2")
			if r.out != want.String() || r.errOut != "\xff\xfe\x00\xed\xa0\x80" {
				c.Errorf("bytes are changed: %v", r)
			}
		}},
		{name: "split-characters", run: func(c *C) {
			r := c.sh(c.box(), `for b in '\303' '\251' '\342' '\202' '\254' '\360' '\237' '\230' '\200'; do printf "$b"; sleep 0.02; done`)
			if r.out != "é€😀" {
				c.Errorf("characters written byte by byte: got %q", r.out)
			}
		}},
		{name: "one-line", run: func(c *C) {
			n := c.s.amount(32 << 20)
			r := c.sh(c.box(), fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, n))
			if len(r.out) != n || strings.Trim(r.out, "x") != "" {
				c.Errorf("a line of %d bytes without an end: got %d", n, len(r.out))
			}
		}},
		{name: "last-bytes", run: func(c *C) {
			b := c.box()
			for i := range c.s.few(200, 40) {
				r := c.sh(b, fmt.Sprintf("echo out %d; echo err %d >&2", i, i))
				if r.out != fmt.Sprintf("out %d\n", i) || r.errOut != fmt.Sprintf("err %d\n", i) {
					c.Fatalf("run %d of a short program: got %v", i, r)
				}
			}
		}},
		{name: "flood", run: flood},
		{name: "slow-reader", run: slowReader},
		{name: "failing-reader", run: failingReader},
		{name: "discarded", run: func(c *C) {
			p := c.start(c.box(), sandbar.Cmd{Args: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero; echo x >&2; exit 6", c.s.amount(8<<20))}}, driver.Stdio{})
			if res := c.wait(p); res.Outcome != sandbar.Exited || res.ExitCode != 6 {
				c.Errorf("a program whose output is discarded: %+v", res)
			}
		}},
		{name: "stdin-none", run: func(c *C) {
			r := c.exec(c.box(), sandbar.Cmd{Args: []string{"wc", "-c"}}, nil)
			if strings.TrimSpace(r.out) != "0" {
				c.Errorf("no input: wc counts %q", r.out)
			}
		}},
		{name: "stdin-empty", run: func(c *C) {
			r := c.exec(c.box(), sandbar.Cmd{Args: []string{"wc", "-c"}}, strings.NewReader(""))
			if strings.TrimSpace(r.out) != "0" {
				c.Errorf("an empty input: wc counts %q", r.out)
			}
		}},
		{name: "stdin-echo", run: stdinEcho},
		{name: "stdin-blocked", run: func(c *C) {
			stdin, end := io.Pipe()
			c.Cleanup(func() { end.Close() })
			c.exited(c.exec(c.box(), sandbar.Cmd{Args: []string{"sh", "-c", "exit 7"}}, stdin), 7, "a program whose input never arrives")
		}},
		{name: "stdin-unread", run: func(c *C) {
			b := c.box()
			big := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), 64<<20) }
			c.exited(c.exec(b, sandbar.Cmd{Args: []string{"sh", "-c", "exit 8"}}, big()), 8, "a program that does not read")
			r := c.exec(b, sandbar.Cmd{Args: []string{"head", "-c", "10"}}, strings.NewReader("0123456789abcdef"))
			if r.out != "0123456789" {
				c.Errorf("a program that reads a part: %v", r)
			}
			c.exited(c.exec(b, sandbar.Cmd{Args: []string{"sh", "-c", "exec <&-; sleep 0.1; exit 9"}}, big()), 9, "a program that closes its input")
		}},
		{name: "stdin-fails", run: func(c *C) {
			r := c.exec(c.box(), sandbar.Cmd{Args: []string{"cat"}}, io.MultiReader(strings.NewReader("before"), brokenReader{}))
			c.exited(r, 0, "cat")
			if r.out != "before" {
				c.Errorf("an input that fails half way: got %v", r)
			}
		}},
		{name: "closed-stdout", run: func(c *C) {
			r := c.sh(c.box(), "echo first; exec >&-; sleep 0.2; echo still >&2; exit 5")
			c.exited(r, 5, "a program that closes stdout and continues")
			if r.out != "first\n" || r.errOut != "still\n" {
				c.Errorf("got %v", r)
			}
		}},
		{name: "held-pipe", run: func(c *C) {
			r := c.sh(c.box(), "sleep 100 & echo hi; exit 3") // longer than any limit of Wait
			c.exited(r, 3, "a program whose descendant holds the pipe")
			if r.out != "hi\n" {
				c.Errorf("got %v", r)
			}
		}},
		{name: "held-pipe-flood", run: heldPipeFlood},
		{name: "chatter", run: func(c *C) { chatter(c) }},
	}
}

// counter counts bytes and discards them.
type counter struct{ n atomic.Int64 }

func (w *counter) Write(b []byte) (int, error) {
	w.n.Add(int64(len(b)))
	return len(b), nil
}

// flood writes more output than the memory may grow.
func flood(c *C) {
	size, allowed := int64(c.s.amount(c.s.few(256, 96)<<20)), int64(c.s.amount(64<<20))
	b := c.box()
	debug.FreeOSMemory()
	before := residentBytes()
	var peak atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				peak.Store(max(peak.Load(), residentBytes()))
			}
		}
	})
	var out counter
	p := c.start(b, sandbar.Cmd{Args: []string{"head", "-c", strconv.FormatInt(size, 10), "/dev/zero"}}, driver.Stdio{Stdout: &out})
	res := c.wait(p)
	close(stop)
	wg.Wait()
	c.counted(res, out.n.Load(), 0)
	if out.n.Load() != size {
		c.Errorf("of %d bytes %d were delivered", size, out.n.Load())
	}
	if grown := peak.Load() - before; grown > allowed {
		c.Errorf("a flood of %d MiB made this process grow by %d MiB; at most %d are allowed", size>>20, grown>>20, allowed>>20)
	}
}

// gate is a writer that blocks until it is opened.
type gate struct {
	open chan struct{}
	counter
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.counter.Write(b)
}

// slowReader tests that a writer that blocks also blocks the program. The program prints its
// progress on stderr.
func slowReader(c *C) {
	const size = 64 << 10
	blocks := int64(c.s.amount(32<<20) / size)
	b := c.box()
	out := &gate{open: make(chan struct{})}
	var progress counter
	p := c.start(b, sandbar.Cmd{Args: []string{"sh", "-c",
		fmt.Sprintf(`i=0; while [ $i -lt %d ]; do head -c %d /dev/zero; printf . >&2; i=$((i+1)); done`, blocks, size)}},
		driver.Stdio{Stdout: out, Stderr: &progress})
	opened := false
	open := func() {
		if !opened {
			opened = true
			close(out.open)
		}
	}
	c.Cleanup(open)
	// Wait until there is no progress, then read it.
	for last, still := int64(-1), 0; still < 100; time.Sleep(10 * time.Millisecond) {
		if now := progress.n.Load(); now != last || now == 0 {
			last, still = now, 0
		} else {
			still++
		}
	}
	if at := progress.n.Load(); at*size > int64(c.s.amount(8<<20)) {
		c.Errorf("the output is not read, and the program has written %d bytes", at*size)
	}
	open()
	res := c.wait(p)
	c.counted(res, out.n.Load(), progress.n.Load())
	if out.n.Load() != blocks*size || progress.n.Load() != blocks {
		c.Errorf("then it wrote %d bytes in %d blocks; want %d in %d", out.n.Load(), progress.n.Load(), blocks*size, blocks)
	}
}

// failingReader tests that a writer that fails closes the output, and that the program gets an
// error.
func failingReader(c *C) {
	out := &failing{after: 100000}
	p := c.start(c.box(), sandbar.Cmd{Args: []string{"sh", "-c", "while echo some output; do :; done; exit 12"}}, driver.Stdio{Stdout: out})
	res := c.wait(p)
	sigpipe := res.Outcome == sandbar.Signaled && res.Signal == 13
	if !sigpipe && !(res.Outcome == sandbar.Exited && res.ExitCode != 0) {
		c.Errorf("the output is not read, and the program ended with %v, exit code %d, signal %d", res.Outcome, res.ExitCode, res.Signal)
	}
	if out.late.Load() {
		c.Errorf("the writer was called after it had failed")
	}
}

// failing is a writer that fails after a number of bytes.
type failing struct {
	after int
	over  bool
	late  atomic.Bool
}

func (f *failing) Write(b []byte) (int, error) {
	if f.over {
		f.late.Store(true)
	}
	f.after -= len(b)
	if f.after < 0 {
		f.over = true
		return 0, errors.New("full")
	}
	return len(b), nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func stdinEcho(c *C) {
	size := c.s.amount(c.s.few(32, 4) << 20)
	in := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(in)
	want := sha256.Sum256(in)
	h := sha256.New()
	p := c.start(c.box(), sandbar.Cmd{Args: []string{"cat"}}, driver.Stdio{Stdin: bytes.NewReader(in), Stdout: h})
	c.wait(p)
	if !bytes.Equal(h.Sum(nil), want[:]) {
		c.Errorf("%d bytes through cat did not come back the same", size)
	}
}

// sealed is a writer that fails the case if it is called after seal.
type sealed struct {
	c      *C
	closed atomic.Bool
	counter
}

func (s *sealed) Write(b []byte) (int, error) {
	if s.closed.Load() {
		s.c.Errorf("output is delivered after Wait has returned")
	}
	return s.counter.Write(b)
}

// heldPipeFlood tests that Wait returns although a descendant writes without end, and that nothing
// is delivered after Wait.
func heldPipeFlood(c *C) {
	b := c.box()
	out := &sealed{c: c}
	p := c.start(b, sandbar.Cmd{Args: []string{"sh", "-c", "(while :; do echo noise || exit; done) & echo first; exit 4"}}, driver.Stdio{Stdout: out})
	res := c.wait(p)
	out.closed.Store(true)
	if res.Outcome != sandbar.Exited || res.ExitCode != 4 || out.n.Load() < 6 {
		c.Errorf("got %+v and %d bytes", res, out.n.Load())
	}
	c.counted(res, out.n.Load(), 0)
	time.Sleep(50 * time.Millisecond) // so that a late delivery is detected
}

// chatter tests a dialogue with an answer to every line.
func chatter(c *C) {
	stdin, say := io.Pipe()
	c.Cleanup(func() { say.Close() })
	var out buffer
	p := c.start(c.box(), sandbar.Cmd{Args: []string{"sh", "-c", `while read line; do echo "heard $line"; done; echo bye`}}, driver.Stdio{Stdin: stdin, Stdout: &out})
	for i := range 20 {
		if _, err := fmt.Fprintf(say, "line %d\n", i); err != nil {
			c.Fatalf("writing to the program: %v", err)
		}
		c.until(out.has(fmt.Sprintf("heard line %d\n", i)), "the answer to line %d", i)
	}
	say.Close()
	c.wait(p)
	if !strings.HasSuffix(out.String(), "bye\n") {
		c.Errorf("after the end of its input the program prints %q", out.String())
	}
}
