package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// testKernel returns the kernel that scripts/tools.sh has prepared.
func testKernel(t *testing.T) Kernel {
	t.Helper()
	testenv.Need(t, testenv.VMKernel)
	k, err := OpenKernel(testenv.VMCache())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// machineUnderTest is a booted machine.
type machineUnderTest struct {
	conn    net.Conn
	console string // path
}

// bootMachine starts qemu with a root and returns the machine. The test's end kills it.
func bootMachine(t *testing.T, root string, b Boot) machineUnderTest {
	t.Helper()
	k := testKernel(t)
	agent, err := os.ReadFile(testenv.Build(t, "cmd/sandbar-agent"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	initrd, _, err := BuildInitramfs(dir, k, agent)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "port")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// Not a *net.UnixConn, over which the client would pass descriptors.
	m := machineUnderTest{conn: struct{ net.Conn }{conn}, console: filepath.Join(dir, "console")}
	args := []string{"-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-M", "q35,accel=tcg,usb=off,sata=off,smbus=off,vmport=off,graphics=off,i8042=off", "-cpu", "max", "-smp", "1", "-m", "256M",
		"-chardev", "socket,id=agent,fd=3", "-device", "virtio-serial-pci,disable-legacy=on",
		"-device", "virtserialport,chardev=agent,name=" + Port,
		"-chardev", "null,id=network", "-device", "virtserialport,chardev=network,name=" + NetworkPort, "-device", "vmgenid,guid=auto",
		"-serial", "file:" + m.console,
		"-kernel", k.Vmlinux, "-initrd", initrd, "-append", Cmdline(b)}
	if root != "" {
		args = append(args, "-blockdev", "driver=file,filename="+root+",read-only=on,node-name=root", "-device", "virtio-blk-pci,drive=root,disable-legacy=on")
	}
	cmd := exec.Command(testenv.QEMUProgram(), args...)
	cmd.ExtraFiles = []*os.File{theirs}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			console, _ := os.ReadFile(m.console)
			t.Logf("qemu: %s\nconsole: %s", stderr.String(), console)
		}
	})
	return m
}

// copyProgram copies a program of this host to a path of an image, with the libraries that it
// needs.
func copyProgram(t *testing.T, image, path, to string) {
	t.Helper()
	to = filepath.Join(image, to)
	if _, err := os.Stat(to); err == nil {
		return
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			loader := strings.TrimRight(string(name), "\x00")
			copyProgram(t, image, loader, loader)
		}
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib"} {
			library := filepath.Join(dir, name)
			if _, err := os.Stat(library); err == nil {
				copyProgram(t, image, library, library)
				break
			}
		}
	}
}

