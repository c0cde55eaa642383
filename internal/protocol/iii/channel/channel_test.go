package channel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second

// rig is a hub behind a server.
type rig struct {
	*Hub
	t   testing.TB
	url string
}

func newRig(t testing.TB, o Options) *rig {
	h := NewHub(o)
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		s.Close()
		if n := h.Len(); n != 0 {
			t.Errorf("%d channels are left", n)
		}
	})
	return &rig{h, t, "ws" + strings.TrimPrefix(s.URL, "http")}
}

func (r *rig) create(buffer int) (reader, writer Ref) {
	r.t.Helper()
	reader, writer, err := r.Create(buffer)
	if err != nil {
		r.t.Fatal(err)
	}
	return reader, writer
}

func (r *rig) address(ref Ref, dir string) string {
	return r.url + Path + ref.ChannelID + "?key=" + ref.AccessKey + "&dir=" + dir
}

func (r *rig) dial(ref Ref, dir string) *websocket.Conn {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, r.address(ref, dir), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	r.t.Cleanup(func() { ws.CloseNow() })
	return ws
}

func send(t testing.TB, ws *websocket.Conn, kind websocket.MessageType, b []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := ws.Write(ctx, kind, b); err != nil {
		t.Errorf("send: %v", err)
	}
}

// rest reads a socket to its end and returns the binary frames, the text frames and the close
// status.
func rest(ws *websocket.Conn) (all []byte, side []string, status websocket.StatusCode) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		kind, b, err := ws.Read(ctx)
		if err != nil {
			return all, side, websocket.CloseStatus(err)
		}
		if kind == websocket.MessageText {
			side = append(side, string(b))
		} else {
			all = append(all, b...)
		}
	}
}

// drain reads a local end to its end.
func drain(t testing.TB, r Reader) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all []byte
	for {
		b, err := r.Next(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, b...)
	}
}

func (r *rig) eventually(ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("it did not come about")
		}
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// TestBytesArrive tests every path from a writer to a reader, with unusual sizes.
func TestBytesArrive(t *testing.T) {
	type way struct {
		name string
		// begin returns the reading end of a channel to which b is being written.
		begin func(r *rig, b []byte) Ref
		read  func(r *rig, ref Ref) ([]byte, error)
	}
	written := func(r *rig, b []byte) Ref {
		reader, writer := r.create(0)
		go func() {
			ws := r.dial(writer, "write")
			for p := b; len(p) > 0; p = p[min(len(p), 64<<10):] {
				send(r.t, ws, websocket.MessageBinary, p[:min(len(p), 64<<10)])
			}
			ws.Close(websocket.StatusNormalClosure, "stream_complete")
		}()
		return reader
	}
	offered := func(r *rig, b []byte) Ref {
		ref, err := r.Offer(context.Background(), io.NopCloser(bytes.NewReader(b)), int64(len(b)))
		if err != nil {
			r.t.Error(err)
		}
		return ref
	}
	socket := func(r *rig, ref Ref) ([]byte, error) {
		b, side, status := rest(r.dial(ref, "read"))
		if status != websocket.StatusNormalClosure || side != nil {
			return b, fmt.Errorf("closed with %d, %q", status, side)
		}
		return b, nil
	}
	direct := func(r *rig, ref Ref) ([]byte, error) {
		end, err := r.Reader(context.Background(), ref)
		if err != nil {
			return nil, err
		}
		defer end.Close()
		b, err := drain(r.t, end)
		if err == io.EOF {
			err = nil
		}
		return b, err
	}
	remote := func(r *rig, ref Ref) ([]byte, error) {
		m := NewRemote(r.url+"/", nil, Options{})
		defer m.Close()
		end, err := m.Reader(context.Background(), ref)
		if err != nil {
			return nil, err
		}
		defer end.Close()
		b, err := drain(r.t, end)
		if err == io.EOF {
			err = nil
		}
		return b, err
	}
	for _, w := range []way{
		{"socket to socket", written, socket}, {"socket to direct", written, direct}, {"socket to remote", written, remote},
		{"offer to socket", offered, socket}, {"offer to direct", offered, direct}, {"offer to remote", offered, remote},
	} {
		for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 20 << 20} {
			t.Run(fmt.Sprint(w.name, " ", n), func(t *testing.T) {
				r := newRig(t, Options{})
				b := pattern(n)
				got, err := w.read(r, w.begin(r, b))
				if err != nil || !bytes.Equal(got, b) {
					t.Errorf("received %d bytes, %v", len(got), err)
				}
				r.eventually(func() bool { return r.Len() == 0 })
			})
		}
	}
}

