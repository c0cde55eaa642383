package escapesuite

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
)

// portCases are cases 52 and 53: connections to a sandbox's ports.
func portCases() []Case {
	return []Case{
		daemonCase("52-ports", "a tunnel to a sandbox's port that reaches the host or another sandbox", ports),
		daemonCase("53-previews", "a preview without a token, and with that of another sandbox", previews),
	}
}

// startService starts an HTTP server on the host's loopback that answers with a random secret. No
// tunnel to a sandbox may reach it.
func startService() (net.Listener, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	secret := rand.Text()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(secret)) }))
	}()
	return l, secret, nil
}

// tunnel connects to a port of a sandbox, sends an HTTP request, and returns the response.
func (d *daemon) tunnel(ctx context.Context, id, port string) (string, error) {
	c, err := d.raw(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "GET /sandboxes/%s/ports/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", id, port, d.address(), d.token)
	text := make([]byte, 4096)
	n, err := c.Read(text)
	if err != nil || !strings.HasPrefix(string(text[:n]), "HTTP/1.1 101") {
		return string(text[:n]), err
	}
	fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
	var all strings.Builder
	for all.Len() < 64<<10 {
		n, err := c.Read(text)
		all.Write(text[:n])
		if err != nil {
			break
		}
	}
	return all.String(), nil
}

func ports(ctx context.Context, s *Suite, d *daemon) error {
	if !s.Driver.Caps().PrivateNetwork {
		return notRun("the driver does not claim a private network for sandboxes")
	}
	l, secret, err := startService()
	if err != nil {
		return err
	}
	defer l.Close()
	id, err := d.create(ctx, "{}")
	if err != nil {
		return err
	}
	_, own, _ := net.SplitHostPort(l.Addr().String())
	_, api, _ := net.SplitHostPort(d.address())
	for _, port := range []string{own, api, "22", "0", "65536", "-1", "1e3", "0x50", own + "@127.0.0.1", "127.0.0.1:" + own, "%31"} {
		said, err := d.tunnel(ctx, id, port)
		switch {
		case strings.Contains(said, secret), strings.Contains(said, "HTTP/1.0 ") && port == api:
			return escaped("the sandbox's port %s is that of the host", port)
		case strings.HasPrefix(said, "HTTP/1.1 101"):
			return escaped("something answers at port %s of an empty sandbox", port)
		case err != nil && said == "":
			return fmt.Errorf("port %s: %w", port, err)
		}
	}
	return nil
}

func previews(ctx context.Context, s *Suite, d *daemon) error {
	if s.Driver.Caps().Boundary == driver.BoundaryWasm {
		return notRun("sandboxes of this driver have no ports")
	}
	mine, other := rand.Text(), rand.Text()
	id, err := d.create(ctx, map[string]string{"secret": mine})
	if err != nil {
		return err
	}
	if _, err := d.create(ctx, map[string]string{"secret": other}); err != nil {
		return err
	}
	as := func(token string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Authorization")
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}
	}
	for what, token := range map[string]string{"no token": "", "another's secret": other, "a guess": rand.Text()} {
		for _, path := range []string{"/r/" + id + "/", "/sandboxes/" + id + "/executor/health", "/sandboxes/" + id + "/ports/80", "/r/sb_" + strings.Repeat("a", 26) + "/"} {
			if err := d.refused(ctx, what+" at "+strings.Replace(path, id, "{id}", 1), "GET", path, nil, as(token), 401); err != nil {
				return err
			}
		}
	}
	// A sandbox's secret gives no access to the daemon.
	for _, path := range []string{"/sandboxes", "/metrics", "/ws", "/sandboxes/" + id} {
		if err := d.refused(ctx, "a sandbox's secret at "+strings.Replace(path, id, "{id}", 1), "GET", path, nil, as(mine), 401, 403); err != nil {
			return err
		}
	}
	return nil
}
