package escapesuite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
)

// previewCases are cases 92 and 95: data that programs send to clients through the daemon.
func previewCases() []Case {
	return []Case{
		daemonCase("92-preview-answers", "a preview page with early, hostile and endless responses", previewAnswers),
		daemonCase("95-sparse-files", "the largest possible sparse file through the file API", sparseFiles),
	}
}

// run runs a command with the executor protocol and returns its standard output.
func (d *daemon) run(ctx context.Context, id, command string) (string, error) {
	a, err := d.request(ctx, "POST", "/sandboxes/"+id+"/executor/run", map[string]string{"cmd": command})
	if err != nil {
		return "", err
	}
	var got struct {
		Stdout, Stderr string
		Code           int
	}
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != 200 || got.Code != 0 {
		return "", fmt.Errorf("the command in the sandbox: status %d: %.300s", a.status, a.body)
	}
	return got.Stdout, nil
}

// inside is part of all data that must not reach a client.
const inside = "x-from-inside"

// hostileServer is a Python program that prints its port and serves it in the background. Each path
// has another response.
const hostileServer = `import os, socket
early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\nX-Early: x-from-inside\r\n\r\n"
final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\npage"
answers = {
    "early": early + final, "several": early * 20 + final, "endless": early * 3000 + final,
    "processing": b"HTTP/1.1 102 Processing\r\nX-Early: x-from-inside\r\n\r\n" + final,
    "old": b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\npage",
    "headers": b"HTTP/1.1 200 OK\r\nConnection: close, Content-Security-Policy\r\nContent-Security-Policy: sandbox allow-same-origin\r\n"
        b"Service-Worker-Allowed: /x-from-inside\r\nClear-Site-Data: \"x-from-inside\"\r\nStrict-Transport-Security: x-from-inside\r\n"
        b"Alt-Svc: x-from-inside\r\nNEL: x-from-inside\r\nReport-To: x-from-inside\r\nAccess-Control-Allow-Origin: x-from-inside\r\n"
        b"Refresh: 0; url=x-from-inside\r\nWWW-Authenticate: Basic realm=x-from-inside\r\nSet-Cookie: a=b; Domain=x-from-inside\r\nContent-Length: 4\r\n\r\npage",
    "trailers": b"HTTP/1.1 200 OK\r\nTrailer: Set-Cookie\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\nSet-Cookie: a=x-from-inside\r\n\r\n",
    "more": final + b"HTTP/1.1 200 OK\r\nX-Second: x-from-inside\r\nContent-Length: 0\r\n\r\n",
    "away": b"HTTP/1.1 307 Away\r\nLocation: /%2e%2e/%2e%2e/sandboxes?x-from-inside\r\nContent-Length: 0\r\n\r\n",
}
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
if os.fork(): os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
while True:
    c, _ = s.accept()
    try:
        c.sendall(answers[c.recv(65536).split(b" ")[1].decode().strip("/")])
    except (OSError, LookupError):
        pass
    c.close()
`

func previewAnswers(ctx context.Context, s *Suite, d *daemon) error {
	switch {
	case s.Driver.Caps().Boundary == driver.BoundaryWasm:
		return notRun("sandboxes of this driver have no ports")
	case s.Python == "":
		return notRun("there is no Python in the sandbox")
	}
	id, err := d.create(ctx, "{}")
	if err != nil {
		return err
	}
	if a, err := d.request(ctx, "POST", "/sandboxes/"+id+"/executor/write_file", map[string]string{"path": "server.py", "content": hostileServer}); err != nil || a.status != 200 {
		return fmt.Errorf("writing the server: status %d, %w", a.status, err)
	}
	port, err := d.run(ctx, id, s.Python+" server.py")
	if err != nil {
		return err
	}
	if a, err := d.request(ctx, "POST", "/sandboxes/"+id+"/executor/bind_port", map[string]string{"port": strings.TrimSpace(port)}); err != nil || a.status != 200 {
		return fmt.Errorf("binding port %q: status %d, %w", port, a.status, err)
	}
	for _, path := range []string{"early", "several", "endless", "processing", "old", "headers", "trailers", "more", "away"} {
		said, err := d.page(ctx, "/r/"+id+"/"+path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		head, _, _ := strings.Cut(said, "\r\n\r\n")
		policies := 0
		for line := range strings.SplitSeq(head, "\r\n") {
			value, is := strings.CutPrefix(line, "Content-Security-Policy: ")
			if policies++; !is {
				policies--
			} else if policies == 1 && (!strings.HasPrefix(value, "sandbox ") && !strings.HasPrefix(value, "default-src 'none'") || strings.Contains(value, "allow-same-origin")) {
				return escaped("%s: the page has the daemon's origin: %s", path, value)
			}
		}
		switch {
		case strings.HasPrefix(said, "HTTP/1.1 1"):
			return escaped("%s: the daemon forwarded an early response", path)
		case policies == 0, !strings.Contains(head, "X-Content-Type-Options: nosniff"):
			return escaped("%s: the page is not confined: %.300q", path, head)
		case strings.Contains(said, inside):
			return escaped("%s: the daemon forwarded data that affects its own origin: %.1000q", path, said)
		}
	}
	if log, _ := d.log.look(); strings.Contains(log, inside) {
		return escaped("the daemon's log contains data of a program")
	}
	return nil
}

// page returns the complete response for a path, with its header.
func (d *daemon) page(ctx context.Context, path string) (string, error) {
	c, err := d.raw(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", path, d.address(), d.token)
	all, err := io.ReadAll(io.LimitReader(c, 1<<20))
	return string(all), err
}

// endless is the size in bytes from which a body counts as endless. request reads no more than
// that.
const endless = 16 << 20

func sparseFiles(ctx context.Context, s *Suite, d *daemon) error {
	id, err := d.create(ctx, "{}")
	if err != nil {
		return err
	}
	size, err := d.run(ctx, id, "truncate -s 4E hole || truncate -s 64T hole || truncate -s 15T hole || : >hole; stat -c %s hole")
	if err != nil {
		return notRun("the sandbox cannot create such a file: %v", err)
	}
	if len(strings.TrimSpace(size)) < len("15000000000000") {
		return nil // the sandbox's disk bounds the size of files, holes included
	}
	before := d.memory()
	executor := "/sandboxes/" + id + "/executor"
	for what, ask := range map[string]func() (answer, error){
		"download": func() (answer, error) {
			return d.request(ctx, "GET", executor+"/files?path="+url.QueryEscape("hole"), nil)
		},
		"read as text": func() (answer, error) {
			return d.request(ctx, "POST", executor+"/read_file", map[string]string{"path": "hole"})
		},
		"size of it": func() (answer, error) { return d.request(ctx, "HEAD", executor+"/files?path=hole", nil) },
	} {
		a, err := ask()
		switch {
		case len(a.body) >= endless:
			return escaped("%s: the daemon sent %d bytes, and would send %s", what, len(a.body), strings.TrimSpace(size))
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case a.status == 200 && !strings.Contains(string(a.body), "holes included"):
			return escaped("%s: the daemon did not refuse it: %.200q", what, a.body)
		}
	}
	if grown := d.memory() - before; grown > 256<<20 {
		return escaped("the daemon's memory grew by %d MiB", grown>>20)
	}
	return nil
}
