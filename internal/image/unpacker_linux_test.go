package image

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Variables that make the test binary a daemon that pulls until it is killed.
const (
	daemonStore, daemonHub = "IMAGE_TEST_STORE", "IMAGE_TEST_HUB"
)

// mainOfTests makes the test binary the unpacker of its own tests, a compromised one, or a daemon.
func mainOfTests() {
	if len(os.Args) == 1 && os.Args[0] == Name {
		os.Exit(serve(func(ctx context.Context, j *job, d daemon, top *os.Root, input io.Reader) (*result, error) {
			if crime := crimes()[j.Kind]; crime != nil {
				return crime(d.(*daemonConn), top, j.Pick)
			}
			return work(ctx, j, d, top, input)
		}))
	}
	Main()
	if dir := os.Getenv(daemonStore); dir != "" {
		s, err := OpenStore(dir, Limits{})
		if err == nil {
			_, err = s.Pull(context.Background(), os.Getenv(daemonHub)+"/a:1", PullOptions{InsecureRegistries: []string{os.Getenv(daemonHub)}, Arch: "amd64"})
		}
		fmt.Println(err)
		os.Exit(0)
	}
}

// crime is what an attacker does in a compromised unpacker.
type crime func(l *daemonConn, top *os.Root, outside string) (*result, error)

func crimes() map[string]crime {
	good := func() *result {
		return &result{ID: digestOf(nil), Manifest: digestOf(nil), Image: Image{Arch: "amd64"}}
	}
	tree := func(top *os.Root) error { return top.Mkdir(rootName, 0o755) }
	lie := func(change func(*result)) crime {
		return func(_ *daemonConn, top *os.Root, _ string) (*result, error) {
			r := good()
			change(r)
			return r, tree(top)
		}
	}
	says := func(ms ...*message) crime {
		return func(l *daemonConn, top *os.Root, _ string) (*result, error) {
			for _, m := range ms {
				if err := l.write(m); err != nil {
					return nil, err
				}
			}
			return good(), tree(top)
		}
	}
	return map[string]crime{
		"try":                     tryAll,
		"good":                    lie(func(*result) {}),
		"an ID that is a path":    lie(func(r *result) { r.ID = "sha256:../../x" }),
		"a manifest that is none": lie(func(r *result) { r.Manifest = "x" }),
		"another processor":       lie(func(r *result) { r.Image.Arch = "arm64" }),
		"a negative size":         lie(func(r *result) { r.Image.Size = -1 }),
		"too many entries":        lie(func(r *result) { r.Image.Entries = 1 << 40 }),
		"no tree":                 func(*daemonConn, *os.Root, string) (*result, error) { return good(), nil },
		"a link as tree": func(_ *daemonConn, top *os.Root, outside string) (*result, error) {
			return good(), top.Symlink(outside, rootName)
		},
		"a directory without rights": func(_ *daemonConn, top *os.Root, _ string) (*result, error) {
			err := top.MkdirAll("d/e", 0o700)
			return nil, errors.Join(err, top.Chmod("d/e", 0), top.Chmod("d", 0), errors.New("left"))
		},
		"an unknown message":    says(&message{Kind: "exec"}),
		"progress out of order": says(&message{Kind: kindProgress, Progress: &Progress{Step: "done"}}),
		"negative progress":     says(&message{Kind: kindProgress, Progress: &Progress{Step: "fetch", Bytes: -1}}),
		"a file of no layout":   says(&message{Kind: kindOpen, Text: "/etc/passwd"}),
		"an unknown error": func(*daemonConn, *os.Root, string) (*result, error) {
			return nil, &sandbar.Error{Code: "owned", Message: "\x1b[2J" + strings.Repeat("x", 1<<20)}
		},
		"a flood": func(l *daemonConn, _ *os.Root, _ string) (*result, error) {
			for {
				l.progress(Progress{Step: "resolve"})
			}
		},
		"no end": func(*daemonConn, *os.Root, string) (*result, error) { select {} },
		"a long message": func(l *daemonConn, _ *os.Root, _ string) (*result, error) {
			_, err := l.f.Write([]byte{0xff, 0xff, 0xff, 0xff})
			return good(), err
		},
		"no message": func(l *daemonConn, _ *os.Root, _ string) (*result, error) {
			_, err := l.f.WriteString("\x00\x00\x00\x02x{")
			return good(), err
		},
		"half a message": func(l *daemonConn, _ *os.Root, _ string) (*result, error) {
			_, _ = l.f.WriteString("\x00\x00\x00\x10")
			os.Exit(0)
			return nil, nil
		},
		"all requests": func(l *daemonConn, _ *os.Root, _ string) (*result, error) {
			for range 10 * maxRequests {
				go l.dial(context.Background(), "x:1")
			}
			select {}
		},
		"dial": func(l *daemonConn, _ *os.Root, to string) (*result, error) {
			_, err := l.dial(context.Background(), to)
			return nil, err
		},
		"memory": func(*daemonConn, *os.Root, string) (*result, error) {
			var all [][]byte
			for {
				if all = append(all, bytes.Repeat([]byte{1}, 8<<20)); len(all) == 0 {
					return nil, nil
				}
			}
		},
	}
}