func TestOrderAndSideMessages(t *testing.T) {
	r := newRig(t, Options{})
	reader, writer := r.create(0)
	w := r.dial(writer, "write")
	send(t, w, websocket.MessageText, []byte("one"))
	send(t, w, websocket.MessageBinary, []byte("two"))
	send(t, w, websocket.MessageBinary, nil)
	send(t, w, websocket.MessageText, []byte("three"))
	go w.Close(websocket.StatusGoingAway, "whatever")
	ws := r.dial(reader, "read")
	var got []string
	for {
		kind, b, err := ws.Read(context.Background())
		if err != nil {
			if s := websocket.CloseStatus(err); s != websocket.StatusNormalClosure {
				t.Errorf("closed with %d", s)
			}
			break
		}
		got = append(got, kind.String()+" "+string(b))
	}
	if fmt.Sprint(got) != "[MessageText one MessageBinary two MessageBinary  MessageText three]" {
		t.Errorf("%q", got)
	}
}

// TestAbruptEnd tests that only a Close frame ends a stream regularly.
func TestAbruptEnd(t *testing.T) {
	for _, how := range []string{"direct", "remote", "socket"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, Options{})
			reader, writer := r.create(0)
			w := r.dial(writer, "write")
			send(t, w, websocket.MessageBinary, []byte("half"))
			switch how {
			case "socket":
				ws := r.dial(reader, "read")
				w.CloseNow()
				if b, _, status := rest(ws); string(b) != "half" || status != websocket.StatusInternalError {
					t.Errorf("%q, closed with %d", b, status)
				}
			default:
				var ends Ends = r.Hub
				if how == "remote" {
					m := NewRemote(r.url, nil, Options{})
					defer m.Close()
					ends = m
				}
				end, err := ends.Reader(context.Background(), reader)
				if err != nil {
					t.Fatal(err)
				}
				defer end.Close()
				w.CloseNow()
				if b, err := drain(t, end); string(b) != "half" || !errors.Is(err, ErrAborted) {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
}

// TestBackPressure tests that a full queue blocks the writer, and that nothing is lost.
func TestBackPressure(t *testing.T) {
	r := newRig(t, Options{})
	reader, writer := r.create(2)
	w := r.dial(writer, "write")
	const total = 64 << 20
	sent := make(chan struct{})
	var mu sync.Mutex
	written := 0
	go func() {
		defer close(sent)
		piece := make([]byte, 64<<10)
		for range total / len(piece) {
			send(t, w, websocket.MessageBinary, piece)
			mu.Lock()
			written += len(piece)
			mu.Unlock()
		}
		w.Close(websocket.StatusNormalClosure, "")
	}()
	so := func() int { mu.Lock(); defer mu.Unlock(); return written }
	last := -1
	r.eventually(func() bool { // the writer is blocked
		n := so()
		stopped := n == last
		last = n
		time.Sleep(20 * time.Millisecond)
		return stopped && n > 0
	})
	if n := so(); n >= total {
		t.Fatal("nothing held the writer back")
	}
	end, err := r.Reader(context.Background(), reader)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	got := 0
	for {
		b, err := end.Next(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += len(b)
	}
	if <-sent; got != total {
		t.Errorf("received %d bytes", got)
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	q := newQueue(1024)
	ctx, cancel := context.WithCancel(context.Background())
	big := make([]byte, 3<<20)
	if err := q.put(ctx, message{data: make([]byte, 2*maxQueued)}); err != nil { // a single frame may be larger
		t.Fatal(err)
	}
	if _, err := q.take(ctx); err != nil {
		t.Fatal(err)
	}
	if err := q.put(ctx, message{data: big}); err != nil {
		t.Fatal(err)
	}
	if done, _ := q.tryPut(message{data: big}); done {
		t.Error("a second one fits")
	}
	cancel()
	if err := q.put(ctx, message{data: big}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestReaderLeaves(t *testing.T) {
	r := newRig(t, Options{})
	for _, how := range []string{"socket", "direct"} {
		reader, writer := r.create(1)
		w := r.dial(writer, "write")
		w.CloseRead(context.Background()) // answers the server's close frame
		if how == "socket" {
			r.dial(reader, "read").Close(websocket.StatusNormalClosure, "")
		} else {
			end, err := r.Reader(context.Background(), reader)
			if err != nil {
				t.Fatal(err)
			}
			end.Close()
		}
		r.eventually(func() bool { // the writer gets the error
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			return w.Write(ctx, websocket.MessageBinary, []byte("x")) != nil
		})
		r.eventually(func() bool { return r.Len() == 0 })
	}
}

func TestWhoMayOpen(t *testing.T) {
	r := newRig(t, Options{})
	reader, writer := r.create(0)
	other, _ := r.create(0)
	for _, c := range []struct {
		address string
		status  int
	}{
		{r.address(Ref{AccessKey: reader.AccessKey, ChannelID: "unknown"}, "read"), 404},
		{r.address(Ref{AccessKey: other.AccessKey, ChannelID: reader.ChannelID}, "read"), 404},
		{r.address(Ref{AccessKey: reader.AccessKey + "x", ChannelID: reader.ChannelID}, "read"), 404},
		{r.address(Ref{AccessKey: reader.AccessKey, ChannelID: reader.ChannelID + "/x"}, "read"), 404},
		{r.address(reader, "sideways"), 400},
		{r.address(reader, ""), 400},
		{r.url + Path + reader.ChannelID + "?dir=read", 400},
		{r.url + Path, 404},
	} {
		_, resp, err := websocket.Dial(context.Background(), c.address, nil)
		if err == nil || resp == nil || resp.StatusCode != c.status {
			t.Errorf("%s: %v", c.address, resp)
		}
	}
	// Each end can be opened once. The direction of the request applies, not the ref's.
	r.dial(writer, "read")
	r.dial(reader, "write")
	for _, dir := range []string{"read", "write"} {
		if _, _, status := rest(r.dial(reader, dir)); status != websocket.StatusPolicyViolation {
			t.Errorf("a second %s was closed with %d", dir, status)
		}
	}
	offer, err := r.Offer(context.Background(), io.NopCloser(strings.NewReader("x")), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, status := rest(r.dial(offer, "write")); status != websocket.StatusPolicyViolation {
		t.Errorf("an offer was written to: %d", status)
	}
	if _, err := r.Reader(context.Background(), offer); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reader(context.Background(), offer); !errors.Is(err, ErrTaken) {
		t.Errorf("%v", err)
	}
	if _, err := r.Reader(context.Background(), Ref{ChannelID: "x"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}

// closer records whether a source was closed.
type closer struct {
	io.Reader
	mu     sync.Mutex
	closed bool
}

func (c *closer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *closer) is() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func TestUnopenedChannelsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(Options{TTL: time.Minute})
		src := &closer{Reader: strings.NewReader("x")}
		if _, err := h.Offer(t.Context(), src, 1); err != nil {
			t.Fatal(err)
		}
		reader, _, err := h.Create(0)
		if err != nil {
			t.Fatal(err)
		}
		end, err := h.Reader(t.Context(), reader)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if h.Len() != 2 || src.is() {
			t.Error("they are gone too early")
		}
		if _, err := end.Next(t.Context()); !errors.Is(err, ErrAborted) { // until then it waits
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if h.Len() != 0 || !src.is() {
			t.Errorf("%d channels are left, closed: %v", h.Len(), src.is())
		}
		end.Close()
		h.Close()
		if _, _, err := h.Create(0); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if _, err := h.Offer(t.Context(), src, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

func TestLimits(t *testing.T) {
	r := newRig(t, Options{Max: 3, MaxHeld: 10})
	offer := func(held int64) (*closer, Ref) {
		t.Helper()
		c := &closer{Reader: strings.NewReader("x")}
		ref, err := r.Offer(context.Background(), c, held)
		if err != nil {
			t.Fatal(err)
		}
		return c, ref
	}
	a, _ := offer(6)
	b, _ := offer(6) // replaces a: together they would exceed the size
	if !a.is() || b.is() {
		t.Errorf("closed: %v, %v", a.is(), b.is())
	}
	c, ref := offer(1)
	d, _ := offer(1)
	e, _ := offer(1) // replaces b: they would be too many
	if !b.is() || c.is() || d.is() || e.is() {
		t.Errorf("closed: %v, %v, %v, %v", b.is(), c.is(), d.is(), e.is())
	}
	end, err := r.Reader(context.Background(), ref) // c is read now, and no longer to be had
	if err != nil {
		t.Fatal(err)
	}
	offer(1)
	if c.is() || !d.is() {
		t.Errorf("closed: %v, %v", c.is(), d.is())
	}
	if _, _, err := r.Create(0); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}
	end.Close()
	if !c.is() {
		t.Error("the source of an end that was closed is open")
	}
	r.create(0)
}

func TestSourceThatFails(t *testing.T) {
	r := newRig(t, Options{})
	src := func() io.ReadCloser {
		return io.NopCloser(io.MultiReader(strings.NewReader("half"), brokenReader{}))
	}
	ref, err := r.Offer(context.Background(), src(), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, side, status := rest(r.dial(ref, "read"))
	if string(b) != "half" || len(side) != 1 || !strings.Contains(side[0], "read from supervisor failed: broken") || status != websocket.StatusInternalError {
		t.Errorf("%q, %q, %d", b, side, status)
	}
	if ref, err = r.Offer(context.Background(), src(), 0); err != nil {
		t.Fatal(err)
	}
	end, err := r.Reader(context.Background(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if b, err := drain(t, end); string(b) != "half" || !errors.Is(err, ErrAborted) {
		t.Errorf("%q, %v", b, err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// TestRemoteOffer tests the sources of another process, through a server's channels.
func TestRemoteOffer(t *testing.T) {
	r := newRig(t, Options{})
	create := func(context.Context) (Ref, Ref, error) { return r.Create(0) }
	m := NewRemote(r.url, create, Options{MaxHeld: 10})
	for _, n := range []int{0, 1, 300 << 10, 8 << 20} {
		src := &closer{Reader: bytes.NewReader(pattern(n))}
		ref, err := m.Offer(context.Background(), src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if b, _, status := rest(r.dial(ref, "read")); !bytes.Equal(b, pattern(n)) || status != websocket.StatusNormalClosure {
			t.Errorf("received %d bytes of %d, %d", len(b), n, status)
		}
		r.eventually(src.is)
	}
	// An unread source is dropped for the next one, and the end of the stream ends all.
	a, b := &closer{Reader: endless{}}, &closer{Reader: endless{}}
	for _, src := range []*closer{a, b} {
		if _, err := m.Offer(context.Background(), src, 6); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually(a.is)
	if b.is() {
		t.Error("the second is closed, too")
	}
	m.Close()
	if !b.is() {
		t.Error("a source outlives Close")
	}
	c := &closer{Reader: endless{}}
	if _, err := m.Offer(context.Background(), c, 0); !errors.Is(err, ErrClosed) || !c.is() {
		t.Errorf("%v", err)
	}
	if _, err := m.Reader(context.Background(), Ref{ChannelID: "x", AccessKey: "secret"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	gone := NewRemote("ws://127.0.0.1:1", create, Options{})
	defer gone.Close()
	if _, err := gone.Reader(context.Background(), Ref{ChannelID: "x", AccessKey: "secret"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestFailedUpgrade tests that a request without an upgrade uses the end of a channel: its reader
// sees an aborted writer.
func TestFailedUpgrade(t *testing.T) {
	r := newRig(t, Options{})
	reader, writer := r.create(0)
	resp, err := http.Get("http" + strings.TrimPrefix(r.address(writer, "write"), "ws"))
	if err != nil || resp.StatusCode != http.StatusUpgradeRequired {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	end, err := r.Reader(context.Background(), reader)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if _, err := drain(t, end); !errors.Is(err, ErrAborted) {
		t.Errorf("%v", err)
	}
}

func TestUUID(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		u := NewUUID()
		if len(u) != 36 || u[14] != '4' || !strings.ContainsRune("89ab", rune(u[19])) || seen[u] {
			t.Fatalf("%s", u)
		}
		seen[u] = true
	}
}

func BenchmarkSocketToDirect(b *testing.B) {
	r := newRig(b, Options{})
	reader, writer := r.create(0)
	w := r.dial(writer, "write")
	end, err := r.Reader(context.Background(), reader)
	if err != nil {
		b.Fatal(err)
	}
	defer end.Close()
	piece := make([]byte, 64<<10)
	b.SetBytes(int64(len(piece)))
	b.ResetTimer()
	go func() {
		for range b.N {
			send(b, w, websocket.MessageBinary, piece)
		}
		w.Close(websocket.StatusNormalClosure, "")
	}()
	if _, err := drainCount(end); err != io.EOF {
		b.Fatal(err)
	}
}

func drainCount(r Reader) (n int, err error) {
	for {
		b, err := r.Next(context.Background())
		if err != nil {
			return n, err
		}
		n += len(b)
	}
}
