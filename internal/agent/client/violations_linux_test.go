package client

import (
	"context"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// byHand is a client with an agent whose frames the test writes. The agent reads only when the test
// asks for a frame.
func byHand(t *testing.T, mode byte) (*Sandbox, *fakeAgent) {
	t.Helper()
	a, conn := newFakeAgent(t, []byte{mode | deaf})
	sb, err := New(t.Context(), conn, Options{Destroy: func(context.Context) error { a.close(); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sb, a
}

// frame reads the client's next frame.
func (a *fakeAgent) read(t *testing.T) wire.Frame {
	t.Helper()
	a.conn.SetReadDeadline(time.Now().Add(bound))
	f, err := readFrame(a.conn)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// begun starts a program whose outputs go to w, or are discarded if w is nil.
func begun(t *testing.T, sb *Sandbox, a *fakeAgent, w io.Writer) (p driver.Process, id uint32) {
	t.Helper()
	got := make(chan driver.Process)
	go func() {
		p, err := sb.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{Stdout: w})
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	f := a.read(t)
	closeFDs(f.FDs)
	a.reply(f.ID, wire.Reply{Data: (&wire.Started{PID: 7, Tag: 1}).Append(nil)})
	return <-got, f.ID
}

func (a *fakeAgent) reply(id uint32, r wire.Reply, fds ...int) {
	a.send(wire.Frame{Type: wire.TypeReply, ID: id, Payload: r.Append(nil), FDs: fds})
}

// lost waits until the sandbox has ended.
func lost(t *testing.T, sb *Sandbox) {
	t.Helper()
	select {
	case <-sb.Dead():
	case <-time.After(bound):
		t.Fatal("the sandbox has not ended")
	}
}

// Frames for an output without a reader start no goroutine each, and the client accepts no more of
// them than it has granted credit for, even if the agent does not read.
func TestUnreadOutput(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "one byte": 1, "much": 32 << 10} {
		t.Run(name, func(t *testing.T) {
			sb, a := byHand(t, overStream)
			_, id := begun(t, sb, a, nil)
			before := runtime.NumGoroutine()
			for range min(100_000, 2<<20/(size+1)) {
				if a.data(id, channelErr, size); a.deadEnd.Load() {
					break
				}
				if n := runtime.NumGoroutine() - before; n > 10 {
					t.Fatalf("there are %d goroutines more than before", n)
				}
			}
			if size == 0 {
				lost(t, sb)
			}
		})
	}
}

// While the client cannot write, the agent may send at most two windows: its first one, and the one
// whose credit the client is trying to send. If it sends more, its sandbox is lost.
func TestWindowOfUnreadOutput(t *testing.T) {
	sb, a := byHand(t, overStream)
	_, id := begun(t, sb, a, nil)
	sb.writing <- struct{}{} // as if a frame could not be written
	defer func() { <-sb.writing }()
	a.data(id, channelErr, wire.Window)
	a.data(id, channelErr, wire.Window)
	a.data(id, channelErr, 1)
	lost(t, sb)
}

// An answer with descriptors is a violation unless the request asks for descriptors.
func TestDescriptorsOfOtherAnswers(t *testing.T) {
	for name, ask := range map[string]func(*Sandbox) error{
		"stat":   func(b *Sandbox) error { _, err := b.FS().Stat(t.Context(), "/"); return err },
		"list":   func(b *Sandbox) error { _, err := b.FS().ReadDir(t.Context(), "/", "", 1); return err },
		"remove": func(b *Sandbox) error { return b.FS().Remove(t.Context(), "/x", false) },
		"start": func(b *Sandbox) error {
			_, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			sb, a := byHand(t, 0)
			got := make(chan error)
			go func() { got <- ask(sb) }()
			f := a.read(t)
			closeFDs(f.FDs)
			var pipe [2]int
			if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			a.reply(f.ID, wire.Reply{}, pipe[1])
			unix.Close(pipe[1])
			if err := <-got; err == nil {
				t.Error("the answer was taken")
			}
			lost(t, sb)
			r := os.NewFile(uintptr(pipe[0]), "pipe")
			defer r.Close()
			ended := make(chan error, 1)
			go func() { _, err := r.Read(make([]byte, 1)); ended <- err }()
			select {
			case err := <-ended:
				if err != io.EOF {
					t.Error(err)
				}
			case <-time.After(bound):
				t.Fatal("the client has kept the descriptor")
			}
		})
	}
}

// A socket that the agent makes blocking after passing it still obeys deadlines and Close.
func TestSocketThatWaits(t *testing.T) {
	sb, a := byHand(t, 0)
	got := make(chan net.Conn)
	go func() {
		c, err := sb.DialPort(t.Context(), 80)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	f := a.read(t)
	fd := a.open(kindTCP)
	defer unix.Close(fd)
	a.reply(f.ID, wire.Reply{}, fd)
	c := <-got
	if c == nil {
		return
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	_ = c.SetDeadline(time.Now().Add(time.Millisecond))
	go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
	go func() { _, err := c.Write(make([]byte, 64<<20)); ended <- err }()
	for range 2 {
		select {
		case err := <-ended:
			if n, ok := err.(net.Error); !ok || !n.Timeout() {
				t.Errorf("%v", err)
			}
		case <-time.After(bound):
			t.Fatal("a thread waits in the kernel")
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A descriptor of another kind than the requested one ends the sandbox.
func TestDescriptorsOfOtherKinds(t *testing.T) {
	ask := map[string]func(*Sandbox) error{
		"open": func(b *Sandbox) error { _, err := b.FS().Open(t.Context(), "/f"); return err },
		"create": func(b *Sandbox) error {
			_, err := b.FS().Create(t.Context(), "/f", sandbar.CreateOptions{})
			return err
		},
		"dial":             func(b *Sandbox) error { _, err := b.DialPort(t.Context(), 1); return err },
		"adopt attributes": func(b *Sandbox) error { _, _, err := b.AdoptAttrs(t.Context()); return err },
	}
	for name, kinds := range map[string][]byte{
		"open":             {kindTCP, kindPipe, kindNull, kindDirectory, kindUnix, kindProc, kindPath, kindEvent, kindSelf},
		"create":           {kindTCP, kindPipe, kindNull, kindDirectory, kindUnix, kindProc, kindPath, kindEvent, kindSelf, kindReadOnly},
		"dial":             {kindFile, kindListening, kindPipe, kindNull, kindDirectory, kindUnix, kindDatagram, kindPath, kindEvent, kindSelf},
		"adopt attributes": {kindFile, kindTCP, kindPipe, kindNull, kindDirectory, kindUnix, kindSelf},
	} {
		for _, kind := range kinds {
			sb, a := byHand(t, 0)
			got := make(chan error)
			go func() { got <- ask[name](sb) }()
			f := a.read(t)
			r, fds := a.honest(f)
			closeFDs(fds)
			fd := a.open(kind)
			a.reply(f.ID, r, fd)
			unix.Close(fd)
			if err := <-got; sandbar.CodeOf(err) != sandbar.Internal {
				t.Errorf("%s, kind %d: %v", name, kind, err)
			}
			lost(t, sb)
		}
	}
}

// Wait does not wait for output that continues after the program's end.
func TestOutputWithoutEnd(t *testing.T) {
	sb, a := byHand(t, overStream)
	var taken atomic.Int64
	p, id := begun(t, sb, a, writerFunc(func(b []byte) (int, error) {
		taken.Add(int64(len(b)))
		sb.mu.Lock()
		for _, c := range sb.channels { // the output has a reader
			sb.mu.Unlock()
			c.mu.Lock()
			for len(c.queue[channelOut]) == 0 && !c.discard[channelOut] {
				c.change.Wait() // output without a pause
			}
			c.mu.Unlock()
			return len(b), nil
		}
		sb.mu.Unlock()
		return len(b), nil
	}))
	credit := make(chan int, 1000)
	a.wg.Go(func() { // a background process that writes as fast as it can
		for {
			f, err := readFrame(a.conn)
			if err != nil {
				return
			}
			if _, rest, err := wire.DecodeChannel(f.Payload); f.Type == wire.TypeCredit && err == nil {
				n, _ := wire.DecodeCredit(rest)
				credit <- int(n)
			}
		}
	})
	a.conn.SetReadDeadline(time.Time{})
	a.data(id, channelOut, wire.Window)
	a.wg.Go(func() {
		for {
			select {
			case n := <-credit:
				a.data(id, channelOut, n)
			case <-a.ended:
				return
			}
		}
	})
	e := wire.Exited{}
	a.send(wire.Frame{Type: wire.TypeExited, ID: id, Payload: e.Append(nil)})
	done := make(chan struct{})
	go func() { p.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(bound):
		t.Fatalf("Wait has not returned; %d bytes of output", taken.Load())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// An impossible Exited from an agent never becomes an impossible result.
func TestResultsThatCannotBe(t *testing.T) {
	sb, a := byHand(t, 0)
	for _, n := range []uint64{math.MaxUint64, math.MaxInt64, math.MaxInt64/1000 + 1, 1 << 63} {
		p, id := begun(t, sb, a, nil)
		e := wire.Exited{CPU: n, MaxRSS: n}
		a.send(wire.Frame{Type: wire.TypeExited, ID: id, Payload: e.Append(nil)})
		r, err := p.Wait()
		if err != nil || r.CPUTime < 0 || r.CPUTime > time.Hour*maxCPUs || r.PeakMemory < 0 || r.PeakMemory > maxMemory {
			t.Errorf("%d: %v, %d bytes, %v", n, r.CPUTime, r.PeakMemory, err)
		}
	}
	_, id := begun(t, sb, a, nil)
	e := wire.Exited{Signal: 65}
	a.send(wire.Frame{Type: wire.TypeExited, ID: id, Payload: e.Append(nil)})
	lost(t, sb)
}

// The duration of a program covers its start: the agent's reply may arrive after the program's end.
func TestDurationCoversTheStart(t *testing.T) {
	const delay = 50 * time.Millisecond
	sb, a := byHand(t, 0)
	got := make(chan sandbar.Result)
	go func() {
		defer close(got)
		p, err := sb.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
		if err != nil {
			t.Error(err)
			return
		}
		r, err := p.Wait()
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f := a.read(t)
	closeFDs(f.FDs)
	time.Sleep(delay)
	a.reply(f.ID, wire.Reply{Data: (&wire.Started{PID: 7, Tag: 1}).Append(nil)})
	a.send(wire.Frame{Type: wire.TypeExited, ID: f.ID, Payload: (&wire.Exited{}).Append(nil)})
	if r := <-got; r.Duration < delay {
		t.Errorf("a program that ended %v after the request has a duration of %v", delay, r.Duration)
	}
}

// A listing has no name that leads out of the directory, no duplicate, and no more entries than
// requested.
func TestListingsThatCannotBe(t *testing.T) {
	for name, infos := range map[string][]wire.FileInfo{
		"a path":        {{Name: "a/b"}},
		"above":         {{Name: ".."}},
		"itself":        {{Name: "."}},
		"nothing":       {{}},
		"NUL":           {{Name: "a\x00"}},
		"long":          {{Name: string(make([]byte, 256))}},
		"twice":         {{Name: "a"}, {Name: "a"}},
		"before":        {{Name: "A"}},
		"too many":      {{Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}},
		"negative size": {{Name: "b", Size: 1 << 63}},
	} {
		sb, a := byHand(t, overStream)
		got := make(chan error)
		go func() { _, err := sb.FS().ReadDir(t.Context(), "/", "Z", 3); got <- err }()
		a.reply(a.read(t).ID, wire.Reply{Data: wire.AppendListing(nil, true, infos)})
		if err := <-got; sandbar.CodeOf(err) != sandbar.Internal {
			t.Errorf("%s: %v", name, err)
		}
		lost(t, sb)
	}
}

// An agent that never answers can hold only a bounded number of requests.
func TestRequestsWithoutAnswer(t *testing.T) {
	sb, a := byHand(t, overStream)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range maxPending {
		wg.Go(func() { _, _ = sb.FS().Stat(ctx, "/") })
	}
	for range maxPending { // the client forgets a request that it has not sent
		a.read(t)
	}
	a.wg.Go(func() { _, _ = io.Copy(io.Discard, a.conn) })
	cancel()
	wg.Wait()
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := sb.FS().Stat(short, "/"); sandbar.CodeOf(err) != sandbar.Timeout {
		t.Errorf("one more: %v", err)
	}
	if n := sb.waits(); n != maxPending {
		t.Errorf("%d requests wait for an answer", n)
	}
}

// waits returns the number of requests without an answer.
func (s *Sandbox) waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// The reason of a death is told to all callers before the death is, and not after Destroy.
func TestExplain(t *testing.T) {
	for _, destroyed := range []bool{false, true} {
		a, conn := newFakeAgent(t, []byte{deaf})
		asked := 0
		sb, err := New(t.Context(), conn, Options{Destroy: func(context.Context) error { a.close(); return nil }, Explain: func() Death {
			asked++
			return Death{Err: sandbar.Errorf(sandbar.Gone, "its pod ran out of memory"), OutOfMemory: true}
		}})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := begun(t, sb, a, nil)
		want, cause := sandbar.Lost, "the sandbox has ended"
		if !destroyed {
			a.close()
			<-sb.Dead()
			want, cause = sandbar.OutOfMemory, "the sandbox has ended: its pod ran out of memory"
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(); err != nil || r.Outcome != want {
			t.Errorf("the program: %+v, %v", r, err)
		}
		_, err = sb.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
		if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Gone || e.Message != cause {
			t.Errorf("another program: %v, want %q", err, cause)
		}
		if (sb.Death() == nil) != destroyed || (asked == 0) != destroyed {
			t.Errorf("destroyed %v: %v, asked %d times", destroyed, sb.Death(), asked)
		}
	}
}
