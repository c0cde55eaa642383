package client

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// fakeAgent is an agent that sends what its script says.
type fakeAgent struct {
	t        *testing.T
	mode     byte
	script   []byte
	conn     *net.UnixConn
	requests chan wire.Frame
	old      []wire.Frame // requests to be answered later
	sent     int64        // bytes
	deadEnd  atomic.Bool  // the connection is closed for writing

	once  sync.Once
	ended chan struct{} // closed together with the connection
	wg    sync.WaitGroup

	mu   sync.Mutex
	kept []io.Closer // the other ends of the passed descriptors
}

// newFakeAgent returns an agent that has sent Hello, and the client's end.
func newFakeAgent(t *testing.T, script []byte) (*fakeAgent, net.Conn) {
	t.Helper()
	a := &fakeAgent{t: t, requests: make(chan wire.Frame, 256), ended: make(chan struct{})}
	if len(script) > 0 {
		a.mode, a.script = script[0], script[1:]
	}
	ours, theirs := socketPair(t)
	a.conn = theirs
	hello := wire.Hello{Generation: wire.Generation}
	a.send(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)})
	if a.mode&deaf == 0 {
		a.wg.Go(a.listen)
	}
	if a.mode&overStream != 0 {
		return a, &watchedConn{Conn: ours}
	}
	return a, ours
}

func socketPair(t testing.TB) (ours, theirs *net.UnixConn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

func (a *fakeAgent) close() {
	a.once.Do(func() {
		close(a.ended)
		a.conn.Close()
	})
	a.wg.Wait()
	for len(a.requests) > 0 {
		closeFDs((<-a.requests).FDs)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.kept {
		c.Close()
	}
	a.kept = nil
}

func (a *fakeAgent) keep(c io.Closer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = append(a.kept, c)
}

// listen reads the client's frames.
func (a *fakeAgent) listen() {
	for {
		f, err := readFrame(a.conn)
		if err != nil {
			return
		}
		switch f.Type {
		case wire.TypeData:
			if a.mode&stingy == 0 && len(f.Payload) > 1 {
				// In a goroutine: the agent must read even while the client does not.
				n := uint32(len(f.Payload) - 1)
				a.write(wire.Frame{Type: wire.TypeCredit, ID: f.ID, Payload: wire.AppendCredit(nil, channelIn, n)})
			}
		case wire.TypeSetup, wire.TypeStart, wire.TypeFS, wire.TypeDial, wire.TypeKill, wire.TypeAdoptAttrs, wire.TypeAdopt:
			select {
			case a.requests <- f:
				continue
			case <-a.ended:
			}
		}
		closeFDs(f.FDs)
	}
}

// next takes an argument from the script.
func (a *fakeAgent) next() byte {
	if len(a.script) == 0 {
		return 0
	}
	b := a.script[0]
	a.script = a.script[1:]
	return b
}

// quiet bounds the wait for a request.
const quiet = 2 * time.Millisecond

// request waits for the next request.
func (a *fakeAgent) request() (wire.Frame, bool) {
	select {
	case f := <-a.requests:
		return f, true
	default:
	}
	if a.mode&deaf != 0 {
		return wire.Frame{}, false
	}
	t := time.NewTimer(quiet)
	defer t.Stop()
	select {
	case f := <-a.requests:
		return f, true
	case <-t.C:
		return wire.Frame{}, false
	}
}

// play plays the script to its end.
func (a *fakeAgent) play() {
	defer a.drop()
	for len(a.script) > 0 && !a.deadEnd.Load() {
		op := instruction(a.next()) % instructions
		if op > doLater {
			a.say(op)
			continue
		}
		if f, ok := a.request(); ok {
			a.answer(op, f)
		} else {
			return // the callers have ended
		}
	}
	for a.mode&thenHonest != 0 && !a.deadEnd.Load() {
		f, ok := a.request()
		if !ok {
			break
		}
		a.answer(doAnswer, f)
	}
}

// drop discards the unanswered requests.
func (a *fakeAgent) drop() {
	for _, f := range a.old {
		closeFDs(f.FDs)
	}
	a.wg.Go(func() {
		for {
			select {
			case f := <-a.requests:
				closeFDs(f.FDs)
			case <-a.ended:
				return
			}
		}
	})
}

// answer answers a request and closes the request's descriptors.
func (a *fakeAgent) answer(op instruction, f wire.Frame) {
	if op == doLater {
		a.old = append(a.old, f)
		return
	}
	defer closeFDs(f.FDs)
	r, fds := a.honest(f)
	out := wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: r.Append(nil), FDs: fds}
	switch op {
	case doOther:
		out.ID += uint32(a.next()) + 1
	case doFail:
		r = wire.Reply{Failure: wire.Failure(a.next()), Errno: uint32(a.next()), Text: string(make([]byte, 64*int(a.next())))}
		out.Payload = r.Append(nil)
	case doAttach:
		closeFDs(out.FDs)
		out.FDs = nil
		for range a.next() % 4 {
			out.FDs = append(out.FDs, a.open(a.next()))
		}
	case doFlip:
		at, to := a.next(), a.next()
		out.Payload[int(at)%len(out.Payload)] = to
	case doCut:
		out.Payload = out.Payload[:max(0, len(out.Payload)-1-int(a.next()))]
	case doGrow:
		out.Payload = append(out.Payload, make([]byte, a.next())...)
	}
	a.send(out)
	closeFDs(out.FDs)
	if op == doTwice {
		a.send(wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: out.Payload})
	}
	if op == doAnswer && r.Failure == wire.OK {
		a.follow(f)
	}
}

