package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// executor is a running `sandbar executor`.
type executor struct {
	cmd              *exec.Cmd
	addr, proxy, dir string
	client           *http.Client
}

// startExecutor starts an executor whose sandbox has enough disk for the measured files.
func startExecutor(path string) (*executor, error) {
	var addrs []string
	for range 2 {
		addr, err := freeAddress()
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	dir, err := os.MkdirTemp("", "sandbar-bench-")
	if err != nil {
		return nil, err
	}
	x := &executor{addr: addrs[0], proxy: addrs[1], dir: dir,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}}
	x.cmd = exec.Command(path, "executor", "--memory", "4GiB", "--disk", "3GiB")
	x.cmd.Env = append(os.Environ(), "SANDBOX_SECRET=bench-secret-bench", "LOG_LEVEL=ERROR", "PORT="+port(x.addr), "PROXY_PORT="+port(x.proxy),
		"SANDBAR_STATE_DIR="+dir+"/state", "SANDBAR_RUNTIME_DIR="+dir+"/run", "SANDBAR_LIMITS_MAX_MEMORY=4GiB")
	x.cmd.Stderr = os.Stderr
	if err := x.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get("http://" + x.addr + "/health"); err == nil {
			r.Body.Close()
			return x, nil
		}
	}
	x.stop()
	return nil, errors.New("the executor did not answer within 20 s")
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

func (x *executor) stop() {
	x.client.CloseIdleConnections()
	x.cmd.Process.Signal(syscall.SIGTERM)
	x.cmd.Wait()
	os.RemoveAll(x.dir)
}

func (x *executor) status() string { return fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid) }

