package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// A script, a string of bytes, drives a hostile agent. The first byte selects how the agent is
// connected and how it ends; each other byte is an instruction or its argument. The client always
// does the same: several callers use every feature of a sandbox.

// The bits of a script's first byte.
const (
	overStream   = 1 << iota // the connection carries no descriptors
	deaf                     // the agent reads nothing
	stingy                   // it grants no credit for input
	thenHonest               // after the script it answers correctly
	failingSinks             // outputs of programs fail after some bytes
	early                    // the sandbox is destroyed during the script
)

// FuzzHostileAgent: whatever an agent sends, every call returns when its context or the sandbox
// ends, no goroutine and no descriptor remains, and the client's memory is proportional to the
// bytes that the agent has sent.
func FuzzHostileAgent(f *testing.F) {
	for _, s := range scripts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 256 {
			script = script[:256] // long scripts take time and cover nothing new
		}
		play(t, script)
	})
}

// TestHostileAgent runs random scripts from a fixed seed.
func TestHostileAgent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		script := make([]byte, 1+r.IntN(100))
		for k := range script {
			script[k] = byte(r.Uint32())
		}
		// Half of the scripts begin with correct answers, so that programs run.
		if i%2 == 0 {
			script = append([]byte{script[0], byte(doAnswer), byte(doAnswer), byte(doAnswer), byte(doAnswer)}, script[1:]...)
		}
		if !play(t, script) {
			t.Fatalf("script %d: %q", i, script)
		}
	}
}

// The instructions. Those up to doLater answer a request.
type instruction byte

const (
	doAnswer     instruction = iota // the correct answer and the frames that follow it
	doReply                         // the correct answer only
	doTwice                         // the correct answer twice
	doOther                         // the correct answer under another id
	doFail                          // arguments: failure, errno, length of the text
	doAttach                        // with descriptors: their number, a kind each
	doFlip                          // with a byte changed: where, to what
	doCut                           // truncated: by how many bytes
	doGrow                          // with extra bytes at the end: how many
	doLater                         // answer later
	doOld                           // answers the oldest postponed request
	doRaw                           // a frame: type, id, length, content
	doOversized                     // a header with an invalid length
	doExited                        // id, code, signal, watchdog, whether the numbers are large
	doData                          // id, channel, size, number of repetitions
	doCredit                        // id, channel, amount
	doClose                         // id, channel
	doHalf                          // an incomplete header: number of bytes
	doHello                         // repeats the last frame
	doListing                       // answers the next request with a listing: entries, kind of names
	doShut                          // closes the connection for writing
	doMiscount                      // a header with a wrong number of descriptors: number, kind
	doAmid                          // descriptors in the middle of a frame
	doFlood                         // frames for unknown ids: type, number
	instructions                    // number of instructions
)

// scripts are the seeds of the fuzzer.
var scripts = func() (all []string) {
	with := func(mode byte, ops ...byte) { all = append(all, string(append([]byte{mode}, ops...))) }
	for _, mode := range []byte{0, overStream, thenHonest, overStream | thenHonest, overStream | stingy, overStream | deaf, overStream | thenHonest | failingSinks, early | overStream} {
		with(mode)
		with(mode, bytes.Repeat([]byte{byte(doAnswer)}, 30)...)
		for op := range instructions {
			with(mode, byte(doReply), byte(doAnswer), byte(op), 1, 2, 3, 4, byte(op), 0, 0, 0, 0, byte(op), 255, 255, 255, 255)
			with(mode, byte(doReply), byte(doReply), byte(doReply), byte(op), 2, 1, 3, 60, byte(op), 3, 2, 0, 200)
		}
		for kind := range byte(fdKinds) {
			with(mode, byte(doAttach), 1, kind, byte(doAttach), 1, kind, byte(doAttach), 1, kind, byte(doAttach), 1, kind, byte(doAttach), 1, kind,
				byte(doAttach), 1, kind, byte(doAttach), 1, kind, byte(doAttach), 1, kind)
			with(mode, byte(doMiscount), 0, kind, byte(doAmid), 1, kind)
		}
	}
	return all
}()

// bound is far more time than a script needs; it ends a hang.
const bound = 30 * time.Second