// honest returns the correct answer to a request.
func (a *fakeAgent) honest(f wire.Frame) (r wire.Reply, fds []int) {
	passes := a.mode&overStream == 0
	info := wire.FileInfo{Name: "file", Size: 100, Mode: 0o100644}
	switch f.Type {
	case wire.TypeStart:
		r.Data = (&wire.Started{PID: 7, Tag: uint64(f.ID)}).Append(nil)
	case wire.TypeAdopt:
		var m wire.Adopt
		_ = m.Decode(f.Payload) // the client's
		r.Data = (&wire.Started{PID: m.PID, Tag: m.Tag}).Append(nil)
	case wire.TypeAdoptAttrs:
		r.Data = (&wire.AdoptAttrs{Tag: 5, Resource: 10, Rlimits: []wire.Rlimit{{Resource: 1, Soft: 2, Hard: 3}}}).Append(nil)
	case wire.TypeSetup:
		r.Data = wire.AppendHandle(nil, 9)
	case wire.TypeDial:
		if passes {
			fds = []int{a.open(kindTCP)}
		}
	case wire.TypeFS:
		var q wire.FSRequest
		_ = q.Decode(f.Payload) // the client's
		switch q.Op {
		case wire.FSOpen:
			r.Data = wire.AppendFileInfos(wire.AppendHandle(nil, 1), []wire.FileInfo{info})
			if passes {
				fds = []int{a.open(kindFile)}
			}
		case wire.FSCreate:
			r.Data = wire.AppendHandle(nil, 2)
			if passes {
				fds = []int{a.open(kindFile)}
			}
		case wire.FSBlock:
			r.Data = wire.AppendHandle(nil, 3)
		case wire.FSStat, wire.FSUsage:
			r.Data = wire.AppendFileInfos(nil, []wire.FileInfo{info})
		case wire.FSReadDir:
			r.Data = wire.AppendListing(nil, q.To != "", []wire.FileInfo{{Name: q.To + "a"}, {Name: q.To + "b"}})
		case wire.FSRead:
			if q.Offset < 100 {
				r.Data = make([]byte, min(q.Size, 40))
			}
		case wire.FSReadFiles:
			r.Data = wire.AppendFileContent(nil, wire.FileContent{Bytes: []byte("x"), Complete: true})
		}
	}
	return r, fds
}

// follow sends the frames after an answer.
func (a *fakeAgent) follow(f wire.Frame) {
	overChannels := a.mode&overStream != 0
	switch f.Type {
	case wire.TypeDial:
		if overChannels {
			a.data(f.ID, channelOut, 100)
			a.closeChannel(f.ID, channelOut)
		}
	case wire.TypeStart, wire.TypeAdopt:
		if overChannels && f.Type == wire.TypeStart {
			for ch := byte(channelOut); ch <= channelErr; ch++ {
				a.data(f.ID, ch, 100)
				a.closeChannel(f.ID, ch)
			}
		}
		e := wire.Exited{Code: 1, CPU: 5, MaxRSS: 7}
		a.send(wire.Frame{Type: wire.TypeExited, ID: f.ID, Payload: e.Append(nil)})
	}
}

func (a *fakeAgent) data(id uint32, ch byte, n int) {
	a.send(wire.Frame{Type: wire.TypeData, ID: id, Payload: append([]byte{ch}, make([]byte, n)...)})
}

