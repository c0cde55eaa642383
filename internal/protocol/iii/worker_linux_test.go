package iii

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// TestThroughAWorker runs the same tests with the functions of a worker that has joined the server.
// Callers see no difference.
func TestThroughAWorker(t *testing.T) {
	testenv.Need(t, testenv.Once)
	for name, test := range map[string]func(*testing.T){
		"TheSpecsExample":            TestTheSpecsExample,
		"Exec":                       TestExec,
		"ExecCutsOutputAndSaysSo":    TestExecCutsOutputAndSaysSo,
		"ExecOutOfTime":              TestExecOutOfTime,
		"ExecSlots":                  TestExecSlots,
		"Run":                        TestRun,
		"RunTellsTheStep":            TestRunTellsTheStep,
		"ListAndStop":                TestListAndStop,
		"CallsAtTheSameTime":         TestCallsAtTheSameTime,
		"LsAndStat":                  TestLsAndStat,
		"FileFailures":               TestFileFailures,
		"MkdirRmChmodMv":             TestMkdirRmChmodMv,
		"WriteInline":                TestWriteInline,
		"GrepFiles":                  TestGrepFiles,
		"SedFiles":                   TestSedFiles,
		"Transfer":                   TestTransfer,
		"ReadBody":                   TestReadBody,
		"AbortedUpload":              TestAbortedUpload,
		"FailedUploadTakesTheStream": TestFailedUploadTakesTheStream,
		"CopyBetweenSandboxes":       TestCopyBetweenSandboxes,
		"ClientNpm":                  TestClientNpm,
		"ClientPython":               TestClientPython,
	} {
		t.Run(name, test)
	}
}

// cutter is a listener that can break all its connections.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *cutter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, err
}

func (l *cutter) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c != nil {
			c.Close()
		}
	}
}

// TestWorkerComesBack tests that a worker reconnects to its engine and keeps its sandboxes.
func TestWorkerComesBack(t *testing.T) {
	r := newReal(t, Options{Grace: -1})
	o := Options{Engine: r.engine, Config: config(), Images: allHost{}}
	front, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewUnstartedServer(front.Handler())
	cuts := &cutter{Listener: listener.Listener}
	listener.Listener = cuts
	listener.Start()
	defer listener.Close()
	defer func() { front.Shutdown(context.Background()) }()
	f := &rig{t: t, engine: r.engine, server: front, url: listener.URL}
	stop := f.join(o)
	defer func() { stop(context.Background()) }()
	c := f.connect()
	id := c.create()
	running := c.begin("sandbox::exec", text(object{"sandbox_id": id, "cmd": "sleep 1000"}))
	c.eventually(func() bool { return c.only(id)["exec_in_flight"] == 1.0 })
	cuts.cut()
	c.close() // its connection is closed too
	c = f.connect()
	// From here on the worker's new connection answers.
	c.eventually(func() bool { return c.invoke("sandbox::list", `{}`).Error == nil })
	if out := c.sh(id, "echo still here"); out != "still here\n" {
		t.Errorf("%q", out)
	}
	c.eventually(func() bool { return c.only(id)["exec_in_flight"] == 0.0 })
	_ = running // no caller is left
}

func TestServerWithoutFunctions(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	defer listener.Close()
	defer s.Shutdown(context.Background())
	r := &rig{t: t, server: s, url: listener.URL}
	if m := r.connect().invoke("sandbox::create", `{"image":"python"}`); m.Error == nil || m.Error.Code != "function_not_found" {
		t.Errorf("%+v", m)
	}
	for path, status := range map[string]int{"/": http.StatusUpgradeRequired, "/otel": http.StatusUpgradeRequired, "/nope": 404, "/ws/channels/x": 400} {
		resp, err := http.Get(listener.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	bad := config(func(c *settings.Config) { c.MaxConcurrentSandboxes = -1 })
	if _, err := New(Options{Engine: r.engine, Config: bad}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
	if _, err := NewWorker(WorkerOptions{Options: Options{Engine: r.engine, Config: bad}, URL: "ws://x"}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("%v", err)
	}
}

// TestHostImages tests that the host's programs substitute for a preset if the host has them, and
// that the result says so.
func TestHostImages(t *testing.T) {
	images := HostImages()
	for _, preset := range config().Catalogue() {
		root, err := images.Find(t.Context(), preset)
		if err == nil && (root.Image != sandbar.ImageHost || root.Note == "") || err != nil && sandbar.CodeOf(err) != sandbar.NotFound {
			t.Errorf("%s: %+v, %v", preset.Name, root, err)
		}
	}
	custom := settings.Image{Name: "python", OCIRef: "r/x", Kind: settings.Custom}
	if _, err := images.Find(t.Context(), custom); sandbar.CodeOf(err) != sandbar.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := images.Pull(t.Context(), custom); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("%v", err)
	}
}
