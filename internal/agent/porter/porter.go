package porter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// agentBound bounds the wait for the agent, which starts at the same time.
	agentBound = time.Minute
	// handshakeBound bounds one handshake. Strangers can connect, so maxHandshakes bounds how many
	// handshakes are in progress.
	handshakeBound = 5 * time.Second
	maxHandshakes  = 16
	// daemonBound bounds the wait for the daemon. A pod whose daemon does not come ends then.
	daemonBound = 5 * time.Minute
	// probeTries is how often ModeProbe tries each address, probeBound the time of one try.
	probeTries = 2
	probeBound = time.Second
	// relayBound bounds the time in which a relay tries to connect to its porter, each relayPause.
	relayBound = 2 * time.Second
	relayPause = 10 * time.Millisecond
)

// Main runs the program. It does not return.
func Main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == ModeServe:
		daemons, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(Port)))
		if err != nil {
			return err
		}
		agents, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(AgentPort)))
		if err != nil {
			return err
		}
		return serve(context.Background(), daemons, agents, place{keys: KeyDir, uid: os.Getenv(UIDEnv)})
	case len(args) == 2 && args[0] == ModeInstall:
		return install(args[1])
	case len(args) == 1 && args[0] == ModeRelay:
		return relay(net.JoinHostPort("127.0.0.1", strconv.Itoa(Port)), os.Stdin, os.Stdout)
	case len(args) > 1 && args[0] == ModeProbe:
		if reached := probe(args[1:]); reached != "" {
			fmt.Fprintln(os.Stderr, Reached, reached)
			os.Exit(ExitReached)
		}
		return nil
	}
	return errors.New("sandbar starts this program in a pod; it does nothing on its own")
}

// place has the directory of a porter's keys, and its pod's UID.
type place struct{ keys, uid string }

// serve connects one agent with one daemon, and closes the listeners.
func serve(ctx context.Context, daemons, agents net.Listener, p place) error {
	defer daemons.Close()
	defer agents.Close()
	config, err := p.config()
	if err != nil {
		return err
	}
	// The agent is the first program of its container, so no program can connect before it.
	stop := context.AfterFunc(ctx, func() { agents.Close() })
	defer stop()
	late := time.AfterFunc(agentBound, func() { agents.Close() })
	defer late.Stop()
	agent, err := agents.Accept()
	if err != nil {
		return fmt.Errorf("waiting for the agent: %w", err)
	}
	defer agent.Close()
	agents.Close()
	ctx, cancel := context.WithTimeout(ctx, daemonBound)
	defer cancel()
	daemon, err := accept(ctx, daemons, config)
	if err != nil {
		return fmt.Errorf("waiting for the daemon: %w", err)
	}
	defer daemon.Close()
	daemons.Close()
	if _, err := io.WriteString(daemon, Greeting+p.uid+" "+release()+"\n"); err != nil {
		return err
	}
	splice(agent, daemon)
	return nil
}

// release returns the release of the kernel.
func release() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	word, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if err != nil || word == "" {
		return "unknown"
	}
	return word[:min(len(word), 64)]
}

// config returns the configuration of TLS: only the daemon's certificate is accepted.
func (p place) config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(p.keys, CertFile), filepath.Join(p.keys, KeyFile))
	if err != nil {
		return nil, err
	}
	peer, err := os.ReadFile(filepath.Join(p.keys, PeerFile))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(peer) {
		return nil, errors.New(PeerFile + " has no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}, nil
}

// accept returns the first connection that authenticates itself, and closes all others.
func accept(ctx context.Context, l net.Listener, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	winner := make(chan net.Conn, 1)
	slots := make(chan struct{}, maxHandshakes)
	var all sync.WaitGroup
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		conn, err := l.Accept()
		if err != nil {
			all.Wait()
			select {
			case c := <-winner:
				return c, nil
			default:
				return nil, errors.Join(err, ctx.Err())
			}
		}
		all.Go(func() {
			defer func() { <-slots }()
			t := tls.Server(conn, config)
			bounded, done := context.WithTimeout(ctx, handshakeBound)
			defer done()
			if t.HandshakeContext(bounded) == nil {
				select {
				case winner <- t:
					cancel() // ends the loop
					return
				default:
				}
			}
			conn.Close()
		})
	}
}

// splice copies in both directions until one ends, and closes both connections.
func splice(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.CopyBuffer(onlyWriter{way[0]}, onlyReader{way[1]}, make([]byte, 64<<10)) // either end ends both
			a.Close()
			b.Close()
		})
	}
	both.Wait()
}

// onlyWriter and onlyReader hide other methods, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }

// relay copies between a porter and a pair of streams, until one of them ends. The porter may start
// to listen a moment later.
func relay(address string, in io.Reader, out io.Writer) error {
	conn, err := net.Dial("tcp", address)
	for end := time.Now().Add(relayBound); err != nil && time.Now().Before(end); {
		time.Sleep(relayPause)
		conn, err = net.Dial("tcp", address)
	}
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.CopyBuffer(onlyWriter{conn}, onlyReader{in}, make([]byte, 64<<10))
		conn.Close()
	}()
	_, err = io.CopyBuffer(onlyWriter{out}, onlyReader{conn}, make([]byte, 64<<10))
	if errors.Is(err, net.ErrClosed) { // the input has ended
		return nil
	}
	return err
}

// install copies the agent into a directory.
func install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	const name = "sandbar-agent"
	b, err := os.ReadFile(filepath.Join(filepath.Dir(self), name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), b, 0o755)
}

// probe returns an address that accepts a connection, "" if none does.
func probe(addresses []string) string {
	reached := make(chan string, len(addresses))
	var all sync.WaitGroup
	for _, a := range addresses {
		all.Go(func() {
			for range probeTries {
				if conn, err := net.DialTimeout("tcp", a, probeBound); err == nil {
					conn.Close()
					reached <- a
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case a := <-reached:
		return a
	default:
		return ""
	}
}