func (a *fakeAgent) closeChannel(id uint32, ch byte) {
	a.send(wire.Frame{Type: wire.TypeClose, ID: id, Payload: []byte{ch}})
}

// sizes are the sizes of pieces of output.
var sizes = [...]int{0, 1, 100, 32 << 10, wire.Window, wire.Window + 1, wire.MaxPayload - 1}

// say sends a frame without a request.
func (a *fakeAgent) say(op instruction) {
	switch op {
	case doOld:
		if len(a.old) > 0 {
			f := a.old[0]
			a.old = a.old[1:]
			a.answer(doAnswer, f)
		}
	case doRaw:
		kind, id, size, content := a.next(), a.next(), a.next(), a.next()
		a.send(wire.Frame{Type: wire.Type(kind % 20), ID: uint32(id), Payload: bytes.Repeat([]byte{content}, int(size))})
	case doOversized:
		a.raw(wire.AppendHeader(nil, wire.Header{Length: wire.MaxPayload + 1 + uint32(a.next())<<24, Type: wire.TypeReply, ID: 1}), nil)
	case doExited:
		id := uint32(a.next())
		e := wire.Exited{Code: a.next(), Signal: a.next(), OutOfMemory: a.next()&1 != 0, CPU: math.MaxUint64 >> (a.next() % 64)}
		e.MaxRSS = e.CPU
		a.send(wire.Frame{Type: wire.TypeExited, ID: id, Payload: e.Append(nil)})
	case doData:
		id, ch, size, times := uint32(a.next()), a.next()%5, sizes[int(a.next())%len(sizes)], int(a.next())
		for range min(times, 2<<20/(size+1)) {
			a.data(id, ch, size)
		}
	case doCredit:
		id, ch := uint32(a.next()), a.next()%5
		a.send(wire.Frame{Type: wire.TypeCredit, ID: id, Payload: wire.AppendCredit(nil, ch, uint32(a.next())<<(a.next()%24))})
	case doClose:
		id := uint32(a.next())
		a.closeChannel(id, a.next()%5)
	case doHalf:
		a.raw(wire.AppendHeader(nil, wire.Header{Length: wire.MaxPayload, Type: wire.TypeReply, ID: 1})[:a.next()%(wire.HeaderSize+1)], nil)
	case doHello:
		hello := wire.Hello{Generation: wire.Generation}
		a.send(wire.Frame{Type: wire.TypeHello, Payload: hello.Append(nil)})
	case doListing:
		a.listing()
	case doShut:
		_ = a.conn.CloseWrite()
	case doMiscount:
		said, kind := a.next()%4, a.next()
		fd := a.open(kind)
		a.raw(wire.AppendHeader(nil, wire.Header{Type: wire.TypeReply, FDs: said, ID: 1}), []int{fd, fd, fd, fd}[:1+kind%4])
		unix.Close(fd)
	case doAmid:
		id, fd := a.next(), a.open(a.next())
		b := wire.AppendHeader(nil, wire.Header{Length: 10, Type: wire.TypeReply, ID: uint32(id)})
		a.raw(b[:5], nil)
		a.raw(append(b[5:], make([]byte, 5)...), []int{fd})
		a.raw(make([]byte, 5), []int{fd, fd, fd})
		unix.Close(fd)
	case doFlood:
		kind, times := []wire.Type{wire.TypeData, wire.TypeCredit, wire.TypeClose}[a.next()%3], int(a.next())
		for i := range times {
			a.send(wire.Frame{Type: kind, ID: uint32(i), Payload: []byte{1}})
		}
	}
}

// listing answers the next request with a directory of impossible entries.
func (a *fakeAgent) listing() {
	f, ok := a.request()
	if !ok {
		return
	}
	defer closeFDs(f.FDs)
	n, kind := int(a.next())*50, a.next()
	if kind%6 == 4 {
		n /= 25 // the frame is full
	}
	infos := make([]wire.FileInfo, n)
	for i := range infos {
		infos[i] = wire.FileInfo{Name: "file " + strconv.Itoa(i)}
		switch kind % 6 {
		case 1:
			infos[i].Name = "../" + infos[i].Name
		case 2:
			infos[i].Name = ".."
		case 3:
			infos[i].Size = math.MaxUint64
		case 4:
			infos[i].Target = strings.Repeat("t", 1000)
		case 5:
			infos[i].Name = "same"
		}
	}
	r := wire.Reply{Data: wire.AppendListing(nil, kind&64 != 0, infos)}
	if len(r.Data) < wire.MaxPayload-100 {
		a.send(wire.Frame{Type: wire.TypeReply, ID: f.ID, Payload: r.Append(nil)})
	}
}

