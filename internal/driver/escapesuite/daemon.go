package escapesuite

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// daemon is an attacked daemon: a child process of this program.
type daemon struct {
	cmd   *exec.Cmd
	dir   string // contains all of its directories
	token string
	base  string // http://127.0.0.1:PORT
	log   *logBuffer
	gone  chan struct{}
}

// Limits of the attacked daemon, small so that attacks reach them quickly. outputCap is in bytes.
const (
	maxSandboxes = 16
	outputCap    = 8 << 20
)

var listening = regexp.MustCompile(`msg=listening address=(http://\S+)`)

// daemon returns the running daemon, or starts one.
func (s *Suite) daemon(ctx context.Context) (*daemon, error) {
	if s.Binary == "" {
		return nil, notRun("there is no daemon to attack")
	}
	if s.d != nil && !s.d.ended() {
		return s.d, nil
	}
	s.stopDaemon()
	dir, err := os.MkdirTemp("", "sandbar-escape-")
	if err != nil {
		return nil, err
	}
	d, err := s.launch(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.d = d
	return d, nil
}

// launch starts a daemon whose directories are in dir. Another daemon may have used them before.
func (s *Suite) launch(ctx context.Context, dir string) (*daemon, error) {
	d := &daemon{dir: dir, token: rand.Text(), log: newLogBuffer(), gone: make(chan struct{})}
	d.cmd = exec.Command(s.Binary, "serve", "--listen", "127.0.0.1:0")
	d.cmd.Env = append(s.Environ, "SANDBAR_TOKEN="+d.token, "SANDBAR_DRIVER="+s.Driver.Caps().Name,
		"SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"), "SANDBAR_STATE_DIR="+filepath.Join(dir, "state"),
		"SANDBAR_MAX_SANDBOXES="+strconv.Itoa(maxSandboxes), "SANDBAR_QUEUE_TIMEOUT=3s", "SANDBAR_FATHOM_DISCONNECT_GRACE=1s", "SANDBAR_GRACE=200ms",
		"SANDBAR_LIMITS_MAX_OUTPUT="+strconv.Itoa(outputCap)+"B", "SANDBAR_SHUTDOWN_TIMEOUT=10s")
	if !s.Warm {
		d.cmd.Env = append(d.cmd.Env, "SANDBAR_TEMPLATES=off")
	}
	if s.Driver.Caps().Enforced.Memory == sandbar.EnforcedNone {
		d.cmd.Env = append(d.cmd.Env, "SANDBAR_ALLOW_DEGRADED=true") // each execution of the Fathom protocol has that limit
	}
	d.cmd.Stderr = d.log
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.gone)
	}()
	found, err := d.log.await(ctx, listening, d.gone)
	if err != nil {
		d.kill()
		return nil, fmt.Errorf("the daemon did not start: %w: %s", err, d.log.tail())
	}
	d.base = found[1]
	return d, nil
}

// stopDaemon stops the daemon, if one runs, and removes its directories.
func (s *Suite) stopDaemon() {
	if s.d == nil {
		return
	}
	_ = s.d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.d.gone:
	case <-time.After(20 * time.Second):
		s.d.kill()
	}
	_ = os.RemoveAll(s.d.dir)
	s.d = nil
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.gone
}

func (d *daemon) ended() bool {
	select {
	case <-d.gone:
		return true
	default:
		return false
	}
}

// address returns HOST:PORT of the listener.
func (d *daemon) address() string { return strings.TrimPrefix(d.base, "http://") }

// answer is the response to a request.
type answer struct {
	status int
	body   []byte
}

// request sends a request with the token. change can modify it first.
func (d *daemon) request(ctx context.Context, method, path string, body any, change ...func(*http.Request)) (answer, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, d.base+path, reader)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	for _, f := range change {
		f(r)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return answer{resp.StatusCode, text}, err
}

// refused returns an error unless the request is answered with one of the statuses.
func (d *daemon) refused(ctx context.Context, what, method, path string, body any, change func(*http.Request), statuses ...int) error {
	if change == nil {
		change = func(*http.Request) {}
	}
	a, err := d.request(ctx, method, path, body, change)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, s := range statuses {
		if a.status == s {
			return nil
		}
	}
	return escaped("%s: status %d, want one of %v", what, a.status, statuses)
}

// healthy returns an error unless the daemon is healthy.
func (d *daemon) healthy(ctx context.Context) error {
	a, err := d.request(ctx, "GET", "/health", nil)
	switch {
	case err != nil:
		return escaped("the daemon no longer answers: %v: %s", err, d.log.tail())
	case a.status != http.StatusOK:
		return escaped("the daemon is no longer healthy: status %d", a.status)
	}
	return nil
}

// create creates a long-lived sandbox and returns its id.
func (d *daemon) create(ctx context.Context, body any) (string, error) {
	a, err := d.request(ctx, "POST", "/sandboxes", body)
	if err != nil {
		return "", err
	}
	var made struct{ ID string }
	if a.status != http.StatusCreated || json.Unmarshal(a.body, &made) != nil {
		return "", fmt.Errorf("creating a sandbox: status %d: %.200s", a.status, a.body)
	}
	return made.ID, nil
}

// live returns the ids of all sandboxes that the daemon lists.
func (d *daemon) live(ctx context.Context) ([]string, error) {
	a, err := d.request(ctx, "GET", "/sandboxes", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Sandboxes []struct{ ID string } }
	if err := json.Unmarshal(a.body, &list); err != nil {
		return nil, fmt.Errorf("listing sandboxes: status %d: %w", a.status, err)
	}
	var ids []string
	for _, s := range list.Sandboxes {
		ids = append(ids, s.ID)
	}
	return ids, nil
}

// raw opens a TCP connection to the listener.
func (d *daemon) raw(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.address())
}

// memory returns the daemon's resident memory in bytes, 0 if it is unknown.
func (d *daemon) memory() int64 {
	return status(d.cmd.Process.Pid, "VmRSS:") << 10
}

// status returns a number of /proc/PID/status, 0 if it cannot be read.
func status(pid int, field string) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == field {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// maxLog is the size limit of a logBuffer, in bytes.
const maxLog = 4 << 20

// logBuffer keeps the beginning of the daemon's standard error output.
type logBuffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed and replaced by each Write
}

func newLogBuffer() *logBuffer { return &logBuffer{grown: make(chan struct{})} }

func (j *logBuffer) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Write(b[:min(len(b), max(0, maxLog-j.text.Len()))])
	close(j.grown)
	j.grown = make(chan struct{})
	return len(b), nil
}

func (j *logBuffer) look() (string, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String(), j.grown
}

func (j *logBuffer) tail() string {
	text, _ := j.look()
	return text[max(0, len(text)-500):]
}

// await waits until the text matches, and returns the submatches.
func (j *logBuffer) await(ctx context.Context, pattern *regexp.Regexp, gone <-chan struct{}) ([]string, error) {
	for {
		text, grown := j.look()
		if found := pattern.FindStringSubmatch(text); found != nil {
			return found, nil
		}
		select {
		case <-grown:
		case <-gone:
			return nil, errors.New("it has ended")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
