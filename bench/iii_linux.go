package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// iiiLab is a daemon with an iii engine, and a minimal client.
type iiiLab struct {
	*daemon
	url   string
	image string // the sandboxes' image, for the output
	ws    *websocket.Conn

	mu      sync.Mutex
	next    int
	pending map[string]chan iiiResult
	broken  error
}

// iiiResult is the result of a call.
type iiiResult struct {
	Type   string
	ID     string `json:"invocation_id"`
	Result json.RawMessage
	Error  *struct{ Code, Message string }
}

// startIII starts a daemon. Its image "python" is the lab's or, without one, the host's own
// programs.
func startIII(l *lab, env ...string) (*iiiLab, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sandbar-bench-")
	if err != nil {
		return nil, err
	}
	x := &iiiLab{url: "ws://" + address, image: "of the host", pending: map[string]chan iiiResult{}}
	if _, err := os.Stat(l.image); err == nil {
		x.image = "of a Debian image"
		if err := l.importImage(dir); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	// The benchmarks measure new sandboxes, unless env says otherwise.
	env = append([]string{"SANDBAR_TEMPLATES=off"}, env...)
	x.daemon, err = startDaemonIn(l.sandbar, dir, append(env, "SANDBAR_III_LISTEN="+address, "SANDBAR_III_IMAGE_ALLOWLIST=python",
		"SANDBAR_III_MAX_CONCURRENT_SANDBOXES=400", "SANDBAR_LOG_LEVEL=error")...)
	if err != nil {
		return nil, err
	}
	if err := x.connect(); err != nil {
		x.stop()
		return nil, err
	}
	return x, nil
}

// connect connects the client.
func (x *iiiLab) connect() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if x.ws, _, err = websocket.Dial(ctx, x.url, nil); err != nil {
		return err
	}
	x.ws.SetReadLimit(-1)
	go x.read()
	return nil
}

func (l *lab) importImage(dir string) error {
	cmd := exec.Command(l.sandbar, "images", "import", l.image, "python")
	cmd.Env = append(os.Environ(), "SANDBAR_STATE_DIR="+dir+"/state", "SANDBAR_RUNTIME_DIR="+dir+"/run")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing the image: %w: %s", err, out)
	}
	return nil
}

func (x *iiiLab) stop() {
	if x.ws != nil {
		x.ws.CloseNow()
	}
	x.daemon.stop()
}

// read passes results to the waiting calls.
func (x *iiiLab) read() {
	for {
		_, b, err := x.ws.Read(context.Background())
		var r iiiResult
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		x.mu.Lock()
		if err != nil {
			x.broken = err
			for _, done := range x.pending {
				close(done)
			}
			x.pending = nil
			x.mu.Unlock()
			return
		}
		if done := x.pending[r.ID]; done != nil && r.Type == "invocationresult" {
			delete(x.pending, r.ID)
			done <- r
		}
		x.mu.Unlock()
	}
}

// begin sends a call. The result arrives on the channel, which is closed if the connection breaks.
func (x *iiiLab) begin(function string, data any) (chan iiiResult, error) {
	x.mu.Lock()
	if x.broken != nil {
		x.mu.Unlock()
		return nil, x.broken
	}
	x.next++
	id, done := strconv.Itoa(x.next), make(chan iiiResult, 1)
	x.pending[id] = done
	x.mu.Unlock()
	b, err := json.Marshal(map[string]any{"type": "invokefunction", "invocation_id": id, "function_id": function, "data": data})
	if err != nil {
		return nil, err
	}
	return done, x.ws.Write(context.Background(), websocket.MessageText, b)
}

// call makes a call and waits for its result. The call must succeed.
func (x *iiiLab) call(function string, data, result any) error {
	done, err := x.begin(function, data)
	if err != nil {
		return err
	}
	return finish(function, done, result)
}

func finish(function string, done chan iiiResult, result any) error {
	r, ok := <-done
	switch {
	case !ok:
		return fmt.Errorf("%s: the connection broke", function)
	case r.Error != nil:
		return fmt.Errorf("%s: %s: %s", function, r.Error.Code, r.Error.Message)
	}
	return json.Unmarshal(r.Result, result)
}

// object is a JSON object.
type object = map[string]any

// made is the result of sandbox::create.
type made struct {
	ID string `json:"sandbox_id"`
}

func (x *iiiLab) create(more object) (id string, err error) {
	data := object{"image": "python"}
	for k, v := range more {
		data[k] = v
	}
	var r made
	err = x.call("sandbox::create", data, &r)
	return r.ID, err
}

func (x *iiiLab) remove(id string) error {
	return x.call("sandbox::stop", object{"sandbox_id": id, "wait": true}, new(any))
}

// sh runs a script, which must succeed.
func (x *iiiLab) sh(id, script string) error {
	var r struct {
		Success bool
		Stderr  string
	}
	err := x.call("sandbox::exec", object{"sandbox_id": id, "argv": []string{"/bin/sh", "-c", script}}, &r)
	if err == nil && !r.Success {
		err = fmt.Errorf("%s: %s", script, r.Stderr)
	}
	return err
}

