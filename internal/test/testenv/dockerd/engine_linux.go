package dockerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// startBound bounds the time until an engine answers, stopBound the time until it exits
// after SIGTERM.
const (
	startBound = 5 * time.Minute
	stopBound  = 30 * time.Second
)

// Engine is a Docker Engine. Its methods must not be called concurrently.
type Engine struct {
	dir    string
	parent string // the parent cgroup of all its containers
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has been waited for
	http   *http.Client
}

// Start starts an engine with an empty store and returns when it answers. ctx bounds the start.
func Start(ctx context.Context) (*Engine, error) {
	dir, err := os.MkdirTemp("", Prefix) // short: sockets lie in it
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir, parent: "/" + filepath.Base(dir)}
	e.http = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", e.socket())
		},
	}}
	// An empty configuration: the host's daemon.json could name other hosts and directories.
	if err := os.WriteFile(e.path("config.json"), []byte("{}"), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := e.Restart(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func (e *Engine) path(name ...string) string {
	return filepath.Join(append([]string{e.dir}, name...)...)
}

func (e *Engine) socket() string { return e.path("docker.sock") }

// Host returns the engine's address in the form of DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + e.socket() }

// Dir returns the directory of the engine's state.
func (e *Engine) Dir() string { return e.dir }

// Restart starts the engine after Crash with its old state. It returns when the engine
// answers; ctx bounds the start.
func (e *Engine) Restart(ctx context.Context) error {
	log, err := os.OpenFile(e.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--config-file", e.path("config.json"),
		"--host", e.Host(), "--data-root", e.path("data"), "--exec-root", e.path("exec"), "--pidfile", e.path("pid"),
		"--group", "root", "--cgroup-parent", e.parent,
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none", "--userland-proxy=false")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.dir, "TMPDIR=" + e.dir}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attr()
	// Pid files of a crashed engine: their pids may belong to other processes now, or to
	// zombies, which the engine would take for running processes.
	_ = os.Remove(e.path("pid"))
	_ = os.Remove(e.path("exec", "containerd", "containerd.pid"))
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel signals the engine when the thread that started it exits (see attr), so
		// this goroutine keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the engine's log has the reason
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	e.cmd, e.ended = cmd, ended
	return e.awaitAnswer(ctx)
}

func (e *Engine) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	for {
		if _, err := e.call(ctx, http.MethodGet, "/_ping", nil); err == nil {
			return nil
		}
		select {
		case <-e.ended:
			return fmt.Errorf("dockerd ended: %s", e.log())
		case <-ctx.Done():
			return fmt.Errorf("dockerd does not answer: %w: %s", ctx.Err(), e.log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// log returns the end of the engine's log.
func (e *Engine) log() string {
	b, _ := os.ReadFile(e.path("log"))
	return string(b[max(0, len(b)-2000):])
}

// Crash kills the engine's process; the kernel then kills its containerd (parent-death
// signal). Running containers continue.
func (e *Engine) Crash() error {
	if err := e.cmd.Process.Kill(); err != nil {
		return err
	}
	<-e.ended
	return nil
}

// Pause stops the engine's process by SIGSTOP: the kernel accepts connections, but the
// engine does not answer, as on an overloaded host. Resume continues it.
func (e *Engine) Pause() error {
	if err := e.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// Threads stop one by one.
	for end := time.Now().Add(stopBound); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if e.stopped() {
			return nil
		}
	}
	return errors.New("dockerd does not stop")
}

// stopped reports whether every thread of the engine's process is stopped.
func (e *Engine) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", e.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if i := bytes.LastIndexByte(b, ')'); err == nil && (i < 0 || len(b) < i+3 || b[i+2] != 'T') {
			return false
		}
	}
	return true
}

// Resume continues the engine after Pause.
func (e *Engine) Resume() error { return e.cmd.Process.Signal(syscall.SIGCONT) }

// Import makes an image from an archive of a root file system.
func (e *Engine) Import(ctx context.Context, archive, reference string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	repo, tag, _ := strings.Cut(reference, ":")
	b, err := e.call(ctx, http.MethodPost, "/images/create?"+url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}}.Encode(), f)
	if err != nil {
		return err
	}
	// The response is a stream of JSON messages; a failure is one of them.
	if i := bytes.Index(b, []byte(`"error"`)); i >= 0 {
		return fmt.Errorf("importing %s: %s", archive, b[i:])
	}
	return nil
}

// Containers returns the names of all containers, including exited ones.
func (e *Engine) Containers(ctx context.Context) ([]string, error) {
	b, err := e.call(ctx, http.MethodGet, "/containers/json?all=1", nil)
	if err != nil {
		return nil, err
	}
	var list []struct{ Names []string }
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Names...)
	}
	return names, nil
}

// Volumes returns the names of all volumes.
func (e *Engine) Volumes(ctx context.Context) ([]string, error) {
	b, err := e.call(ctx, http.MethodGet, "/volumes", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Volumes []struct{ Name string } }
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range list.Volumes {
		names = append(names, v.Name)
	}
	return names, nil
}

// call makes a request and returns the response's body.
func (e *Engine) call(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return nil, err
	}
	r, err := e.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, r.Status, bytes.TrimSpace(b))
	}
	return b, err
}

// Stop stops the engine with all its containers and removes its state.
func (e *Engine) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), startBound+stopBound)
	defer cancel()
	var errs []error
	if e.cmd != nil {
		_ = e.Resume() // it may have ended
		errs = append(errs, e.removeContainers(ctx), e.terminate())
	}
	return errors.Join(append(errs, e.clear())...)
}

// removeContainers removes every container. It restarts a crashed engine for that: only an
// engine stops the containers of its shims.
func (e *Engine) removeContainers(ctx context.Context) error {
	select {
	case <-e.ended:
		if err := e.Restart(ctx); err != nil {
			return err
		}
	default:
	}
	names, err := e.Containers(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, rerr := e.call(ctx, http.MethodDelete, "/containers"+name+"?force=1&v=1", nil); rerr != nil && !strings.Contains(rerr.Error(), "404") && !strings.Contains(rerr.Error(), "409") {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

func (e *Engine) terminate() error {
	_ = e.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-e.ended:
		return nil
	case <-time.After(stopBound):
		return errors.Join(fmt.Errorf("dockerd does not end: %s", e.log()), e.Crash())
	}
}
