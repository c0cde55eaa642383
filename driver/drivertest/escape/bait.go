package escape

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Bait is what an uncontained program could access. It is made for one case and removed after it.
type Bait struct {
	Secret string // content of File, in the process's environment, and the answer of the listeners
	Dir    string // a directory of the host, writable by this user
	File   string // in Dir, readable by all users
	PID    int    // a process of the host, of this user

	process  *exec.Cmd
	exited   chan struct{}
	tcp      net.Listener
	outside  net.Listener // on an address of the host other than loopback; nil if there is none
	unix     net.Listener
	abstract net.Listener
	udp      net.PacketConn
	self     os.FileInfo // of this program's executable
	daemon   string      // variable of this process with the secret
	serving  sync.WaitGroup
}

const baitFile = "secret"

func newBait() (*Bait, error) {
	b := &Bait{Secret: "secret-" + nonce(), daemon: "SANDBAR_ESCAPE_DAEMON_" + nonce()}
	err := b.makeFiles()
	for _, step := range []func() error{b.startProcess, b.listen} {
		if err == nil {
			err = step()
		}
	}
	if err == nil {
		b.self, err = statSelf()
	}
	if err == nil {
		err = os.Setenv(b.daemon, b.Secret)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *Bait) makeFiles() (err error) {
	if b.Dir, err = os.MkdirTemp("", "sandbar-bait-"); err != nil {
		return err
	}
	b.File = filepath.Join(b.Dir, baitFile)
	// All users may read it, so only the boundary protects it.
	return errors.Join(os.Chmod(b.Dir, 0o755), os.WriteFile(b.File, []byte(b.Secret), 0o644))
}

// startProcess starts a program that waits for the end of its input, which comes at the latest when
// this process ends.
func (b *Bait) startProcess() error {
	b.process = exec.Command("cat")
	b.process.Env = []string{"BAIT=" + b.Secret}
	if _, err := b.process.StdinPipe(); err != nil {
		return err
	}
	if err := b.process.Start(); err != nil {
		b.process = nil
		return err
	}
	b.PID = b.process.Process.Pid
	b.exited = make(chan struct{})
	go func() {
		b.process.Wait()
		close(b.exited)
	}()
	return nil
}

func (b *Bait) listen() (err error) {
	if b.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	if b.unix, err = net.Listen("unix", filepath.Join(b.Dir, "sock")); err != nil {
		return err
	}
	if err = os.Chmod(filepath.Join(b.Dir, "sock"), 0o777); err != nil {
		return err
	}
	if b.abstract, err = net.Listen("unix", "@sandbar-bait-"+nonce()); err != nil {
		return err
	}
	if b.udp, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		return err
	}
	if addr := outsideAddress(); addr != "" {
		if b.outside, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); err != nil {
			return err
		}
	}
	for _, l := range b.listeners() {
		b.serving.Go(func() { b.serve(l) })
	}
	b.serving.Go(b.serveUDP)
	return nil
}

func (b *Bait) listeners() []net.Listener {
	var all []net.Listener
	for _, l := range []net.Listener{b.tcp, b.outside, b.unix, b.abstract} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

func (b *Bait) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, b.Secret+"\n")
		conn.Close()
	}
}

func (b *Bait) serveUDP() {
	buf := make([]byte, 64)
	for {
		_, from, err := b.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		b.udp.WriteTo([]byte(b.Secret+"\n"), from)
	}
}

// outsideAddress returns an IPv4 address of the host that is not loopback, or "".
func outsideAddress() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// env describes the bait to a program, without the secret.
func (b *Bait) env() map[string]string {
	port := func(a net.Addr) string {
		_, p, _ := net.SplitHostPort(a.String())
		return p
	}
	env := map[string]string{
		"BAIT_DIR":      b.Dir,
		"BAIT_FILE":     b.File,
		"BAIT_SOCK":     filepath.Join(b.Dir, "sock"),
		"BAIT_PID":      strconv.Itoa(b.PID),
		"BAIT_PORT":     port(b.tcp.Addr()),
		"BAIT_UDP":      port(b.udp.LocalAddr()),
		"BAIT_ABSTRACT": b.abstract.Addr().String()[1:], // without the @ that stands for the NUL
		"HOST_UID":      strconv.Itoa(os.Getuid()),
	}
	if b.outside != nil {
		env["BAIT_OUTSIDE"], env["BAIT_OUTSIDE_PORT"], _ = net.SplitHostPort(b.outside.Addr().String())
	}
	if name, err := os.Hostname(); err == nil {
		env["HOST_NAME"] = name
	}
	env["HOST_SECRETS"] = hostSecrets()
	return env
}

// hostSecrets returns files and directories of this host that no sandbox may contain, each with its
// modification time in nanoseconds: "PATH=TIME:PATH=TIME".
func hostSecrets() string {
	paths := []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key",
		"/root", "/var/lib", "/var/log", "/var/run/secrets", "/run/secrets", "/boot", "/mnt", "/media", "/srv", "/etc/ssh", "/lost+found"}
	homes, _ := filepath.Glob("/home/*")
	var all []string
	for _, p := range append(paths, homes[:min(len(homes), 20)]...) {
		if info, err := os.Stat(p); err == nil && !strings.ContainsAny(p, ":=") {
			all = append(all, p+"="+strconv.FormatInt(info.ModTime().UnixNano(), 10))
		}
	}
	return strings.Join(all, ":")
}

// damage describes changes to the bait.
func (b *Bait) damage() []string {
	var all []string
	found := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if got, err := os.ReadFile(b.File); err != nil || string(got) != b.Secret {
		found("the bait's file was changed or removed")
	}
	if info, err := os.Stat(b.File); err == nil && info.Mode().Perm() != 0o644 {
		found("the bait's file has mode %v", info.Mode())
	}
	if info, err := os.Lstat(b.Dir); err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
		found("the bait's directory was changed")
	}
	entries, _ := os.ReadDir(b.Dir)
	for _, e := range entries {
		if e.Name() != baitFile && e.Name() != "sock" {
			found("there is a new file %q in the bait's directory", e.Name())
		}
	}
	select {
	case <-b.exited:
		found("the bait's process was killed")
	default:
	}
	now, err := statSelf()
	if err != nil || !os.SameFile(now, b.self) || now.Size() != b.self.Size() || now.Mode() != b.self.Mode() || !now.ModTime().Equal(b.self.ModTime()) {
		found("this program's own file was changed")
	}
	return all
}

func statSelf() (os.FileInfo, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
}

// close removes the bait.
func (b *Bait) close() error {
	os.Unsetenv(b.daemon)
	for _, l := range b.listeners() {
		l.Close()
	}
	if b.udp != nil {
		b.udp.Close()
	}
	b.serving.Wait()
	if b.process != nil {
		b.process.Process.Kill()
		<-b.exited
	}
	return os.RemoveAll(b.Dir)
}