// request sends a request. The caller closes the response's body.
func (x *executor) request(method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequest(method, "http://"+x.addr+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer bench-secret-bench")
	resp, err := x.client.Do(r)
	if err == nil && resp.StatusCode > 299 {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	return resp, err
}

// ask posts a JSON body and decodes the answer.
func (x *executor) ask(path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := x.request(http.MethodPost, path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(answer)
}

// run runs a command, which must succeed.
func (x *executor) run(cmd string) error {
	var answer struct {
		Code   int
		Stderr string
	}
	if err := x.ask("/run", map[string]any{"cmd": cmd}, &answer); err != nil {
		return err
	}
	if answer.Code != 0 {
		return fmt.Errorf("%s: exit code %d: %s", cmd, answer.Code, answer.Stderr)
	}
	return nil
}

func executorRun(l *lab) (measured, error) {
	x, err := startExecutor(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	ours, bare, err := interleave(300, func() error { return x.run("true") }, command("/bin/sh", "-c", "true"))
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String(), baseline: "bare sh -c true: " + bare.String(), kept: ours.quantile(0.5) <= 3*time.Millisecond}, nil
}

// printed is the output of the streaming benchmarks: a GiB in lines of this many bytes, line ends
// included.
const (
	printed = 1 << 30
	lineLen = 1024
)

var printLines = fmt.Sprintf("line=$(head -c %d /dev/zero | tr '\\0' x); yes $line | head -c %d", lineLen-1, printed)

func executorSSE(l *lab) (measured, error) {
	x, err := startExecutor(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	before := field(x.status(), "VmRSS:")
	began := time.Now()
	b, _ := json.Marshal(map[string]any{"cmd": printLines})
	resp, err := x.request(http.MethodPost, "/run_streaming", bytes.NewReader(b))
	if err != nil {
		return measured{}, err
	}
	defer resp.Body.Close()
	lines, complete, err := countEvents(resp.Body)
	took := time.Since(began)
	if err != nil || lines != printed/lineLen || !complete {
		return measured{}, fmt.Errorf("%v; %d lines of %d arrived, complete: %v", err, lines, printed/lineLen, complete)
	}
	began = time.Now()
	if err := exec.Command("/bin/sh", "-c", "{ "+printLines+"; } | wc -c").Run(); err != nil {
		return measured{}, err
	}
	bare := time.Since(began)
	rate := printed / 1e6 / took.Seconds()
	return measured{
		value: fmt.Sprintf("%.0f MB/s of the program's output, %d lines, none lost; the executor grew by %.1f MiB at most",
			rate, lines, mib(field(x.status(), "VmHWM:")-before)),
		baseline: fmt.Sprintf("the same program into a pipe: %.0f MB/s", printed/1e6/bare.Seconds()),
		kept:     rate >= 300,
	}, nil
}

// countEvents counts output events without decoding them, like a fast client.
func countEvents(r io.Reader) (lines int, complete bool, err error) {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		b, err := in.ReadSlice('\n')
		if err == io.EOF {
			return lines, complete, nil
		}
		if err != nil {
			return lines, complete, err
		}
		switch {
		case bytes.HasPrefix(b, []byte(`data: {"stream":`)):
			lines++
		case bytes.HasPrefix(b, []byte("event: complete")):
			complete = true
		}
	}
}

func executorFiles(l *lab) (measured, error) {
	const size = 1 << 30
	x, err := startExecutor(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	before := field(x.status(), "VmRSS:")
	var in, out, bareTimes times
	for range 3 {
		began := time.Now()
		resp, err := x.request(http.MethodPut, "/files?path=/tmp/big", io.LimitReader(zeros{}, size))
		if err != nil {
			return measured{}, err
		}
		resp.Body.Close()
		in = append(in, time.Since(began))
		began = time.Now()
		resp, err = x.request(http.MethodGet, "/files?path=/tmp/big", nil)
		if err != nil {
			return measured{}, err
		}
		n, err := io.CopyBuffer(onlyWrites{io.Discard}, resp.Body, make([]byte, 1<<20))
		resp.Body.Close()
		if err != nil || n != size {
			return measured{}, fmt.Errorf("%d bytes came back: %w", n, err)
		}
		out = append(out, time.Since(began))
		bare, err := loopback(size)
		if err != nil {
			return measured{}, err
		}
		bareTimes = append(bareTimes, bare)
	}
	rate := func(t times) float64 { return size / 1e9 / least(t).Seconds() }
	return measured{
		value:    fmt.Sprintf("in %.2f GB/s, out %.2f GB/s; the executor grew by %.1f MiB at most", rate(in), rate(out), mib(field(x.status(), "VmHWM:")-before)),
		baseline: fmt.Sprintf("a TCP connection over loopback: %.2f GB/s", rate(bareTimes)),
		kept:     rate(in) >= 1 && rate(out) >= 1,
	}, nil
}

func least(t times) time.Duration {
	low := t[0]
	for _, d := range t {
		low = min(low, d)
	}
	return low
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// onlyWrites hides the optional interfaces that io.Copy uses.
type onlyWrites struct{ io.Writer }

// loopback times the transfer of size bytes over a loopback connection.
func loopback(size int64) (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.CopyBuffer(onlyWrites{c}, io.LimitReader(zeros{}, size), make([]byte, 1<<20))
			c.Close()
		}
	}()
	return drain(l.Addr().String(), size)
}

// drain times how long a server takes to send size bytes and close.
func drain(addr string, size int64) (time.Duration, error) {
	began := time.Now()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	n, err := io.CopyBuffer(onlyWrites{io.Discard}, onlyReads{c}, make([]byte, 1<<20))
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes came, want %d", n, size)
	}
	return time.Since(began), err
}

// onlyReads hides the optional interfaces that io.Copy uses.
type onlyReads struct{ io.Reader }

// sender sends size bytes to each connection to a port.
const sender = `import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
print("up", flush=True)
block = bytes(1 << 20)
while True:
    c, _ = s.accept()
    for _ in range(int(sys.argv[2]) >> 20):
        c.sendall(block)
    c.close()
`

func executorProxy(l *lab) (measured, error) {
	const size = 1 << 30
	x, err := startExecutor(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	// The same program runs in the sandbox and, as the baseline, on the host.
	file := filepath.Join(x.dir, "sender.py")
	if err := os.WriteFile(file, []byte(sender), 0o600); err != nil {
		return measured{}, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return measured{}, err
	}
	direct := free.Addr().String()
	free.Close()
	host := exec.Command(python, file, port(direct), fmt.Sprint(size))
	up, err := host.StdoutPipe()
	if err != nil {
		return measured{}, err
	}
	if err := host.Start(); err != nil {
		return measured{}, err
	}
	defer host.Wait()
	defer host.Process.Kill()
	if _, err := up.Read(make([]byte, 2)); err != nil {
		return measured{}, err
	}
	if err := x.serve(size); err != nil {
		return measured{}, err
	}
	var with, without times
	for range 5 {
		a, err := drain(x.proxy, size)
		if err != nil {
			return measured{}, err
		}
		b, err := drain(direct, size)
		if err != nil {
			return measured{}, err
		}
		with, without = append(with, a), append(without, b)
	}
	share := least(without).Seconds() / least(with).Seconds()
	return measured{
		value:    fmt.Sprintf("%.2f × direct: %.2f GB/s", share, size/1e9/least(with).Seconds()),
		baseline: fmt.Sprintf("the same server without sandbox and proxy: %.2f GB/s", size/1e9/least(without).Seconds()),
		kept:     share >= 0.9,
	}, nil
}

// serve starts sender in the sandbox and binds its port.
func (x *executor) serve(size int64) error {
	var answer map[string]any
	if err := x.ask("/write_file", map[string]any{"path": "/tmp/sender.py", "content": sender}, &answer); err != nil {
		return err
	}
	if err := x.ask("/start_process", map[string]any{"cmd": fmt.Sprintf("exec %s /tmp/sender.py 8080 %d", python, size)}, &answer); err != nil {
		return err
	}
	if err := x.ask("/bind_port", map[string]any{"port": "8080"}, &answer); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := drain(x.proxy, size); err == nil {
			return nil
		}
	}
	return errors.New("the server in the sandbox does not answer")
}

// executorMany runs commands over many connections at once.
func executorMany(l *lab) (measured, error) {
	const connections, rounds = 200, 3
	x, err := startExecutor(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	began := time.Now()
	var all sync.WaitGroup
	errs := make(chan error, connections*rounds)
	for range connections {
		all.Go(func() {
			for range rounds {
				if err := x.run("true"); err != nil {
					errs <- err
				}
			}
		})
	}
	all.Wait()
	close(errs)
	if n := len(errs); n > 0 {
		return measured{}, fmt.Errorf("%d of %d commands failed: %w", n, connections*rounds, <-errs)
	}
	took := time.Since(began)
	return measured{
		value: fmt.Sprintf("%d commands over %d connections, all right, %.0f a second", connections*rounds, connections, connections*rounds/took.Seconds()),
		kept:  true,
	}, nil
}

// executorStall leaves the output streams of a command and of a process unread for a minute, while
// both print a GB. It measures the effect on other clients.
func executorStall(l *lab) (measured, error) {
	x, err := startExecutor(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	alone, err := sample(100, func() error { return x.run("true") })
	if err != nil {
		return measured{}, err
	}
	before := field(x.status(), "VmRSS:")
	var started struct{ ID string }
	if err := x.ask("/start_process", map[string]any{"cmd": printLines}, &started); err != nil {
		return measured{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPost, "/run_streaming", `{"cmd":` + quote(printLines) + `}`},
		{http.MethodGet, "/process_logs_streaming?id=" + started.ID, ""},
	} {
		c, err := x.unread(ctx, r.method, r.path, r.body)
		if err != nil {
			return measured{}, err
		}
		defer c.Close()
	}
	time.Sleep(time.Minute)
	others, err := sample(100, func() error { return x.run("true") })
	if err != nil {
		return measured{}, err
	}
	grown := field(x.status(), "VmHWM:") - before
	return measured{
		value:    fmt.Sprintf("%+.1f MiB at its highest; others' /run meanwhile: %v", mib(grown), others),
		baseline: "/run before: " + alone.String(),
		kept:     grown < 64<<20,
	}, nil
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// unread sends a request and does not read the response.
func (x *executor) unread(ctx context.Context, method, path, body string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", x.addr)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(c, strings.NewReader(fmt.Sprintf(
		"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bench-secret-bench\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)))
	return c, err
}