// send writes one frame. The client must read at all times.
func (a *fakeAgent) send(f wire.Frame) {
	if a.mode&overStream != 0 {
		f.FDs = nil
	}
	a.write(f)
}

func (a *fakeAgent) write(f wire.Frame) {
	b := wire.AppendHeader(nil, wire.Header{Length: uint32(len(f.Payload)), Type: f.Type, FDs: uint8(len(f.FDs)), ID: f.ID})
	a.raw(append(b, f.Payload...), f.FDs)
}

func (a *fakeAgent) raw(b []byte, fds []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent += int64(len(b)) // at least as large as the frame, in this process's memory too
	if a.deadEnd.Load() || len(b) == 0 {
		return
	}
	a.conn.SetWriteDeadline(time.Now().Add(bound))
	err := writeWithFDs(a.conn, b, fds)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		a.t.Error("the client does not read")
	}
	a.deadEnd.Store(err != nil)
}

// The kinds of descriptors.
const (
	kindFile = iota
	kindTCP
	kindListening
	kindPipe
	kindNull
	kindDirectory
	kindUnix
	kindDatagram
	kindProc
	kindPath
	kindEvent
	kindSelf // the connection itself
	kindReadOnly
	fdKinds
)

// open opens a descriptor of a kind.
func (a *fakeAgent) open(kind byte) int {
	fd, err := -1, error(nil)
	switch kind % fdKinds {
	case kindFile:
		fd, err = unix.MemfdCreate("file", unix.MFD_CLOEXEC)
		if err == nil {
			err = unix.Ftruncate(fd, 1000)
		}
	case kindTCP:
		fd, err = a.tcp(kind)
	case kindListening:
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Listen(fd, 1)
		}
	case kindPipe:
		var p [2]int
		err = unix.Pipe2(p[:], unix.O_CLOEXEC)
		fd = p[0]
		a.keep(os.NewFile(uintptr(p[1]), "pipe"))
	case kindNull:
		fd, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	case kindDirectory:
		fd, err = unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	case kindUnix, kindDatagram:
		how := unix.SOCK_STREAM
		if kind%fdKinds == kindDatagram {
			how = unix.SOCK_DGRAM
		}
		var p [2]int
		p, err = unix.Socketpair(unix.AF_UNIX, how|unix.SOCK_CLOEXEC, 0)
		fd = p[0]
		a.keep(os.NewFile(uintptr(p[1]), "socket"))
	case kindProc:
		fd, err = unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	case kindPath:
		fd, err = unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	case kindEvent:
		fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	case kindSelf:
		// Not File: its Fd takes O_NONBLOCK from the socket, and listen could wait past Close.
		var raw syscall.RawConn
		if raw, err = a.conn.SyscallConn(); err == nil {
			var dupErr error
			err = raw.Control(func(own uintptr) { fd, dupErr = unix.Dup(int(own)) })
			err = errors.Join(err, dupErr)
		}
	case kindReadOnly:
		fd, err = unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return fd
}

// tcp returns a blocking connection whose other end does not read.
func (a *fakeAgent) tcp(kind byte) (int, error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(l)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, 1)); err != nil {
		return -1, err
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, at); err != nil {
		return fd, err
	}
	other, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
	if err != nil {
		return fd, err
	}
	// No TIME_WAIT: each of thousands would keep a port.
	_ = unix.SetsockoptLinger(other, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if kind%(2*fdKinds) != kindTCP { // the file status flags are shared with the client's descriptor
		shared, err := unix.Dup(fd)
		if err != nil {
			return fd, err
		}
		var mu sync.Mutex
		block := time.AfterFunc(500*time.Microsecond, func() {
			mu.Lock()
			defer mu.Unlock()
			_ = unix.SetNonblock(shared, false)
			_ = unix.SetsockoptLinger(shared, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1000})
			unix.Close(shared)
		})
		a.keep(closer(func() {
			if block.Stop() {
				unix.Close(shared)
			}
			mu.Lock() // otherwise the client is closing it
			defer mu.Unlock()
		}))
	}
	a.keep(closer(func() { unix.Close(other) }))
	return fd, nil
}

type closer func()

func (f closer) Close() error { f(); return nil }