// bareTrue runs a program without a sandbox, as the baseline.
func bareTrue() error { return exec.Command("/usr/bin/true").Run() }

func iiiCreate(l *lab) (measured, error) {
	x, err := startIII(l)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	var ours, bare times
	for i := range 203 {
		began := time.Now()
		id, err := x.create(nil)
		took := time.Since(began)
		if err == nil {
			err = x.remove(id)
		}
		began = time.Now()
		if err == nil {
			err = bareTrue()
		}
		if err != nil {
			return measured{}, err
		}
		if i >= 3 { // the first runs warm up
			ours, bare = append(ours, took), append(bare, time.Since(began))
		}
	}
	sortTimes(ours, bare)
	return measured{value: ours.String() + ", " + x.image, baseline: "bare true: " + bare.String(), kept: ours.quantile(0.5) <= 5*time.Millisecond}, nil
}

func iiiCycle(l *lab) (measured, error) {
	x, err := startIII(l)
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	cycle := func() error {
		id, err := x.create(nil)
		if err != nil {
			return err
		}
		return errors.Join(x.call("sandbox::exec", object{"sandbox_id": id, "cmd": "true"}, new(any)), x.remove(id))
	}
	ours, bare, err := interleave(200, cycle, bareTrue)
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String() + ", " + x.image, baseline: "bare true: " + bare.String(), kept: ours.quantile(0.5) <= 10*time.Millisecond}, nil
}

func iiiBurst(l *lab) (measured, error) {
	const many = 100
	x, err := startIII(l, "SANDBAR_MAX_SANDBOXES=200")
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	var all times
	for range 5 {
		began := time.Now()
		ids, err := x.createMany(many)
		all = append(all, time.Since(began))
		for _, id := range ids {
			err = errors.Join(err, x.remove(id))
		}
		if err != nil {
			return measured{}, err
		}
	}
	began := time.Now()
	for range many {
		if err := bareTrue(); err != nil {
			return measured{}, err
		}
	}
	bare := time.Since(began)
	sortTimes(all)
	return measured{
		value:    fmt.Sprintf("%.0f ms, %.0f ms at worst (%d times %d), %s", ms(all.quantile(0.5)), ms(all.quantile(1)), len(all), many, x.image),
		baseline: fmt.Sprintf("%d bare true one after the other: %.0f ms", many, ms(bare)),
		kept:     all.quantile(0.5) <= 500*time.Millisecond,
	}, nil
}

// createMany makes sandboxes concurrently.
func (x *iiiLab) createMany(n int) (ids []string, err error) {
	var calls []chan iiiResult
	for range n {
		done, err := x.begin("sandbox::create", object{"image": "python"})
		if err != nil {
			return nil, err
		}
		calls = append(calls, done)
	}
	for _, done := range calls {
		var r made
		if e := finish("sandbox::create", done, &r); e != nil {
			err = errors.Join(err, e)
			continue
		}
		ids = append(ids, r.ID)
	}
	return ids, err
}

// iiiIdle measures the agents' memory and the daemon's growth.
func iiiIdle(l *lab) (measured, error) {
	const many = 300
	x, err := startIII(l, "SANDBAR_MAX_SANDBOXES=400")
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	// The first sandbox is not measured: it makes what all share.
	one, err := x.create(nil)
	if err == nil {
		err = errors.Join(x.sh(one, "true"), x.remove(one))
	}
	if err != nil {
		return measured{}, err
	}
	pid := x.cmd.Process.Pid
	own := func() int64 { return field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:") }
	before := own()
	ids, err := x.createMany(many)
	for _, id := range ids {
		err = errors.Join(err, x.sh(id, "true"))
	}
	if err != nil {
		return measured{}, err
	}
	time.Sleep(5 * time.Second) // until they have settled
	agents, err := agentsOf(pid)
	if err != nil {
		return measured{}, err
	}
	n := int64(len(agents))
	if n < many {
		return measured{}, fmt.Errorf("found %d agents of %d sandboxes", n, many)
	}
	var sum int64
	for _, pid := range agents {
		sum += field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	}
	grown := (own() - before) / n
	return measured{
		value: fmt.Sprintf("%.2f MiB each of %d, %d of them kept ready, and %.2f MiB of the daemon, %s", mib(sum/n), n, n-many, mib(grown), x.image),
		kept:  sum/n+grown <= 2<<20,
	}, nil
}

// frame is the payload of one message of the SDKs, in bytes.
const frame = 64 << 10

func iiiFiles(l *lab) (measured, error) {
	const size = 256 << 20
	x, err := startIII(l, "SANDBAR_LIMITS_DEFAULT_DISK=1GiB")
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	id, err := x.create(object{"memory_mb": 1024})
	if err != nil {
		return measured{}, err
	}
	var in, out, bare times
	for range 5 {
		a, err := x.upload(id, "/tmp/big", size)
		if err != nil {
			return measured{}, err
		}
		b, err := x.download(id, "/tmp/big", size)
		if err != nil {
			return measured{}, err
		}
		c, err := loopback(size)
		if err != nil {
			return measured{}, err
		}
		in, out, bare = append(in, a), append(out, b), append(bare, c)
	}
	sortTimes(in, out, bare)
	rate := func(t times) float64 { return size / 1e6 / t.quantile(0.5).Seconds() }
	return measured{
		value:    fmt.Sprintf("in %.0f MB/s, out %.0f MB/s (median of %d, 256 MiB in frames of 64 KiB)", rate(in), rate(out), len(in)),
		baseline: fmt.Sprintf("a TCP connection over loopback: %.0f MB/s", rate(bare)),
		kept:     rate(in) >= 300 && rate(out) >= 300,
	}, nil
}

// iiiRef refers to one end of a channel.
type iiiRef struct {
	Channel   string `json:"channel_id"`
	Key       string `json:"access_key"`
	Direction string `json:"direction"`
}

// open opens one end of a channel.
func (x *iiiLab) open(r iiiRef, direction string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, x.url+"/ws/channels/"+r.Channel+"?key="+r.Key+"&dir="+direction, nil)
	if err == nil {
		ws.SetReadLimit(-1)
	}
	return ws, err
}