// play runs a script against a client and checks the invariants.
func play(t *testing.T, script []byte) bool {
	t.Helper()
	before := take()
	a, conn := newFakeAgent(t, script)
	watched, _ := conn.(*watchedConn)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sb, err := New(ctx, conn, Options{Destroy: func(context.Context) error { a.close(); return nil }, Blocks: true})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		use(ctx, sb, a.mode)
	}()
	a.play()
	if n := runtime.NumGoroutine() - before.goroutines; n > mostGoroutines {
		t.Errorf("there are %d goroutines more than before", n)
	}
	if a.mode&early == 0 {
		cancel()
	}
	if err := sb.Destroy(context.Background()); err != nil {
		t.Errorf("Destroy: %v", err)
	}
	if watched != nil {
		watched.over.Store(true)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(bound):
		buf := make([]byte, 1<<20)
		t.Fatalf("calls have not returned %v after the sandbox's end:\n%s", bound, buf[:runtime.Stack(buf, true)])
	}
	if _, err := sb.FS().Stat(context.Background(), "/"); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("after the end: %v", err)
	}
	if watched != nil && watched.late.Load() {
		t.Error("the client wrote to a connection that it had closed")
	}
	before.compare(t, a.sent)
	return !t.Failed()
}

// mostGoroutines bounds the goroutines of the callers and the client together.
const mostGoroutines = 150

// state counts the resources that a client must release.
type state struct {
	goroutines, files int
	allocated         uint64
}

func take() state {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return state{runtime.NumGoroutine(), openFiles(), sample[0].Value.Uint64()}
}

func openFiles() int {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return len(names)
}

// compare waits until all resources that were acquired since s are released.
func (s state) compare(t *testing.T, sent int64) {
	t.Helper()
	var now state
	for end := time.Now().Add(bound); ; time.Sleep(100 * time.Microsecond) {
		now = take()
		if now.goroutines <= s.goroutines && now.files <= s.files {
			break
		}
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines and %d descriptors; before there were %d and %d\n%s", now.goroutines, now.files, s.goroutines, s.files, buf[:runtime.Stack(buf, true)])
		}
	}
	// The callers use memory too, and a frame is copied a few times.
	if used := int64(now.allocated - s.allocated); used > 24<<20+16*sent {
		t.Errorf("%d bytes were allocated where the agent sent %d", used, sent)
	}
}

// watchedConn is a connection without descriptors. It reports writers that remain after Close.
type watchedConn struct {
	net.Conn
	over, late atomic.Bool
}

func (w *watchedConn) Write(b []byte) (int, error) {
	if w.over.Load() {
		w.late.Store(true)
	}
	return w.Conn.Write(b)
}

// use calls every feature of a sandbox, from many goroutines, until ctx ends.
func use(ctx context.Context, sb *Sandbox, mode byte) {
	var wg sync.WaitGroup
	for _, f := range []func(context.Context, *Sandbox, byte){
		useProgram, useSilentProgram, useGivenUp, useFiles, useWriter, useTree, useBatch, useDial, useHeld, useAdopted,
	} {
		wg.Go(func() { f(ctx, sb, mode) })
	}
	wg.Wait()
}

// sink accepts some bytes and then fails, or accepts all.
type sink struct{ left int }

func (s *sink) Write(b []byte) (int, error) {
	if s.left -= len(b); s.left < 0 {
		return 0, errors.New("the sink is full")
	}
	return len(b), nil
}

func newSink(mode byte) io.Writer {
	if mode&failingSinks != 0 {
		return &sink{1000}
	}
	return &sink{1 << 40}
}

// finish ends a program and waits for it.
func finish(ctx context.Context, p driver.Process) {
	_ = p.Signal(15)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, _ := p.Wait()
		if r.CPUTime < 0 || r.PeakMemory < 0 || r.Signal > 64 || r.StdoutBytes < 0 {
			panic("a result that cannot be: " + strconv.FormatInt(int64(r.CPUTime), 10) + " " + strconv.FormatInt(r.PeakMemory, 10))
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	_ = p.KillTree()
	<-done
}

func useProgram(ctx context.Context, sb *Sandbox, mode byte) {
	for range 2 {
		p, err := sb.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{
			Stdin: bytes.NewReader(make([]byte, wire.Window+1000)), Stdout: newSink(mode), Stderr: newSink(mode)})
		if err != nil {
			return
		}
		finish(ctx, p)
	}
}

func useSilentProgram(ctx context.Context, sb *Sandbox, mode byte) {
	if p, err := sb.Start(ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{Stderr: newSink(mode)}); err == nil {
		finish(ctx, p)
	}
}

