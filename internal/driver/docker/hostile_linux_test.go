package docker

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// liar is an engine that answers correctly, except for one kind of call.
type liar struct {
	server *http.Server
	host   string
	about  string // the kind of call
	lie    http.HandlerFunc

	mu    sync.Mutex
	conns []net.Conn // of containers
	wg    sync.WaitGroup
	over  chan struct{}
}

var version = regexp.MustCompile(`^/v[0-9.]+`)

// kindOf returns the name of a call's kind.
func kindOf(r *http.Request) string {
	path := version.ReplaceAllString(r.URL.Path, "")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "containers" && len(parts) == 2 && r.Method == http.MethodDelete:
		return "remove"
	case parts[0] == "volumes" && r.Method == http.MethodDelete:
		return "remove volume"
	case parts[0] == "containers" && parts[1] == "json":
		return "list"
	case parts[0] == "images":
		return "image"
	}
	return parts[len(parts)-1] // _ping, info, create, attach, start, json, stats, events, archive, update
}

func newLiar(t *testing.T, about string, lie http.HandlerFunc) *liar {
	t.Helper()
	e := &liar{about: about, lie: lie, over: make(chan struct{})}
	socket := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	e.host = "unix://" + socket
	e.server = &http.Server{Handler: e}
	e.wg.Go(func() { _ = e.server.Serve(l) })
	return e
}

func (e *liar) close() {
	close(e.over)
	_ = e.server.Close()
	e.mu.Lock()
	for _, c := range e.conns {
		_ = c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.wg.Add(1)
	e.mu.Unlock()
	defer e.wg.Done()
	kind := kindOf(r)
	if kind == e.about {
		e.lie(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	switch kind {
	case "_ping":
		w.Header().Set("Api-Version", "1.47")
	case "info":
		answer(map[string]any{"OSType": "linux", "Architecture": "x86_64", "CgroupVersion": "2", "MemoryLimit": true, "SwapLimit": true,
			"CpuCfsQuota": true, "CpuCfsPeriod": true, "CPUShares": true, "PidsLimit": true, "SecurityOptions": []string{"name=seccomp,profile=default"}})
	case "image":
		answer(map[string]any{"Id": "sha256:" + strings.Repeat("1", 64)})
	case "create":
		w.WriteHeader(http.StatusCreated)
		answer(map[string]any{"Id": strings.Repeat("2", 64), "Name": "x"})
	case "list", "volumes":
		answer([]any{})
	case "json":
		answer(map[string]any{"Id": strings.Repeat("2", 64), "State": map[string]any{"Pid": 1}, "HostConfig": map[string]any{"Memory": 1 << 20}})
	case "stats", "update":
		answer(map[string]any{})
	case "attach":
		e.attach(w)
	case "events":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-e.over:
		}
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// attach is an agent that builds a sandbox.
func (e *liar) attach(w http.ResponseWriter) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	e.mu.Lock()
	e.conns = append(e.conns, conn)
	e.mu.Unlock()
	defer conn.Close()
	say := func(kind wire.Type, id uint32, payload []byte) {
		b := wire.AppendHeader(nil, wire.Header{Length: uint32(len(payload)), Type: kind, ID: id})
		_, _ = conn.Write(piece(streamOut, string(append(b, payload...))))
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	hello := wire.Hello{Generation: wire.Generation}
	say(wire.TypeHello, 0, hello.Append(nil))
	for {
		var head [wire.HeaderSize]byte
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			return
		}
		h, err := wire.ParseHeader(head[:])
		if err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, rw, int64(h.Length)); err != nil {
			return
		}
		say(wire.TypeReply, h.ID, (&wire.Reply{Data: wire.AppendHandle(nil, 0)}).Append(nil))
	}
}

// The false answers to a call of any kind.
var lies = map[string]http.HandlerFunc{
	"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"a string without end": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"Id":"`)
		for b := []byte(strings.Repeat("x", 1<<20)); r.Context().Err() == nil; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	},
	"objects without end": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[{}")
		for b := []byte(strings.Repeat(",{}", 1<<16)); r.Context().Err() == nil; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	},
	"headers without end": func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 X\r\n")
		for line := []byte(strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 1000)); ; {
			if _, err := conn.Write(line); err != nil {
				return
			}
		}
	},
	"1xx without end": func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		for line := []byte(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000)); ; {
			if _, err := conn.Write(line); err != nil {
				return
			}
		}
	},
	"500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, strings.Repeat("x\x1b", 1<<19), 500) },
	"404": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":5}`, 404) },
	"redirect": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	},
	"HTML":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hello</html>") },
	"nothing": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "image/png") },
	"other ids": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"Id":"../../x?y#z","State":{"Pid":-1}}`)
	},
	"cut short": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"Id":"`)
	},
}

// A hostile engine: for every false answer to every kind of call, callers get a typed error in
// time, the driver bounds the memory of answers, and after Close no resource is left.
func TestHostileEngine(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		lies = map[string]http.HandlerFunc{"500": lies["500"]} // it says that it is an amd64
	}
	for _, about := range []string{"nothing", "info", "image", "attach", "json", "events"} {
		for name, lie := range lies {
			if about == "nothing" && name != "500" || (about == "info" || about == "image") && name == "no answer" { // that takes greetBound
				continue
			}
			t.Run(about+"/"+name, func(t *testing.T) {
				before, allocated := runtime.NumGoroutine(), allocations()
				e := newLiar(t, about, lie)
				err := meet(t, e)
				e.close()
				if about == "nothing" && err != nil {
					t.Errorf("an engine that answers correctly: %v", err)
				}
				for end := time.Now().Add(soon); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						buf := make([]byte, 1<<20)
						t.Fatalf("%d goroutines; before there were %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
					}
				}
				// The engine sends as fast as it can, and several copies of its bytes may be in
				// memory.
				if n := allocations() - allocated; n > 512<<20 {
					t.Errorf("%d bytes were allocated", n)
				}
			})
		}
	}
}

func allocations() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// meet opens a driver for an engine and creates a sandbox. It returns the error of either.
func meet(t *testing.T, e *liar) error {
	t.Helper()
	typed := func(what string, err error) bool {
		t.Helper()
		if err != nil && (sandbar.CodeOf(err) == "" || len(err.Error()) > 4000 || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("%s: code %q, %d bytes: %.200q", what, sandbar.CodeOf(err), len(err.Error()), err)
		}
		return err == nil
	}
	d, err := New(driver.Host{Options: map[string]string{optionHost: e.host, optionImage: "image"}}, []byte("the agent"))
	if !typed("New", err) {
		return err
	}
	defer func() { typed("Close", d.Close()) }()
	bound := 300 * time.Millisecond
	if e.about == "nothing" {
		bound = soon
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	box, failed := d.Create(ctx, sandbar.NewID(), spec())
	if typed("Create", failed) {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		if !typed("Destroy", box.Destroy(ctx)) {
			e.mu.Lock() // as an operator would
			e.about = ""
			e.mu.Unlock()
			typed("Destroy again", box.Destroy(t.Context()))
		}
	}
	ctx, cancel = context.WithTimeout(t.Context(), bound)
	defer cancel()
	_, err = d.Collect(ctx, false)
	typed("Collect", err)
	return failed
}
