package main

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

//go:embed e2b.cjs
var e2bProgram []byte

// e2bModules are the packages of npm that "make tools" fetches.
const e2bModules = ".cache/e2b-npm/node_modules"

// e2bFile is the size of the files of e2bFiles, in bytes.
const e2bFile = 256 << 20

// e2bIdleStreams is the number of connections of e2bIdle.
const e2bIdleStreams = 1000

// emptyE2B answers as an E2B server whose sandboxes need no time: the SDK's own part.
func emptyE2B(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/v2/sandboxes":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"sandboxID":"i","templateID":"base","clientID":"c","envdVersion":"0.6.13","envdAccessToken":"t","domain":"localhost"}`)
	case "/process.Process/Start":
		w.Header().Set("Content-Type", "application/connect+json")
		for _, m := range []string{`{"event":{"start":{"pid":1}}}`, `{"event":{"end":{"exited":true,"status":"exit status 0"}}}`, `{}`} {
			head := []byte{0, 0, 0, 0, 0}
			if m == `{}` {
				head[0] = 2 // the end of the stream
			}
			binary.BigEndian.PutUint32(head[1:], uint32(len(m)))
			w.Write(append(head, m...))
		}
	case "/execute":
		w.Header().Set("Content-Type", "application/x-ndjson")
		io.WriteString(w, `{"type":"number_of_executions","execution_count":1}`+"\n"+`{"type":"result","text":"2","is_main_result":true}`+"\n"+`{"type":"end_of_execution"}`+"\n")
	case "/files":
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(e2bFile))
			for piece, n := make([]byte, 1<<20), 0; n < e2bFile; n += len(piece) {
				w.Write(piece)
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `[{"name":"file","path":"/home/user/file","type":"file"}]`)
	default: // the end of a sandbox
		w.WriteHeader(http.StatusNoContent)
	}
}

// runE2B runs the program with E2B's SDK against a daemon, and decodes its numbers.
func runE2B(l *lab, what string) (ours, bare []float64, err error) {
	d, err := startDaemon(l.sandbar, "SANDBAR_E2B=true", "SANDBAR_LOG_LEVEL=error", "SANDBAR_ALLOW_DEGRADED=true",
		"SANDBAR_LIMITS_DEFAULT_MEMORY=1GiB", "SANDBAR_LIMITS_DEFAULT_DISK=512MiB", "SANDBAR_TEMPLATES_MEMORY=4GiB")
	if err != nil {
		return nil, nil, err
	}
	defer d.stop()
	empty := httptest.NewServer(http.HandlerFunc(emptyE2B))
	defer empty.Close()
	modules, err := filepath.Abs(e2bModules)
	if err != nil {
		return nil, nil, err
	}
	program := filepath.Join(d.dir, "e2b.cjs")
	if err := os.WriteFile(program, e2bProgram, 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.Command("node", program, what, empty.URL, strconv.Itoa(d.cmd.Process.Pid), strconv.Itoa(e2bIdleStreams))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "NO_PROXY=*", "E2B_VALIDATE_API_KEY=false", "E2B_ENVD_RPC_CONNECTIONS=2000",
		"E2B_API_URL=http://"+d.addr, "E2B_SANDBOX_URL=http://"+d.addr, "E2B_API_KEY="+d.token)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("the program with E2B's SDK: %w", err)
	}
	var numbers struct{ Ours, Bare []float64 }
	err = json.Unmarshal(out, &numbers)
	return numbers.Ours, numbers.Bare, err
}

// e2bCall measures a call of E2B's SDK from npm. The bound is for the time beyond that of a server
// that does nothing.
func e2bCall(what string, bound time.Duration) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		ours, bare, err := runE2B(l, what)
		if err != nil {
			return measured{}, err
		}
		baseline := ""
		if what == "run" { // the last number is another one: the SDK runs commands by a login shell
			shell := ours[len(ours)-1]
			ours = ours[:len(ours)-1]
			baseline = fmt.Sprintf("; bash -l -c true by a program in the sandbox: %.2f ms", shell)
		}
		a, b := timesOf(ours), timesOf(bare)
		took := a.quantile(0.5) - b.quantile(0.5)
		baseline = "a server that does nothing: " + b.String() + baseline
		return measured{value: fmt.Sprintf("%+.2f ms; %v", ms(took), a), baseline: baseline, kept: took <= bound}, nil
	}
}

// timesOf returns sorted times of milliseconds.
func timesOf(all []float64) times {
	t := make(times, len(all))
	for i, n := range all {
		t[i] = time.Duration(n * float64(time.Millisecond))
	}
	slices.Sort(t)
	return t
}

// e2bFiles measures the best speed of five files of 256 MiB, each way. The baseline is the SDK with
// a server that discards what it gets and sends zeros.
func e2bFiles(l *lab) (measured, error) {
	ours, bare, err := runE2B(l, "files")
	if err != nil || len(ours) != 2 || len(bare) != 2 {
		return measured{}, err
	}
	return measured{
		value:    fmt.Sprintf("in %.0f MB/s, out %.0f MB/s; %.2f and %.2f × bare", ours[0]/1e6, ours[1]/1e6, ours[0]/bare[0], ours[1]/bare[1]),
		baseline: fmt.Sprintf("a server without files: in %.0f MB/s, out %.0f MB/s", bare[0]/1e6, bare[1]/1e6),
		kept:     min(ours[0], ours[1]) >= 500e6,
	}, nil
}

// e2bIdle measures the daemon's memory with a thousand connections of the SDK, each of which
// follows a command that says nothing.
func e2bIdle(l *lab) (measured, error) {
	ours, before, err := runE2B(l, "idle")
	if err != nil || len(ours) != 1 || len(before) != 1 {
		return measured{}, err
	}
	return measured{
		value:    fmt.Sprintf("%.1f MiB, %.1f KiB for each connection", mib(int64(ours[0])), (ours[0]-before[0])/1024/e2bIdleStreams),
		baseline: fmt.Sprintf("the daemon with one sandbox: %.1f MiB", mib(int64(before[0]))),
		kept:     ours[0] <= 100<<20,
	}, nil
}
