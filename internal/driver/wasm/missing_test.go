package wasm

import (
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
)

// Unsupported operations fail with an error that gives the reason.
func TestWhatThereIsNotIsSaid(t *testing.T) {
	const noNetwork, noThreads = "this sandbox has no network", "no threads in this sandbox"
	box := newBox(t, nil)
	for _, c := range []struct {
		command, program string
		want             string // on stderr
	}{
		{"python3", "import socket; socket.socket()", noNetwork},
		{"python3", "import socket; socket.create_connection(('127.0.0.1', 80))", noNetwork},
		{"python3", "import urllib.request as u; u.urlopen('http://example.org')", noNetwork},
		{"python3", "import threading; threading.Thread(target=print).start()", noThreads},
		{"python3", "from concurrent.futures import ThreadPoolExecutor as T; T()", noThreads},
		{"python3", "from concurrent.futures import ProcessPoolExecutor as P; P()", "Python cannot fork in this sandbox"},
		{"python3", "import asyncio\nasync def f(): await asyncio.get_running_loop().create_future()\nasyncio.run(f())", "the event loop would wait for ever"},
		{"python3", "import subprocess; subprocess.run(['/bin/nosuch'])", "No such file or directory: '/bin/nosuch'"},
		{"python3", "import os; os.fork()", "has no attribute 'fork'"},
		{"node", "fetch('http://example.org')", noNetwork},
		{"node", "require('net').connect(80)", noNetwork},
		{"node", "require('https').get('https://example.org')", noNetwork},
		{"node", "new (require('worker_threads').Worker)('x')", noThreads},
		{"node", "new WebSocket('ws://example.org')", "WebSocket is not defined"},
		{"node", "require('left-pad')", "Cannot find module 'left-pad'"},
		{"sh", "nosuch", "nosuch: not found"},
		{"sh", "echo x > /dev/tcp/127.0.0.1/80", "/dev/tcp/127.0.0.1/80: "},
	} {
		flag := "-c"
		if c.command == "node" {
			flag = "-e"
		}
		r := run(t, box, "", sandbar.Cmd{Args: []string{c.command, flag, c.program}})
		if r.Exit == 0 || r.result.Outcome != sandbar.Exited || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: %v after %v, exit code %d, want %q on stderr:\n%s", c.program, r.result.Outcome, r.result.Duration, r.Exit, c.want, r.stderr)
		}
	}
}
