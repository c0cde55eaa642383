package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// live is a daemon with one sandbox, and a client.
type live struct {
	*client.Client
	daemon *daemon
	id     string
	ctx    context.Context
	cancel context.CancelFunc
}

// newLive starts a daemon and creates a sandbox. All of it ends after 3 minutes at the latest.
func newLive(l *lab) (*live, error) {
	d, err := startDaemon(l.sandbar, "SANDBAR_TEMPLATES=off", "SANDBAR_LOG_LEVEL=error", "SANDBAR_ALLOW_DEGRADED=true")
	if err != nil {
		return nil, err
	}
	x := &live{daemon: d}
	x.ctx, x.cancel = context.WithTimeout(context.Background(), 3*time.Minute)
	if x.Client, err = client.New("http://"+d.addr, d.token); err != nil {
		x.close()
		return nil, err
	}
	s, err := x.Create(x.ctx, wire.Create{})
	if err != nil {
		x.close()
		return nil, err
	}
	x.id = string(s.ID)
	return x, nil
}

func (x *live) close() {
	if x.Client != nil {
		x.Close()
	}
	x.cancel()
	x.daemon.stop()
}

// typing is a command that runs until the end of the benchmark. What is written to it is its input.
type typing struct {
	io.Writer
	out *io.PipeReader
}

// start starts a command in the sandbox.
func (x *live) start(e wire.Exec) *typing {
	in, keys := io.Pipe()
	out, shown := io.Pipe()
	go func() {
		_, err := x.Exec(x.ctx, x.id, e, client.Streams{Stdin: in, Stdout: shown, Stderr: shown})
		if err == nil {
			err = io.EOF
		}
		in.CloseWithError(err)
		shown.CloseWithError(err)
	}()
	return &typing{keys, out}
}

// exchange writes text and waits for n bytes of output.
func (t *typing) exchange(text string, n int) error {
	if _, err := io.WriteString(t.Writer, text); err != nil {
		return err
	}
	_, err := io.ReadFull(t.out, make([]byte, n))
	return err
}

// watchEvent measures the time from a line of input of a program, which then writes a file, to the
// event of the watch. The baseline is the program's answer to a line.
func watchEvent(l *lab) (measured, error) {
	x, err := newLive(l)
	if err != nil {
		return measured{}, err
	}
	defer x.close()
	w, err := x.Watch(x.ctx, x.id, sandbar.DefaultDir, false)
	if err != nil {
		return measured{}, err
	}
	defer w.Close()
	program := x.start(wire.Exec{Args: []string{"sh", "-c", "mkdir made; echo; while read -r line; do rm -rf made; read -r line; mkdir made; done"}})
	if err := program.exchange("", 1); err != nil {
		return measured{}, err
	}
	if _, err := w.Next(); err != nil { // the first directory
		return measured{}, err
	}
	event := func() error {
		if _, err := io.WriteString(program, "\n"); err != nil {
			return err
		}
		_, err := w.Next()
		return err
	}
	answers := x.start(wire.Exec{Args: []string{"cat"}})
	ours, bare, err := interleave(500, event, func() error { return answers.exchange("\n", 1) })
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String(), baseline: "an answer of `cat` over the same connection: " + bare.String(), kept: ours.quantile(0.5) <= 5*time.Millisecond}, nil
}

// webServer answers every request with two bytes.
const webServer = `import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`