// tryAll reports an unpacker's rights, one per line.
func tryAll(l *daemonConn, top *os.Root, outside string) (*result, error) {
	var said []string
	tell := func(what string, err error) {
		answer := "refused"
		if err == nil {
			answer = "done"
		}
		said = append(said, what+": "+answer)
	}
	_, err := os.ReadFile(filepath.Join(outside, "file"))
	tell("read a file of the host", err)
	_, err = os.ReadDir("/")
	tell("list the host's root", err)
	_, err = os.ReadFile("/proc/self/environ")
	tell("read its own environment", err)
	tell("write a file of the host", os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
	tell("make a file on the host", os.WriteFile(filepath.Join(outside, "new"), nil, 0o600))
	tell("remove a file of the host", os.Remove(filepath.Join(outside, "file")))
	tell("make a file beside the staging directory", os.WriteFile(filepath.Join(filepath.Dir(top.Name()), "new"), nil, 0o600))
	tell("move out", os.Rename(filepath.Join(top.Name(), "in"), filepath.Join(outside, "out")))
	tell("truncate", os.Truncate(filepath.Join(outside, "file"), 0))
	tell("change a mode", os.Chmod(filepath.Join(outside, "file"), 0o755))
	tell("change a mode by descriptor", unix.Fchmodat(unix.AT_FDCWD, filepath.Join(outside, "file"), 0o755, unix.AT_SYMLINK_NOFOLLOW))
	tell("change times", os.Chtimes(filepath.Join(outside, "file"), time.Now(), time.Now()))
	tell("write inside", top.WriteFile("in", []byte("x"), 0o600))
	tell("link inside", errors.Join(top.Mkdir("d", 0o700), top.Link("in", "d/in"), top.Rename("d/in", "out")))
	tell("setuid inside", top.Chmod("in", 0o755|fs.ModeSetuid))
	fd, err := unix.Openat(unix.AT_FDCWD, filepath.Join(top.Name(), "suid"), unix.O_CREAT|unix.O_RDWR, 0o6755)
	tell("make a setuid file", err)
	_ = unix.Close(fd)
	tell("make a FIFO", unix.Mkfifo(filepath.Join(top.Name(), "fifo"), 0o600))
	tell("make a device", unix.Mknod(filepath.Join(top.Name(), "null"), unix.S_IFCHR|0o600, 1<<8|3))
	tell("set an attribute", unix.Setxattr(filepath.Join(top.Name(), "in"), "user.x", []byte("x"), 0))
	tell("change an owner", unix.Fchownat(unix.AT_FDCWD, filepath.Join(top.Name(), "in"), os.Getuid(), os.Getgid(), 0))
	for name, family := range map[string]int{"IPv4": unix.AF_INET, "IPv6": unix.AF_INET6, "Unix": unix.AF_UNIX, "netlink": unix.AF_NETLINK} {
		_, err = unix.Socket(family, unix.SOCK_STREAM, 0)
		tell("a socket of "+name, err)
	}
	tell("connect", unix.Connect(0, &unix.SockaddrUnix{Name: "/run/x"}))
	tell("start a program", unix.Exec("/proc/self/exe", []string{"x"}, nil))
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"x"}, nil)
	tell("fork "+strconv.Itoa(pid), err)
	tell("signal the daemon", unix.Kill(os.Getppid(), 0))
	tell("trace the daemon", unix.PtraceAttach(os.Getppid()))
	tell("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	tell("mount", unix.Mount("none", top.Name(), "tmpfs", 0, ""))
	tell("change the root", unix.Chroot(top.Name()))
	_, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	tell("map code", err)
	tell("raise a limit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}))
	_, err = l.dial(context.Background(), "169.254.169.254:80")
	tell("dial metadata", err)
	_, err = l.open("/etc/passwd")
	tell("ask for a file", err)
	return nil, errors.New(strings.Join(said, "; "))
}

// commit makes a test's unpacker commit one of crimes.
func commit(t testing.TB, s *Store, kind, outside string) (*build, result, error) {
	t.Helper()
	b, err := s.newBuild()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	op := operation{job: job{Kind: kind, Arch: "amd64", Pick: outside}, known: func(string, string) bool { return false },
		dial: registries{}.dial, files: func(string) (*os.File, error) { return nil, fs.ErrPermission }, progress: func(Progress) {}}
	switch kind {
	case "a file of no layout":
		op.files = nil
	case "all requests":
		op.dial = func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.limits.Time)
	defer cancel()
	r, err := b.run(ctx, op)
	return b, r, err
}

// needConfined reports whether unpackers are confined: under the race detector they are not, see
// package confine.
func needConfined(t *testing.T) bool {
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); e == syscall.ENOTSUP {
		t.Log("with cgo unpackers are not confined")
		return false
	}
	return true
}

