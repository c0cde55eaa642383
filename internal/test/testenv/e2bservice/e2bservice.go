// Package e2bservice runs an E2B service for tests: the daemon of this module over the driver
// native.
package e2bservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// Key is the API key.
const Key = "e2b_00112233445566778899aabbccddeeff00112233"

// startBound bounds the start of a service, stopBound its end after SIGTERM.
const (
	startBound = 2 * time.Minute
	stopBound  = 30 * time.Second
)

// Needs are the requirements of a service.
func Needs() []testenv.Requirement { return []testenv.Requirement{testenv.Linux, testenv.UserNS} }

// Service is a running service.
type Service struct {
	// URL is that of the control plane and of all sandboxes.
	URL  string
	dir  string
	cmd  *exec.Cmd
	logs *os.File
}

// start starts program, the daemon, and returns when it answers.
func start(program string) (_ *Service, err error) {
	dir, err := os.MkdirTemp("", "e2bs-") // short: sockets lie in it
	if err != nil {
		return nil, err
	}
	s := &Service{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.logs, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return s, err
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return s, err
	}
	s.cmd = exec.Command(program, "serve", "--listen", "127.0.0.1:0")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SAND") && !strings.HasPrefix(v, "E2B_") {
			s.cmd.Env = append(s.cmd.Env, v)
		}
	}
	// The agent of the driver under test is a program of this service, so the limits of a program are
	// those of a sandbox.
	s.cmd.Env = append(s.cmd.Env, "SANDBAR_CONFIG="+config, "SANDBAR_DRIVER=native", "SANDBAR_E2B=true", "SANDBAR_TOKEN="+Key, "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_TEMPLATES=off",
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"), "SANDBAR_MAX_SANDBOXES=256",
		"SANDBAR_LIMITS_DEFAULT_MEMORY=1GiB", "SANDBAR_LIMITS_DEFAULT_PIDS=2048", "SANDBAR_LIMITS_DEFAULT_DISK=1GiB", "SANDBAR_LIMITS_DEFAULT_INODES=262144",
		"SANDBAR_LIMITS_MAX_TIMEOUT=unlimited", "SANDBAR_LIMITS_MAX_OUTPUT=unlimited")
	s.cmd.Stdout, s.cmd.Stderr = s.logs, s.logs
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return s, err
	}
	address := regexp.MustCompile(`msg=listening address=(\S+)`)
	for end := time.Now().Add(startBound); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(s.logs.Name())
		if m := address.FindSubmatch(b); m != nil {
			s.URL = string(m[1])
			return s, nil
		}
		if err != nil || time.Now().After(end) || s.cmd.Process.Signal(syscall.Signal(0)) != nil {
			return s, fmt.Errorf("the service does not listen: %v; it said:\n%s", err, b)
		}
	}
}

// Environ returns the variables by which a client finds the service.
func (s *Service) Environ() []string {
	return []string{"E2B_API_KEY=" + Key, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}
}

// Sandboxes returns the ids of the sandboxes of the service.
func (s *Service) Sandboxes() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v2/sandboxes?limit=1000", nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("X-API-KEY", Key)
	q.Close = true // no idle connection stays behind
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var all []struct {
		ID string `json:"sandboxID"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		return nil, err
	}
	var ids []string
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids, nil
}

// Said returns the log of the service.
func (s *Service) Said() string {
	b, err := os.ReadFile(s.logs.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// stop stops the service and removes its files. It is an error if the service had to be killed, or
// has left sandboxes.
func (s *Service) stop() error {
	var failed error
	if s.cmd != nil {
		ended := make(chan error, 1)
		go func() { ended <- s.cmd.Wait() }()
		failed = s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			failed = errors.Join(failed, err)
		case <-time.After(stopBound):
			failed = errors.Join(failed, errors.New("it does not end after SIGTERM"), s.cmd.Process.Kill(), <-ended)
		}
		if b, err := os.ReadFile(s.logs.Name()); err == nil && failed == nil && bytes.Contains(b, []byte("panic")) {
			failed = fmt.Errorf("it said:\n%s", b)
		}
	}
	if s.logs != nil {
		failed = errors.Join(failed, s.logs.Close())
	}
	return errors.Join(failed, os.RemoveAll(s.dir))
}

// Shared is one service for all tests of a package, started at its first use. TestMain must call
// Stop. The zero value is ready to use.
type Shared struct {
	mu      sync.Mutex
	service *Service
	err     error
}

// Service returns the service. It skips the test if this host cannot run one.
func (s *Shared) Service(t testing.TB) *Service {
	t.Helper()
	testenv.Need(t, Needs()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.service == nil && s.err == nil {
		if s.service, s.err = start(testenv.Build(t, "cmd/sandbar")); s.err != nil {
			s.service = nil
		}
	}
	if s.err != nil {
		t.Fatalf("an E2B service for tests: %v", s.err)
	}
	return s.service
}

// Running returns the service if it has been started.
func (s *Shared) Running() (*Service, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service, s.service != nil
}

// Stop stops the service, if it was started.
func (s *Shared) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.service == nil {
		return nil
	}
	e := s.service
	s.service = nil
	return e.stop()
}