func useGivenUp(ctx context.Context, sb *Sandbox, mode byte) {
	short, cancel := context.WithTimeout(ctx, 100*time.Microsecond)
	defer cancel()
	if p, err := sb.Start(short, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{Stdout: newSink(mode)}); err == nil {
		finish(ctx, p)
	}
	if f, err := sb.FS().Open(short, "/short"); err == nil {
		f.Close()
	}
	if c, err := sb.DialPort(short, 2); err == nil {
		c.Close()
	}
}

func useFiles(ctx context.Context, sb *Sandbox, mode byte) {
	f, err := sb.FS().Open(ctx, "/file")
	if err != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, f, 1<<20)
	_, _ = f.Seek(0, io.SeekEnd)
	_, _ = f.Read(make([]byte, 10))
	if f.Info().Size < 0 {
		panic("a file of a size that cannot be")
	}
	f.Close()
}

func useWriter(ctx context.Context, sb *Sandbox, mode byte) {
	for i := range 2 {
		w, err := sb.FS().Create(ctx, "/new", sandbar.CreateOptions{Append: i == 1})
		if err != nil {
			return
		}
		_, _ = w.Write(make([]byte, 300<<10))
		if i == 0 {
			_ = w.Commit()
		} else {
			w.Abort()
		}
	}
}

func useTree(ctx context.Context, sb *Sandbox, mode byte) {
	fs := sb.FS()
	list, err := fs.ReadDir(ctx, "/", "", 50)
	if len(list) > 50 || err != nil && list != nil {
		panic("a listing of more than was asked for")
	}
	for _, e := range list {
		if !isEntry(e.Name) {
			panic("a name that leads elsewhere")
		}
	}
	_, _ = fs.Stat(ctx, "/x")
	_ = fs.Mkdir(ctx, "/d", 0, true)
	_ = fs.Rename(ctx, "/a", "/b")
	_ = fs.Chmod(ctx, "/a", 0o600, true)
	_ = fs.Remove(ctx, "/a", true)
	if n, err := sb.Usage(ctx); err == nil && n < 0 {
		panic("less than no memory")
	}
}

func useBatch(ctx context.Context, sb *Sandbox, mode byte) {
	fs := files{sb}
	got, err := fs.ReadFiles(ctx, []string{"/a", "/b", "/c"}, 100)
	if err == nil && (len(got) == 0 || len(got) > 3) {
		panic("other files than were asked for")
	}
	_ = fs.Put(ctx, "/p", []byte("content"), sandbar.CreateOptions{})
	_ = fs.Chown(ctx, "/p", 1, 1, false)
}

func useDial(ctx context.Context, sb *Sandbox, mode byte) {
	c, err := sb.DialPort(ctx, 80)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_ = c.SetDeadline(time.Now().Add(time.Hour))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = c.Write(make([]byte, wire.Window+1000))
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	})
	_, _ = io.CopyN(io.Discard, c, 1<<20)
	c.Close()
	wg.Wait()
}

func useHeld(ctx context.Context, sb *Sandbox, mode byte) {
	p, err := sb.StartBlocked(ctx, sandbar.Cmd{Args: []string{"sh", "/held"}}, "/held", driver.Stdio{Stdout: newSink(mode)})
	if err != nil {
		return
	}
	h := p.(*blocked)
	if h.Release(ctx, "true") == nil {
		finish(ctx, h)
		return
	}
	stop := context.AfterFunc(ctx, func() { sb.conn.Close() }) // the result of Destroy
	defer stop()
	_ = h.Abandon(ctx)
}

func useAdopted(ctx context.Context, sb *Sandbox, mode byte) {
	attrs, ruleset, err := sb.AdoptAttrs(ctx)
	if ruleset >= 0 {
		unix.Close(ruleset)
	}
	if err != nil {
		return
	}
	a, err := sb.Adopt(ctx, wire.Adopt{PID: 9, Tag: attrs.Tag})
	if err != nil {
		return
	}
	p, err := a.Begin(driver.Stdio{Stdin: bytes.NewReader([]byte("in")), Stdout: newSink(mode)}, func([]int) error { return ctx.Err() })
	if err == nil {
		finish(ctx, p)
	}
}

// Destroy waits for the goroutines of the sandbox. One that started meanwhile could end the process
// ("WaitGroup misuse: Add called concurrently with Wait").
func TestNothingStartsAfterDestroy(t *testing.T) {
	a, conn := newFakeAgent(t, []byte{byte(overStream)})
	sb, err := New(t.Context(), conn, Options{Destroy: func(context.Context) error { a.close(); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	ran := false
	sb.background(func() { ran = true })
	sb.readers.Wait()
	if ran {
		t.Error("it ran")
	}
}
