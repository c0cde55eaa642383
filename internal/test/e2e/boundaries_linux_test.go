package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The clients of every protocol work over every boundary as over native. One environment
// variable of the built command selects the driver.

func TestFathomOver(t *testing.T) {
	for _, b := range boundaries() {
		t.Run(b.name, func(t *testing.T) {
			testenv.Need(t, b.needs...)
			clients := []testenv.Requirement{testenv.PyWebsockets}
			if testenv.Long() {
				clients = append(clients, testenv.NpmWS)
			}
			d := newDaemon(t, t.TempDir(), b.environ(t)...)
			d.runClients(t, b.languages, clients...)
			d.endCleanWithEngine(t)
		})
	}
}

// The SDK of the executor protocol.
func TestExecutorOver(t *testing.T) {
	for _, b := range boundaries() {
		t.Run(b.name, func(t *testing.T) {
			// internal/protocol/executor has the short form.
			testenv.Need(t, append(b.needs, testenv.TestAll, testenv.PyKoyeb)...)
			for mode, least := range map[string]int{"sync": 47, "async": 47} {
				x := newExecutor(t, nil, b.environ(t)...)
				runChecks(t, mode, least, "EXECUTOR_URL=http://"+x.addr, "EXECUTOR_PROXY="+x.proxy, "EXECUTOR_SECRET="+x.secret)
			}
		})
	}
}

// The SDKs of iii.
func TestIIIOver(t *testing.T) {
	for _, b := range boundaries() {
		t.Run(b.name, func(t *testing.T) {
			// internal/protocol/iii has the short form.
			testenv.Need(t, append(b.needs, testenv.TestAll, testenv.NpmIII, testenv.PyIII)...)
			// docker has a quarter of the disk in /tmp, where the largest file goes.
			d, url := iiiDaemon(t, t.TempDir(), append(append(iiiEnviron(), "SANDBAR_LIMITS_DEFAULT_DISK=1200MiB"), b.environ(t)...)...)
			checks := []string{"lifecycle", "exec", "files", "channels", "large", "aborted", "errors", "concurrent", "functions", "reconnect"}
			if slices.Contains(b.languages, "javascript") {
				checks = append(checks, "run")
			}
			runIII(t, url, len(checks), "NODE_PATH="+testenv.NpmIIIModules(), "/usr/bin/env", "III_CHECKS="+strings.Join(checks, ","), "/usr/bin/node", "client.mjs")
			runIII(t, url, 7, "PYTHONPATH="+testenv.PyIIIPath(), "/usr/bin/python3", "client.py")
			d.endCleanWithEngine(t)
		})
	}
}

// endCleanWithEngine is endClean, and the Docker Engine and the E2B service, if they run, must have
// nothing of the daemon.
func (d *daemon) endCleanWithEngine(t *testing.T) {
	t.Helper()
	d.endClean(t)
	if e, ok := engines.Running(); ok {
		waitUntil(t, "the engine has nothing of the daemon", func() []string { return remainsOn(e) })
	}
	if s, ok := services.Running(); ok {
		waitUntil(t, "the service has nothing of the daemon", func() []string {
			ids, err := s.Sandboxes()
			if err != nil {
				return []string{err.Error()}
			}
			return ids
		})
	}
}