// imageRoot returns a root with a shell, and with entries that collide with the machine's mounts.
func imageRoot(t *testing.T) Root {
	t.Helper()
	image := t.TempDir()
	for _, program := range []string{"/bin/sh", "/bin/cat", "/bin/uname", "/bin/ls", "/bin/mv", "/bin/rm", "/bin/ln", "/bin/date", "/bin/sleep", "/bin/true", "/usr/bin/od", "/usr/bin/unshare"} {
		copyProgram(t, image, program, program)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyProgram(t, image, self, probeProgram)
	if err := os.Mkdir(filepath.Join(image, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{"etc/passwd": "root:x:0:0::/:/bin/sh\n", "home": "a file where the home is", "tmp": "another"} {
		if err := os.WriteFile(filepath.Join(image, path), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(image, "dev")); err != nil {
		t.Fatal(err)
	}
	r, err := BuildRoot(t.Context(), t.TempDir(), func(ctx context.Context) (*Tree, error) {
		return ImageTree(ctx, "sha256:test", image)
	}, RootOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBoot boots a machine and looks at it as the host does: through the agent.
func TestBoot(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.VMKernel)
	const disk = 8 << 20
	m := bootMachine(t, imageRoot(t).Path, Boot{Disk: disk, Inodes: 500, Console: true})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	start := time.Now()
	box, err := client.New(ctx, m.conn, client.Options{Destroy: func(context.Context) error { return m.conn.Close() }})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Destroy(context.Background())
	t.Logf("hello after %v", time.Since(start).Round(time.Millisecond))
	filter, err := policy.CompilePrograms("amd64", policy.TagLocks)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := box.Setup(ctx, &wire.Setup{Dir: sandbar.DefaultDir, Capabilities: policy.MachineCapabilities(), ProgramSeccomp: filter, PIDs: testPIDs, Env: []string{"PATH=/bin:/usr/bin", "HOME=" + sandbar.DefaultDir}}); err != nil {
		t.Fatal(err)
	}
	fs := box.FS()
	var sh shell = func(script string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: &stdout, Stderr: &stderr})
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		end, err := p.Wait()
		if err != nil || end.ExitCode != 0 {
			t.Errorf("%s: %+v, %v: %s", script, end, err, stderr.String())
		}
		return strings.TrimSpace(stdout.String())
	}
	for script, want := range map[string]string{
		"pwd; echo ~":              sandbar.DefaultDir + "\n" + sandbar.DefaultDir,
		"uname -r":                 testKernel(t).Release,
		"uname -n":                 "sandbar",
		"cat /proc/1/comm":         "sandbar-agent",
		"cat /etc/passwd":          "root:x:0:0::/:/bin/sh",
		"cd /dev && echo *":        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
		"cd /etc && echo *":        "hostname hosts machine-id mtab passwd resolv.conf",
		"ls -A /sys /tmp /dev/shm": "/dev/shm:\n\n/sys:\n\n/tmp:",
		"ls -A /home":              "user",
		"ls -dn /home/user /tmp /dev/shm | while read mode n uid gid rest; do echo $mode $uid:$gid; done": "drwxrwxrwt 0:0\ndrwxr-xr-x 0:0\ndrwxrwxrwt 0:0",
		"echo hello >/dev/null && echo yes": "yes",
		// The root's own mounts, and nothing of the initial file system.
		"while read dev dir type rest; do case $dir in /proc/*) ;; *) echo $dir $type;; esac; done </proc/mounts": "/ overlay\n/tmp tmpfs\n/home/user overlay\n/dev tmpfs\n/dev/pts devpts\n/dev/shm tmpfs\n/proc proc",
		"cat /proc/cmdline | { read line; case $line in *sandbar.disk=8388608*) echo yes; esac; }":                "yes",
	} {
		if got := sh(script); got != want {
			t.Errorf("%s prints %q, want %q", script, got, want)
		}
	}

	t.Run("rights", func(t *testing.T) { testRights(t, sh) })
	t.Run("memory", func(t *testing.T) { testMemory(t, box, sh) })
	t.Run("processes", func(t *testing.T) { testProcesses(t, box, sh) })
	t.Run("renew", func(t *testing.T) { testRenew(t, box, sh) })

	// All writable directories share one bound.
	fill := func(path string, n int) error {
		w, err := fs.Create(ctx, path, sandbar.CreateOptions{})
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := w.Write(make([]byte, n)); err != nil {
			return err
		}
		return w.Commit()
	}
	if err := fill("/tmp/half", disk*3/4); err != nil {
		t.Errorf("writing three quarters of the bound: %v", err)
	}
	for _, path := range []string{"/dev/shm/more", "/home/user/more", "/bin/more"} {
		if err := fill(path, disk/2); sandbar.CodeOf(err) != sandbar.NoSpace {
			t.Errorf("writing %s beyond the bound: %v, want %s", path, err, sandbar.NoSpace)
		}
	}
}

// shell runs a script in a machine, which must succeed, and returns its output without surrounding
// space.
type shell func(script string) string

// testRenew renews a machine twice, the second time after a program has planted files.
func testRenew(t *testing.T, box *client.Sandbox, sh shell) {
	renewal := wire.Renew{Hostname: "first", MachineID: "0123456789abcdef0123456789abcdef"}
	seen := map[string]bool{sh("cat /proc/sys/kernel/random/boot_id"): true}
	check := func() {
		t.Helper()
		start := time.Now()
		if err := box.Renew(t.Context(), renewal); err != nil {
			t.Fatal(err)
		}
		t.Logf("renewed in %v", time.Since(start).Round(time.Microsecond))
		for script, want := range map[string]string{
			"uname -n":            renewal.Hostname,
			"cat /etc/hostname":   renewal.Hostname,
			"cat /etc/machine-id": renewal.MachineID,
			"cat /etc/hosts":      "127.0.0.1\tlocalhost " + renewal.Hostname + "\n::1\tlocalhost ip6-localhost ip6-loopback",
			"ls -A /etc":          "hostname\nhosts\nmachine-id\nmtab\npasswd\nresolv.conf",
		} {
			if got := sh(script); got != want {
				t.Errorf("%s prints %q, want %q", script, got, want)
			}
		}
		random := sh("od -An -tx1 -N32 /dev/random")
		id := sh("cat /proc/sys/kernel/random/boot_id")
		if len(id) != 36 || seen[id] {
			t.Errorf("boot id %q repeats", id)
		}
		seen[id] = true
		if random == "" || seen[random] {
			t.Errorf("random bytes %q repeat", random)
		}
		seen[random] = true
	}
	check()
	sh("echo planted >/tmp/planted; rm /etc/machine-id; ln -s /tmp/planted /etc/machine-id")
	renewal.Hostname, renewal.MachineID = "second.example", "fedcba9876543210fedcba9876543210"
	check()
	if got := sh("cat /tmp/planted; rm /tmp/planted"); got != "planted" {
		t.Errorf("a file of a program has %q", got)
	}

	// The machine is late by the transport of the frame.
	renewal.Time = 1e18
	if err := box.Renew(t.Context(), renewal); err != nil {
		t.Fatal(err)
	}
	if got := sh("date +%Y"); got != "2001" {
		t.Errorf("the year is %s, want 2001", got)
	}
	renewal.Time = 0
	fs, near := box.FS(), false
	for range 10 {
		sent := time.Now()
		if err := box.Renew(t.Context(), renewal); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		w, err := fs.Create(t.Context(), "/tmp/now", sandbar.CreateOptions{})
		if err == nil {
			err = w.Commit()
		}
		after := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		info, err := fs.Stat(t.Context(), "/tmp/now")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("renewed in %v; a file written between 0 and %v has the time %v", before.Sub(sent), after.Sub(before), info.ModTime.Sub(before))
		if info.ModTime.Before(sent.Add(-clockError)) || info.ModTime.After(after.Add(clockError)) {
			t.Errorf("the machine's clock is off by more than %v besides the transport", clockError)
		}
		near = near || !info.ModTime.Before(before.Add(-clockError))
	}
	if !near {
		t.Errorf("the machine's clock is always late by more than %v", clockError)
	}
	sh("rm /tmp/now")
}

// clockError bounds the error of a machine's clock after Renew, without the transport of the frame.
// The kernel's file times are up to 4 ms old (CONFIG_HZ=250).
const clockError = 10 * time.Millisecond

// TestBootFails checks that a machine that cannot boot says why and powers off.
func TestBootFails(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.VMKernel)
	broken := filepath.Join(t.TempDir(), "root")
	if err := os.WriteFile(broken, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	m := bootMachine(t, broken, Boot{})
	m.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	b, err := io.ReadAll(m.conn) // until the machine is off
	if err != nil || !strings.HasPrefix(string(b), FailurePrefix+"mount the root's lower layer: ") {
		t.Errorf("a machine with a broken root: %q, %v", b, err)
	}
}