// upload times sandbox::fs::write through a channel, as in an SDK.
func (x *iiiLab) upload(id, path string, size int) (time.Duration, error) {
	began := time.Now()
	var refs struct{ Reader, Writer iiiRef }
	if err := x.call("engine::channels::create", object{"buffer_size": 64}, &refs); err != nil {
		return 0, err
	}
	done, err := x.begin("sandbox::fs::write", object{"sandbox_id": id, "path": path, "content": refs.Reader})
	if err != nil {
		return 0, err
	}
	ws, err := x.open(refs.Writer, "write")
	if err != nil {
		return 0, err
	}
	defer ws.CloseNow()
	piece := make([]byte, frame)
	for range size / frame {
		if err := ws.Write(context.Background(), websocket.MessageBinary, piece); err != nil {
			return 0, err
		}
	}
	if err := ws.Close(websocket.StatusNormalClosure, "stream_complete"); err != nil {
		return 0, err
	}
	var r struct {
		Written int `json:"bytes_written"`
	}
	if err := finish("sandbox::fs::write", done, &r); err != nil || r.Written != size {
		return 0, fmt.Errorf("%d bytes were written, want %d: %w", r.Written, size, err)
	}
	return time.Since(began), nil
}

// download times sandbox::fs::read through its channel.
func (x *iiiLab) download(id, path string, size int64) (time.Duration, error) {
	began := time.Now()
	var r struct{ Content iiiRef }
	if err := x.call("sandbox::fs::read", object{"sandbox_id": id, "path": path}, &r); err != nil {
		return 0, err
	}
	ws, err := x.open(r.Content, "read")
	if err != nil {
		return 0, err
	}
	defer ws.CloseNow()
	var n int64
	buf := make([]byte, frame)
	for {
		_, piece, err := ws.Reader(context.Background())
		if websocket.CloseStatus(err) != -1 {
			break
		}
		if err != nil {
			return 0, err
		}
		got, err := io.CopyBuffer(onlyWrites{io.Discard}, onlyReads{piece}, buf)
		if err != nil {
			return 0, err
		}
		n += got
	}
	if n != size {
		return 0, fmt.Errorf("%d bytes came, want %d", n, size)
	}
	return time.Since(began), nil
}

// grown is a tree of 100,000 files in 1,000 directories. One file matches.
const grown = `mkdir /tmp/t && cd /tmp/t && python3 - <<'END'
import os
for d in range(1000):
    os.mkdir(f"d{d}")
    for f in range(100):
        with open(f"d{d}/f{f}", "w") as out:
            out.write(f"some text\nof a few lines\nthat is {d} and {f}\n" * 5)
END`

func iiiGrep(l *lab) (measured, error) {
	x, err := startIII(l, "SANDBAR_LIMITS_DEFAULT_DISK=2GiB", "SANDBAR_LIMITS_DEFAULT_INODES=300000")
	if err != nil {
		return measured{}, err
	}
	defer x.stop()
	id, err := x.create(object{"memory_mb": 1024})
	if err == nil {
		err = x.sh(id, grown)
	}
	if err != nil {
		return measured{}, err
	}
	ours, theirs, err := interleave(5, func() error {
		var r struct{ Matches []struct{ Path string } }
		err := x.call("sandbox::fs::grep", object{"sandbox_id": id, "path": "/tmp/t", "pattern": "is 717 and 42"}, &r)
		if err == nil && (len(r.Matches) != 5 || r.Matches[0].Path != "/tmp/t/d717/f42") {
			err = fmt.Errorf("%d matches were found: %v", len(r.Matches), r.Matches)
		}
		return err
	}, func() error { return x.sh(id, "[ $(grep -rn 'is 717 and 42' /tmp/t | wc -l) = 5 ]") })
	if err != nil {
		return measured{}, err
	}
	return measured{
		value:    fmt.Sprintf("%.2f × grep -r: %v", ratio(ours, theirs), ours),
		baseline: "grep -rn in the same sandbox: " + theirs.String(),
		kept:     ratio(ours, theirs) <= 2,
	}, nil
}
