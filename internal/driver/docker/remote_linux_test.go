package docker

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// issue writes a certificate, its key and the authority's certificate under docker's file names.
func (a *authority) issue(t *testing.T, use x509.ExtKeyUsage) (dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{use}, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, b := range map[string][]byte{"ca.pem": a.pem,
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// far serves the engine over TCP with TLS to clients with a certificate of the authority, like an
// engine on another machine.
func far(t *testing.T, socket string, a *authority) (address string) {
	t.Helper()
	dir := a.issue(t, x509.ExtKeyUsageServerAuth)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { carry(c, socket) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return "tcp://" + l.Addr().String()
}

// carry copies bytes between a client and the engine until one side closes.
func carry(c net.Conn, socket string) {
	defer c.Close()
	e, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer e.Close()
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(e, c)
		e.(*net.UnixConn).CloseWrite()
	})
	io.Copy(c, e)
	c.Close()
	both.Wait()
}

// A remote engine, over TCP with TLS, whose cgroups are not visible here, gives the same results as
// a local one.
func TestFarEngine(t *testing.T) {
	e := fragile(t)
	a := newAuthority(t)
	address := far(t, strings.TrimPrefix(e.Host(), "unix://"), a)
	d := newDriver(t, address, func(h *driver.Host) { h.Options[optionCertPath] = a.issue(t, x509.ExtKeyUsageClientAuth) })
	if d.local || d.Caps().OOMCounted {
		t.Errorf("the engine is taken for one of this machine: %+v", d.Caps())
	}
	box, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if r, out := run(t, box, `echo out; echo err >&2; exit 7`); r.ExitCode != 7 || out != "out\nerr\n" && out != "err\nout\n" {
		t.Errorf("a program: %+v, %q", r, out)
	}
	if r, _ := run(t, box, hog); r.Outcome != sandbar.OutOfMemory || r.OOMKills < 1 {
		t.Errorf("a program that runs out of memory: %+v", r)
	}
	if r, _ := run(t, box, `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`); r.Outcome != sandbar.Exited || r.OOMKills != 0 || r.CPUTime <= 0 || r.PeakMemory <= 0 {
		t.Errorf("a modest program after that: %+v", r)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	empty(t, e)
	t.Run("by somebody else", func(t *testing.T) {
		stranger := newAuthority(t)
		_, err := New(driver.Host{Options: map[string]string{optionHost: address, optionCertPath: stranger.issue(t, x509.ExtKeyUsageClientAuth)}}, agentBinary(t))
		if sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("New with certificates of another authority: %v (code %q)", err, sandbar.CodeOf(err))
		}
	})
}

// hog allocates memory until it is killed, or has 1 GiB.
const hog = `x=0123456789abcdef; i=0; while [ $i -lt 26 ]; do x=$x$x; i=$((i+1)); done; echo survived`

// run runs a shell program and returns its result and output.
func run(t *testing.T, box driver.Sandbox, script string) (sandbar.Result, string) {
	t.Helper()
	out := &together{}
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// together is a writer for both outputs of a program.
type together struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *together) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *together) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// shelf is a store with one image. It counts how often the image is open.
type shelf struct {
	dir  string
	mu   sync.Mutex
	open int
}

func (s *shelf) Open(_ context.Context, name string) (driver.Image, error) {
	if name != "ours" {
		return driver.Image{}, sandbar.Errorf(sandbar.NotFound, "there is no image %q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return driver.Image{ID: "sha256:" + strings.Repeat("5a", 32), Dir: s.dir, Close: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}}, nil
}

// An image of the store is sent to the engine once, and sandboxes use it. Its only program is the
// agent's, which prints an error if it is started directly.
func TestImageOfOurStore(t *testing.T) {
	e := fragile(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), agentBinary(t), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "note"), []byte("from the store"), 0o644); err != nil {
		t.Fatal(err)
	}
	images := &shelf{dir: dir}
	d := newDriver(t, e.Host(), func(h *driver.Host) { h.Images = images })
	s := spec()
	s.Image = "ours"
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			box, err := d.Create(t.Context(), sandbar.NewID(), s)
			if err != nil {
				t.Error(err)
				return
			}
			defer box.Destroy(context.Background())
			p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"/tool"}}, driver.Stdio{})
			if err != nil {
				t.Error(err)
				return
			}
			if r, err := p.Wait(); err != nil || r.ExitCode != 2 {
				t.Errorf("the program of the image: %+v, %v", r, err)
			}
			if info, err := box.FS().Stat(t.Context(), "/note"); err != nil || info.Size != 14 || info.UID != 0 {
				t.Errorf("a file of the image: %+v, %v", info, err)
			}
		})
	}
	all.Wait()
	// The engine has the image now, so a change of the stored files has no effect.
	if err := os.WriteFile(filepath.Join(dir, "note"), []byte("changed in place"), 0o644); err != nil {
		t.Fatal(err)
	}
	box, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := box.FS().Stat(t.Context(), "/note"); err != nil || info.Size != 14 {
		t.Errorf("the image was sent again: %+v, %v", info, err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	images.mu.Lock()
	defer images.mu.Unlock()
	if images.open != 0 {
		t.Errorf("the image is open %d times", images.open)
	}
}
