package iii

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// noise returns n bytes without repetition, from a fixed seed.
func noise(n int) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{1}), int64(n))
}

func sum(t testing.TB, r io.Reader) string {
	t.Helper()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// put writes a file through a channel.
func (c *client) put(id, path string, from io.Reader) message {
	c.t.Helper()
	reader, writer := c.channel()
	done := c.begin("sandbox::fs::write", text(object{"sandbox_id": id, "path": path, "content": reader, "parents": true}))
	upload(c.t, c.dial(writer, "write"), from)
	return await(c.t, done)
}

// get reads a file through a channel.
func (c *client) get(id, path string, to io.Writer) object {
	c.t.Helper()
	r := c.call("sandbox::fs::read", object{"sandbox_id": id, "path": path})
	if status := download(c.t, c.dial(refOf(c.t, r), "read"), to); status != websocket.StatusNormalClosure {
		c.t.Errorf("the channel was closed with %d", status)
	}
	return r
}

func refOf(t testing.TB, r object) (ref channel.Ref) {
	t.Helper()
	if err := json.Unmarshal([]byte(text(r["content"])), &ref); err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestTransfer writes and reads bytes through channels. The first byte of noise is text.
func TestTransfer(t *testing.T) {
	r := newReal(t, Options{})
	c := r.connect()
	id := c.create()
	for _, n := range []int{0, 1, 64 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1, 20 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			path := fmt.Sprintf("/tmp/in/%d", n)
			m := c.put(id, path, noise(n))
			if m.Error != nil || string(m.Result) != fmt.Sprintf(`{"bytes_written":%d,"path":%q}`, n, path) {
				t.Fatalf("%v, %s", m.Error, m.Result)
			}
			h := sha256.New()
			got := c.get(id, path, h)
			if want := sum(t, noise(n)); fmt.Sprintf("%x", h.Sum(nil)) != want {
				t.Error("other bytes were returned")
			}
			if _, inline := got["body"]; got["size"] != float64(n) || got["mode"] != "0644" || inline != (n <= 1) {
				t.Errorf("%.300v", got)
			}
			c.call("sandbox::fs::rm", object{"sandbox_id": id, "path": path})
		})
	}
	c.eventually(func() bool { return r.server.channels.Len() == 0 })
}

// TestTransferOf256MiB transfers the size that the specification asks to test; the sandbox needs
// more than the engine's default disk.
func TestTransferOf256MiB(t *testing.T) {
	testenv.Need(t, testenv.Once)
	r := newRealWith(t, Options{Config: config(func(c *settings.Config) { c.DefaultMemoryMB = 1024 })}, func(c *engine.Config) {
		c.Default.Disk = largeDisk
	})
	c := r.connect()
	id := c.create()
	const n = 256 << 20
	if m := c.put(id, "/tmp/big", noise(n)); m.Error != nil {
		t.Fatal(m.Error)
	}
	h := sha256.New()
	c.get(id, "/tmp/big", h)
	if fmt.Sprintf("%x", h.Sum(nil)) != sum(t, noise(n)) {
		t.Error("other bytes were returned")
	}
}

// TestReadBody tests that the response contains text under 1 MiB, and no larger or binary content.
func TestReadBody(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	for _, x := range []struct {
		name, content string
		body          bool
	}{
		{"empty", "", true}, {"text", "héllo\n", true}, {"bytes", "\xff\xfe", false}, {"a cut character", "a\xc3", false},
		{"almost", strings.Repeat("x", 1<<20-1), true}, {"too large", strings.Repeat("x", 1<<20), false},
	} {
		c.call("sandbox::fs::write", object{"sandbox_id": id, "path": "/tmp/f", "content_b64": b64(x.content)})
		var b bytes.Buffer
		got := c.get(id, "/tmp/f", &b)
		body, told := got["body"]
		if b.String() != x.content || told != x.body || told && body != x.content || got["size"] != float64(len(x.content)) {
			t.Errorf("%s: %d bytes, body %v", x.name, b.Len(), told)
		}
	}
	c.sh(id, "ln -s f /tmp/l; touch -d @77 /tmp/f; chmod 600 /tmp/f")
	if got := c.get(id, "/tmp/l", io.Discard); got["mtime"] != 77.0 || got["mode"] != "0600" {
		t.Errorf("%v", got["mtime"])
	}
}

// TestAbortedUpload tests that an upload that breaks off or stalls leaves the old file unchanged,
// and no other file.
func TestAbortedUpload(t *testing.T) {
	r := newReal(t, Options{})
	c := r.connect()
	id := c.create()
	c.sh(id, "mkdir /tmp/d; echo old >/tmp/d/f")
	reader, writer := c.channel()
	done := c.begin("sandbox::fs::write", text(object{"sandbox_id": id, "path": "/tmp/d/f", "content": reader}))
	ws := c.dial(writer, "write")
	if err := ws.Write(context.Background(), websocket.MessageBinary, []byte("half of it")); err != nil {
		t.Fatal(err)
	}
	ws.CloseNow()
	m := await(t, done)
	if m.Error == nil {
		t.Fatalf("it was written: %s", m.Result)
	}
	d := c.detail(m.Error, "S218")
	if d["retryable"] != true || d["type"] != "transient" || d["fix"] != nil {
		t.Errorf("%v", d)
	}
	// A writer that never connects. The fix is for an empty file, because known clients upload
	// empty files this way.
	reader, _ = c.channel()
	d = c.failed("sandbox::fs::write", object{"sandbox_id": id, "path": "/tmp/d/empty", "content": reader}, "S218")
	if !strings.HasPrefix(d["message"].(string), "fs channel aborted: no chunks from caller for 5s") {
		t.Errorf("%v", d["message"])
	}
	c.call("sandbox::fs::write", d["fix"].(map[string]any))
	if out := c.sh(id, "cat /tmp/d/f; ls -A /tmp/d"); out != "old\nempty\nf\n" {
		t.Errorf("%q", out)
	}
	c.eventually(func() bool { return r.server.channels.Len() <= 1 }) // the channel without a writer waits for one
}