// TestUnpackerIsConfined tests what the attacker in a compromised unpacker can reach: the staging
// directory, and connections that the daemon would make itself.
func TestUnpackerIsConfined(t *testing.T) {
	if !needConfined(t) {
		return
	}
	outside, untouched := bait(t)
	_, _, err := commit(t, newStore(t, Limits{}), "try", outside)
	untouched()
	if err == nil {
		t.Fatal("no report")
	}
	files := "refused"
	if abi, _, e := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); e != 0 || abi < 2 {
		t.Logf("this kernel's Landlock (version %d, %v) cannot keep it to its directory", abi, e)
		files = "done"
	}
	want := map[string]string{"write inside": "done", "link inside": "done",
		"read a file of the host": files, "list the host's root": files, "read its own environment": files}
	_, lines, _ := strings.Cut(err.Error(), ": ")
	told := 0
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "; ") {
		what, answer, _ := strings.Cut(line, ": ")
		expected := want[what]
		if expected == "" {
			expected = "refused"
		}
		if told++; !strings.HasPrefix(answer, expected) {
			t.Errorf("%s: %s, want %s", what, answer, expected)
		}
	}
	if told < 35 {
		t.Errorf("%d things were tried: %v", told, err)
	}
}

// TestUnpackerIsNotBelieved tests that the daemon checks an unpacker's messages.
func TestUnpackerIsNotBelieved(t *testing.T) {
	outside, untouched := bait(t)
	for kind, want := range map[string]sandbar.Code{
		"good": "", "an ID that is a path": sandbar.Invalid, "a manifest that is none": sandbar.Invalid, "another processor": sandbar.Invalid,
		"a negative size": sandbar.Invalid, "too many entries": sandbar.Invalid, "no tree": sandbar.Invalid, "a link as tree": sandbar.Invalid,
		"a directory without rights": sandbar.Unavailable, "an unknown message": sandbar.Invalid, "progress out of order": sandbar.Invalid,
		"negative progress": sandbar.Invalid, "a file of no layout": sandbar.Invalid, "an unknown error": sandbar.Internal, "a flood": sandbar.Invalid,
		"a long message": sandbar.Invalid, "no message": sandbar.Invalid, "half a message": sandbar.Unavailable, "all requests": sandbar.Invalid,
	} {
		t.Run(kind, func(t *testing.T) {
			s := newStore(t, Limits{})
			b, r, err := commit(t, s, kind, outside)
			if err == nil {
				_, err = b.publish(t.Context(), r, "amd64", namedBinding{"a", binding{ID: r.ID}})
			}
			if err = failed("testing", err); sandbar.CodeOf(err) != want {
				t.Errorf("%v (code %s), want %q", err, sandbar.CodeOf(err), want)
			}
			if err != nil && (strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 2*maxText) {
				t.Errorf("an error of %d bytes: %.100q", len(err.Error()), err.Error())
			}
			images, err := s.List()
			if err != nil || (len(images) == 1) != (want == "") {
				t.Errorf("%v, %v are in the store", images, err)
			}
			if b.close(); exists(b.dir) {
				t.Error("the staging directory is left")
			}
			untouched()
		})
	}
}

