package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/internal/cli"
	"github.com/sandbar-dev/sandbar/internal/server/httpd"
)

// maxTunnels bounds the concurrent connections of "sandbar port". Further connections wait
// in the listen backlog.
const maxTunnels = 256

func (a *app) portCommand() *cobra.Command {
	return a.remoteCommand(&cobra.Command{
		Use:   "port ID PORT[:LOCAL]",
		Short: "Forward a local port to a port of a sandbox",
		Long: `Listen on a port of 127.0.0.1 and forward each connection to a port inside a
sandbox of a daemon, until Ctrl-C. ID is the sandbox's id or name. LOCAL is the local
port: by default PORT, and for 0 a free port.
` + remoteHelp,
		Example:           "  sandbar port $id 8080\n  sandbar port $id 5432:15432",
		ValidArgsFunction: a.sandboxIDs,
	}, (*remote).port)
}

func (r *remote) port(args []string) error {
	if err := needArgs(r.cmd, args, 2, "ID", "PORT"); err != nil {
		return err
	}
	inside, local, err := parsePorts(r.cmd, args[1])
	if err != nil {
		return err
	}
	// Check now, not at the first connection, that daemon and sandbox exist.
	if _, err := r.Dir(r.ctx, args[0], "/"); err != nil && sandbar.CodeOf(err) != sandbar.Unsupported {
		return err
	}
	l, err := httpd.Bind(net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
	if err != nil {
		return err
	}
	defer context.AfterFunc(r.ctx, func() { l.Close() })()
	defer l.Close()
	fmt.Fprintf(r.app.stderr, "forwarding %s to port %d of %s\n", l.Addr(), inside, cli.Printable(args[0]))
	var open sync.WaitGroup
	slots := make(chan struct{}, maxTunnels)
	for {
		slots <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			open.Wait()
			if r.ctx.Err() != nil {
				return cli.Exit(cli.ExitSignal + r.signal())
			}
			return sandbar.Errorf(sandbar.Unavailable, "connections to %s cannot be accepted: %w", l.Addr(), err)
		}
		open.Go(func() {
			defer func() { <-slots }()
			r.tunnel(conn, args[0], inside)
		})
	}
}

func parsePorts(cmd *cobra.Command, text string) (inside, local int, err error) {
	first, second, both := strings.Cut(text, ":")
	inside, ok := parsePort(first)
	if local = inside; both && ok {
		local, ok = parsePort(second)
	}
	if !ok || inside == 0 {
		return 0, 0, usagef(cmd, "%s is not PORT or PORT:LOCAL (allowed: ports from 1 to 65535; LOCAL may be 0)", cli.Quote(text))
	}
	return inside, local, nil
}

func parsePort(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && strconv.FormatUint(n, 10) == s
}

// tunnel forwards one connection. It prints an error and returns, so that the listener goes on.
func (r *remote) tunnel(here net.Conn, id string, port int) {
	defer here.Close()
	there, err := r.Port(r.ctx, id, port)
	if err != nil {
		if r.ctx.Err() == nil {
			cli.Report(r.app.stderr, err)
		}
		return
	}
	defer there.Close()
	defer context.AfterFunc(r.ctx, func() { here.Close(); there.Close() })()
	join(here.(*net.TCPConn), there)
}

// join copies in both directions until both have ended. End of file in one direction
// half-closes the other connection; an error closes both.
func join(a *net.TCPConn, b client.Conn) {
	var directions sync.WaitGroup
	forward := func(to client.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if errors.Join(err, to.CloseWrite()) != nil {
			a.Close()
			b.Close()
		}
	}
	directions.Go(func() { forward(a, b) })
	directions.Go(func() { forward(b, a) })
	directions.Wait()
}