// TestFailedUploadTakesTheStream tests that an early error is reported after the stream was read:
// clients cannot handle a reader that closes.
func TestFailedUploadTakesTheStream(t *testing.T) {
	c := newRealWith(t, Options{}, func(c *engine.Config) { c.Default.Disk = 16 << 20 }).connect()
	id := c.create()
	for _, x := range []struct {
		ask  object
		size int
		code string
	}{
		{object{"path": "/nowhere/f"}, 10 << 20, "S211"},
		{object{"path": "/tmp/f", "mode": "9"}, 10 << 20, "S210"},
		{object{"path": "/tmp/full"}, 40 << 20, "S216"}, // no space
	} {
		reader, writer := c.channel()
		x.ask["sandbox_id"], x.ask["content"] = id, reader
		done := c.begin("sandbox::fs::write", text(x.ask))
		upload(t, c.dial(writer, "write"), noise(x.size)) // reports writes that fail
		m := await(t, done)
		if m.Error == nil {
			t.Fatalf("it was written: %s", m.Result)
		}
		d := c.detail(m.Error, x.code)
		if x.code == "S211" && text(d["fix"]) != `{"parents":true}` {
			t.Errorf("the fix is %v", d["fix"])
		}
	}
	if out := c.sh(id, "ls -A /tmp"); out != "" {
		t.Errorf("left behind: %q", out)
	}
}

// TestCopyBetweenSandboxes uses the channel of a read as the content of a write in another sandbox.
func TestCopyBetweenSandboxes(t *testing.T) {
	c := newReal(t, Options{}).connect()
	a, b := c.create(), c.create()
	for _, n := range []int{0, 10, 5 << 20} {
		c.put(a, "/tmp/f", noise(n))
		r := c.call("sandbox::fs::read", object{"sandbox_id": a, "path": "/tmp/f"})
		w := c.call("sandbox::fs::write", object{"sandbox_id": b, "path": "/tmp/g", "content": r["content"]})
		if w["bytes_written"] != float64(n) || c.sh(b, "sha256sum </tmp/g | cut -c-64") != sum(t, noise(n))+"\n" {
			t.Errorf("%v", w)
		}
		c.failed("sandbox::fs::write", object{"sandbox_id": b, "path": "/tmp/h", "content": r["content"]}, "S218") // a channel can be read once
	}
}

// TestUnreadFileOfAStoppedSandbox tests that an unread large file does not keep a stopped sandbox's
// memory.
func TestUnreadFileOfAStoppedSandbox(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.sh(id, "head -c 5000000 /dev/zero >/tmp/f")
	r := c.call("sandbox::fs::read", object{"sandbox_id": id, "path": "/tmp/f"})
	c.call("sandbox::stop", object{"sandbox_id": id, "wait": true})
	c.eventually(func() bool { // closed asynchronously
		resp, err := http.Get(c.rig.url + "/ws/channels/" + refOf(t, r).ChannelID + "?key=wrong&dir=read")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusNotFound
	})
	var b bytes.Buffer
	if status := download(t, c.dial(refOf(t, r), "read"), &b); status != websocket.StatusInternalError || b.Len() == 5000000 {
		t.Errorf("received %d bytes, closed with %d", b.Len(), status)
	}
}

// TestClientVanishes tests that a lost client leaves neither its program nor the channel that it
// was writing.
func TestClientVanishes(t *testing.T) {
	r := newReal(t, Options{Grace: -1})
	c := r.connect()
	id := c.create()
	c.begin("sandbox::exec", text(withID(id, script("echo started >/tmp/started; sleep 1000"))))
	reader, writer := c.channel()
	c.begin("sandbox::fs::write", text(object{"sandbox_id": id, "path": "/tmp/half", "content": reader}))
	ws := c.dial(writer, "write")
	if err := ws.Write(context.Background(), websocket.MessageBinary, []byte("half")); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() bool { return c.sh(id, "cat /tmp/started 2>/dev/null; true") == "started\n" })
	c.close()
	ws.CloseNow()
	again := r.connect()
	again.eventually(func() bool { return again.only(id)["exec_in_flight"] == 0.0 && r.server.channels.Len() == 0 })
	if out := again.sh(id, "ls /tmp; ps | grep -c '[s]leep' || true"); out != "started\n0\n" {
		t.Errorf("%q", out)
	}
}
