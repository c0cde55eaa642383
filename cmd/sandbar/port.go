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

// maxTunnels is how many connections one "sandbar port" has at once; more wait.
const maxTunnels = 256

func (a *app) portCommand() *cobra.Command {
	return a.remoteCommand(&cobra.Command{
		Use:   "port ID PORT[:LOCAL]",
		Short: "Make a port of a sandbox reachable on this machine",
		Long: `Listen on a port of 127.0.0.1 and pass each connection on to a port inside a
sandbox of a daemon, until Ctrl-C. ID is the sandbox's id or name; LOCAL is the
port here, the same one if it is left out, any free one if it is 0.
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
	// That there is such a sandbox, and a daemon, is found out now and not at
	// the first connection.
	if _, err := r.Dir(r.ctx, args[0], "/"); err != nil && sandbar.CodeOf(err) != sandbar.Unsupported {
		return err
	}
	l, err := httpd.Bind(net.JoinHostPort("127.0.0.1", strconv.Itoa(local)))
	if err != nil {
		return err
	}
	defer context.AfterFunc(r.ctx, func() { l.Close() })()
	defer l.Close()
	fmt.Fprintf(r.app.stderr, "%s is port %d of %s\n", l.Addr(), inside, cli.Printable(args[0]))
	var open sync.WaitGroup
	places := make(chan struct{}, maxTunnels)
	for {
		places <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			open.Wait()
			if r.ctx.Err() != nil {
				return cli.Exit(cli.ExitSignal + r.signal())
			}
			return sandbar.Errorf(sandbar.Unavailable, "connections to %s cannot be accepted: %w", l.Addr(), err)
		}
		open.Go(func() {
			defer func() { <-places }()
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

// tunnel passes one connection on. What fails is told; the next may do.
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

// join copies both ways until both are over. The end of one direction is
// passed on as just that; a connection that breaks takes the other along.
func join(a *net.TCPConn, b client.Conn) {
	var ways sync.WaitGroup
	way := func(to client.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if errors.Join(err, to.CloseWrite()) != nil {
			a.Close()
			b.Close()
		}
	}
	ways.Go(func() { way(a, b) })
	ways.Go(func() { way(b, a) })
	ways.Wait()
}
