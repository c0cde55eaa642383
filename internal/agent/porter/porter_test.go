package porter

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity is a key with a certificate that it has signed itself.
type identity struct {
	cert     tls.Certificate
	crt, key []byte // PEM
}

func newIdentity(t *testing.T, name string) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	id := identity{crt: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})}
	if id.cert, err = tls.X509KeyPair(id.crt, id.key); err != nil {
		t.Fatal(err)
	}
	return id
}

// porter is a porter under test.
type porter struct {
	address string // for the daemon
	agents  string
}

// start starts a porter, and returns it, the daemon's identity and configuration, and its result.
func start(t *testing.T) (porter, identity, *tls.Config, <-chan error) {
	t.Helper()
	dir := t.TempDir()
	own, daemon := newIdentity(t, ServerName), newIdentity(t, "daemon")
	for name, b := range map[string][]byte{CertFile: own.crt, KeyFile: own.key, PeerFile: daemon.crt} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	agents, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := place{keys: dir, uid: "the-uid"}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(own.crt)
	ctx, cancel := context.WithCancel(context.Background())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- serve(ctx, l, agents, p)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return porter{l.Addr().String(), agents.Addr().String()}, daemon, &tls.Config{RootCAs: pool, ServerName: ServerName}, result
}

func dialAgent(t *testing.T, p porter) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.agents)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A porter tells its pod's UID, copies in both directions, and ends with either end.
func TestServe(t *testing.T) {
	for _, ends := range []string{"agent", "daemon"} {
		t.Run(ends, func(t *testing.T) {
			p, daemon, config, result := start(t)
			agent := dialAgent(t, p)
			config.Certificates = []tls.Certificate{daemon.cert}
			conn, err := tls.Dial("tcp", p.address, config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			if line, err := r.ReadString('\n'); line != Greeting+"the-uid "+release()+"\n" {
				t.Fatalf("greeting %q, %v", line, err)
			}
			for _, way := range []struct {
				w io.Writer
				r io.Reader
			}{{conn, agent}, {agent, r}} {
				if _, err := io.WriteString(way.w, "bytes"); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 5)
				if _, err := io.ReadFull(way.r, b); err != nil || string(b) != "bytes" {
					t.Fatalf("%q, %v", b, err)
				}
			}
			if _, err := net.Dial("tcp", p.address); err == nil {
				t.Error("a porter with a daemon accepts connections")
			}
			if _, err := net.Dial("tcp", p.agents); err == nil {
				t.Error("a porter with an agent accepts another")
			}
			other := io.Reader(r)
			if ends == "agent" {
				agent.Close()
			} else {
				conn.Close()
				other = agent
			}
			if _, err := other.Read(make([]byte, 1)); err == nil {
				t.Error("the other end can still read")
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

// Whoever has not the daemon's key is refused, and does not keep the daemon out.
func TestStrangers(t *testing.T) {
	p, daemon, config, _ := start(t)
	dialAgent(t, p)
	stranger := newIdentity(t, "daemon")
	for name, certs := range map[string][]tls.Certificate{"no certificate": nil, "another certificate": {stranger.cert}} {
		c := config.Clone()
		c.Certificates = certs
		conn, err := tls.Dial("tcp", p.address, c)
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the refusal comes after the client's handshake
			conn.Close()
		}
		if err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range maxHandshakes - 1 { // silent ones
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	config.Certificates = []tls.Certificate{daemon.cert}
	conn, err := tls.Dial("tcp", p.address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, len(Greeting))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != Greeting {
		t.Errorf("greeting %q, %v", b, err)
	}
}

// A probe finds an address that accepts connections.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := testenv.FreeAddress(t)
	if got := probe([]string{closed}); got != "" {
		t.Errorf("reached %q", got)
	}
	if got := probe([]string{closed, l.Addr().String()}); got != l.Addr().String() {
		t.Errorf("reached %q", got)
	}
}

// A relay waits for its porter, copies in both directions, and ends with either end.
func TestRelay(t *testing.T) {
	address := testenv.FreeAddress(t)
	if err := relay(address, strings.NewReader(""), io.Discard); err == nil {
		t.Error("a relay without a porter ended without an error")
	}
	for _, ends := range []string{"input", "porter"} {
		t.Run(ends, func(t *testing.T) {
			in, input := io.Pipe()
			output, out := io.Pipe()
			result := make(chan error, 1)
			go func() {
				err := relay(address, in, out)
				out.Close()
				result <- err
			}()
			time.Sleep(3 * relayPause) // it is refused meanwhile
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, way := range []struct {
				w io.Writer
				r io.Reader
			}{{input, conn}, {conn, output}} {
				b := make([]byte, 5)
				if _, err := io.WriteString(way.w, "bytes"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way.r, b); err != nil || string(b) != "bytes" {
					t.Fatalf("%q, %v", b, err)
				}
			}
			if ends == "input" {
				input.Close()
			} else {
				conn.Close()
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
			input.Close() // ends the other copy
		})
	}
}