// TestUnpackerDials tests that the daemon decides on addresses, whatever the unpacker requests.
func TestUnpackerDials(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			t.Error("it was dialled")
			c.Close()
		}
	}()
	for _, to := range []string{l.Addr().String(), "localhost:1", "169.254.169.254:80", "10.0.0.1:443", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
		if _, _, err := commit(t, newStore(t, Limits{}), "dial", to); sandbar.CodeOf(err) != sandbar.Denied {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestUnpackerThatHangs(t *testing.T) {
	if _, _, err := commit(t, newStore(t, Limits{Time: 300 * time.Millisecond}), "no end", ""); sandbar.CodeOf(failed("testing", err)) != sandbar.Timeout {
		t.Error(err)
	}
}

// TestUnpackersMemory tests an unpacker's memory limit.
func TestUnpackersMemory(t *testing.T) {
	s := newStore(t, Limits{})
	s.memory = 256 << 20
	if _, _, err := commit(t, s, "memory", ""); sandbar.CodeOf(err) != sandbar.TooLarge {
		t.Error(err)
	}
}

// unpackers returns the pids of the unpackers of this process or of another.
func unpackers(t testing.TB, parent int) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		_, after, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(after); string(name) == Name+"\x00" && len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stalled returns a registry that has an image and stops before its layer. wait returns when the
// layer was requested.
func stalled(t *testing.T) (h *hub, ref string, reached <-chan struct{}) {
	t.Helper()
	h = newHub(t)
	img := testImage(t, "amd64", archive(t, file("a", "1")))
	ref = h.push(t, "a:1", img)
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	c := make(chan struct{}, 8)
	h.spoil = func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		if strings.Contains(q.URL.Path, m.Layers[0].Digest.Hex) {
			c <- struct{}{}
			<-q.Context().Done()
			return
		}
		next.ServeHTTP(w, q)
	}
	return h, ref, c
}

// TestKilledUnpacker tests that a killed unpacker is an error and leaves nothing, and that the next
// pull works.
func TestKilledUnpacker(t *testing.T) {
	h, ref, reached := stalled(t)
	s := newStore(t, Limits{})
	failed := make(chan error)
	go func() {
		_, err := s.Pull(t.Context(), ref, h.options())
		failed <- err
	}()
	<-reached
	pids := unpackers(t, os.Getpid())
	if len(pids) != 1 {
		t.Fatalf("unpackers %v", pids)
	}
	if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; sandbar.CodeOf(err) != sandbar.Unavailable || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
	checkClean(t, s)
	h.spoil = nil
	if _, err := s.Pull(t.Context(), ref, h.options()); err != nil {
		t.Error(err)
	}
}

// TestKilledDaemon tests that an unpacker ends with its killed daemon, and that the next user of
// the store removes the leftovers of both.
func TestKilledDaemon(t *testing.T) {
	h, _, reached := stalled(t)
	dir := filepath.Join(t.TempDir(), "images")
	config := filepath.Join(t.TempDir(), "config.json")
	text := `{"auths":{"` + h.host + `":{"username":"` + hubUser + `","password":"` + hubPassword + `"}}}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonStore+"="+dir, daemonHub+"="+h.host, "DOCKER_CONFIG="+filepath.Dir(config))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ended <- line
	}()
	select {
	case <-reached:
	case line := <-ended:
		t.Fatalf("the daemon ended: %s", line)
	}
	pids := unpackers(t, cmd.Process.Pid)
	if len(pids) != 1 {
		t.Fatalf("unpackers %v", pids)
	}
	unpacker, err := unix.PidfdOpen(pids[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unpacker)
	for _, name := range []string{"cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pids[0], name))
		if err == nil && strings.Contains(string(b), hubPassword) {
			t.Errorf("the password is in the unpacker's %s", name)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	_ = cmd.Wait()
	// A process's pidfd becomes readable when it exits.
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(unpacker), Events: unix.POLLIN}}, int(30*time.Second/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("the unpacker still runs: %d, %v", n, err)
		}
		break
	}
	s, err := OpenStore(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.GC(t.Context(), true)
	if err != nil || !slices.ContainsFunc(found, func(l Leftover) bool { return strings.Contains(l.Name, tempPrefix) && l.Err == nil }) {
		t.Errorf("%+v, %v", found, err)
	}
	checkClean(t, s)
}

// TestPullTLS tests a registry with TLS and the certificates of this host.
func TestPullTLS(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	quiet := log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(quiet)))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	certificate := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := ParseReference(host + "/a:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r.ref, testImage(t, "amd64", archive(t, file("a", "1"))), remote.WithTransport(server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	o := PullOptions{Registries: []string{host}, Arch: "amd64"}
	if _, err := newStore(t, Limits{}).Pull(t.Context(), r.Text, o); err == nil {
		t.Error("a certificate of an unknown authority is accepted")
	}
	t.Setenv("SSL_CERT_FILE", certificate)
	if _, err := newStore(t, Limits{}).Pull(t.Context(), r.Text, o); err != nil {
		t.Error(err)
	}
}