// previewRequest measures a request to a preview over a kept connection. The baseline is the same
// server on the host.
func previewRequest(l *lab) (measured, error) {
	x, err := newLive(l)
	if err != nil {
		return measured{}, err
	}
	defer x.close()
	direct, err := freeAddress()
	if err != nil {
		return measured{}, err
	}
	host := exec.CommandContext(x.ctx, python, "-c", webServer, port(direct))
	if err := host.Start(); err != nil {
		return measured{}, err
	}
	defer host.Wait()
	defer host.Process.Kill()
	x.start(wire.Exec{Args: []string{python, "-c", webServer, "8000"}})
	p, err := x.Preview(x.ctx, x.id, 8000, true)
	if err != nil {
		return measured{}, err
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return measured{}, err
	}
	request := func(address, host string) func() error {
		return func() error {
			r, err := http.NewRequestWithContext(x.ctx, http.MethodGet, "http://"+address+"/", nil)
			if err != nil {
				return err
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s, %w", host, resp.Status, err)
			}
			return nil
		}
	}
	previewed, bare := request(x.daemon.addr, u.Host), request(direct, direct)
	for _, f := range []func() error{previewed, bare} {
		for f() != nil { // until the server listens
			if x.ctx.Err() != nil {
				return measured{}, x.ctx.Err()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	ours, without, err := interleave(1000, previewed, bare)
	if err != nil {
		return measured{}, err
	}
	cost := ours.quantile(0.5) - without.quantile(0.5)
	return measured{value: fmt.Sprintf("%+.2f ms; %v", ms(cost), ours), baseline: "the same server without sandbox and daemon: " + without.String(), kept: cost <= time.Millisecond}, nil
}

// terminalEcho measures the time from a key to its echo by a program at a terminal.
func terminalEcho(l *lab) (measured, error) {
	x, err := newLive(l)
	if err != nil {
		return measured{}, err
	}
	defer x.close()
	program := x.start(wire.Exec{Args: []string{"sh", "-c", "stty raw -echo; echo; exec cat"}, Terminal: &wire.TerminalSize{Rows: 24, Cols: 80}})
	if err := program.exchange("", 1); err != nil {
		return measured{}, err
	}
	ours, bare, err := interleave(1000, func() error { return program.exchange("x", 1) }, command("/bin/true"))
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String(), baseline: "bare /bin/true: " + bare.String(), kept: ours.quantile(0.5) <= time.Millisecond}, nil
}

// terminalOutputSize is the output of terminalOutput, in bytes.
const terminalOutputSize = 100_000_000

// terminalProgram is the program of terminalOutput. It prints a line, and a file for each line of
// input.
func terminalProgram(dir string) []string {
	return []string{"sh", "-c", fmt.Sprintf("stty raw -echo; cd %s; yes | head -c %d > big; echo; while read -r line; do cat big; done; rm big", dir, terminalOutputSize)}
}

// terminalOutput measures the output of a program at a terminal. The baseline is the same program
// at a terminal of the host.
func terminalOutput(l *lab) (measured, error) {
	x, err := newLive(l)
	if err != nil {
		return measured{}, err
	}
	defer x.close()
	inside := x.start(wire.Exec{Args: terminalProgram(sandbar.DefaultDir), Terminal: &wire.TerminalSize{Rows: 24, Cols: 80}})
	host, err := bareTerminal(x.ctx, terminalProgram(x.daemon.dir))
	if err != nil {
		return measured{}, err
	}
	defer host.Close()
	pull := func(keys io.Writer, out io.Reader) func() error {
		return func() error {
			if _, err := io.WriteString(keys, "\n"); err != nil {
				return err
			}
			_, err := io.CopyN(io.Discard, out, terminalOutputSize)
			return err
		}
	}
	for _, out := range []io.Reader{inside.out, host} {
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			return measured{}, err
		}
	}
	var ours, bare times
	for range 3 {
		for _, m := range []struct {
			run func() error
			to  *times
		}{{pull(inside, inside.out), &ours}, {pull(host, host), &bare}} {
			began := time.Now()
			if err := m.run(); err != nil {
				return measured{}, err
			}
			*m.to = append(*m.to, time.Since(began))
		}
	}
	rate := func(t times) float64 { return terminalOutputSize / 1e6 / least(t).Seconds() }
	return measured{value: fmt.Sprintf("%.0f MB/s", rate(ours)), baseline: fmt.Sprintf("at a terminal of the host: %.0f MB/s", rate(bare)), kept: rate(ours) >= 50}, nil
}

// bareTerminal starts a program at a new terminal of the host and returns the terminal's other end.
// The end of ctx kills the program.
func bareTerminal(ctx context.Context, args []string) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, err
	}
	defer slave.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		master.Close()
		return nil, err
	}
	go cmd.Wait()
	return master, nil
}
