package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// hostKernel is what uname -r prints outside of machines.
func hostKernel(t *testing.T) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Behind every front end a program of the driver vm runs on a kernel of its own.
func TestMachineBehindEveryFrontEnd(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.VM)
	env := []string{"SANDBOX_TYPE=vm", vmDriver(t, nil), "SANDBAR_III_DEFAULT_MEMORY_MB=512", "SANDBAR_LIMITS_DEFAULT_MEMORY=512MiB", "SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_TEMPLATES=[]"}
	seen := map[string]string{}
	host := hostKernel(t)
	is := func(name, release string) {
		t.Helper()
		seen[name] = strings.TrimSpace(release)
		if r := seen[name]; r == "" || r == host || !strings.HasPrefix(r, "6.") {
			t.Errorf("%s: uname -r prints %q, and on the host %q", name, release, host)
		}
	}
	d, url := iiiDaemon(t, t.TempDir(), env...)
	// The first request can end before the snapshot has booted, with an error that says so.
	fathom := shell(t, d.dial(t), "uname -r")
	for tries := 0; tries < 8 && strings.Contains(fathom, "still booting"); tries++ {
		fathom = shell(t, d.dial(t), "uname -r")
	}
	is("fathom", fathom)
	c := dialIII(t, url)
	id := c.call("sandbox::create", object{"image": "python"})["sandbox_id"]
	is("iii", c.sh(id, "uname -r"))
	ran := c.call("sandbox::run", object{"image": "python", "lang": "python", "code": "import os; print(os.uname().release)"})
	is("iii run", ran["stdout"].(string))
	created := strings.TrimSpace(d.cli(t, "create"))
	is("control", d.cli(t, "exec", created, "--", "uname", "-r"))
	d.endClean(t)
	x := newExecutor(t, nil, env...)
	is("executor", x.run(t, "uname -r"))
	is("eval", asked{env: env, args: []string{"eval", "shell", "-c", "uname -r"}}.run(t).stdout)
	is("run", asked{env: env[1:], args: []string{"run", "--driver", "vm", "host", "--", "uname", "-r"}}.run(t).stdout)
	spoke := asked{env: env[1:], args: []string{"stdio", "--driver", "vm", "--memory-limit", "512"}, stdin: `{"type":"shell","command":"uname -r","id":"1"}` + "\n"}.run(t)
	var answer struct{ Stdout string }
	if err := json.Unmarshal([]byte(spoke.stdout), &answer); err != nil {
		t.Errorf("stdio: %v: %+v", err, spoke)
	}
	is("stdio", answer.Stdout)
	for name, release := range seen {
		if release != seen["iii"] {
			t.Errorf("over %s the kernel is %s, over iii %s", name, release, seen["iii"])
		}
	}
}

// The quickstart of the iii protocol's text runs in machines of an image node, to the letter.
func TestIIIQuickstartOnMachines(t *testing.T) {
	testenv.Need(t, testenv.TestAll, testenv.UserNS, testenv.VM, testenv.DebianImage, testenv.Node, testenv.NpmIII, testenv.PyIII)
	dir := t.TempDir()
	archive := filepath.Join(dir, "node.tar")
	if err := addProgram(testenv.DebianArchive(), archive, "/usr/bin/node"); err != nil {
		t.Fatal(err)
	}
	load := exec.CommandContext(t.Context(), testenv.Build(t, "cmd/sandbar"), "images", "import", archive, "node")
	load.Env = append(environ(), "SANDBAR_STATE_DIR="+filepath.Join(dir, "state"))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d, url := iiiDaemon(t, dir, asDocumented, "SANDBOX_TYPE=vm", vmDriver(t, map[string]string{"cache": machineCache(t)}), "SANDBAR_TEMPLATES=[]")
	c := dialIII(t, url)
	id := c.call("sandbox::create", object{"image": "node"})["sandbox_id"]
	if got := c.sh(id, "uname -r"); strings.TrimSpace(got) == hostKernel(t) {
		t.Errorf("uname -r prints the host's %q", got)
	}
	c.call("sandbox::stop", object{"sandbox_id": id, "wait": true})
	runQuickstart(t, url)
	d.endClean(t)
}

// machineCache returns a new cache directory of the driver vm with the tests' kernel, for roots
// that later runs do not need.
func machineCache(t *testing.T) string {
	t.Helper()
	cache := t.TempDir()
	if err := os.CopyFS(filepath.Join(cache, "kernel"), os.DirFS(filepath.Join(testenv.VMCache(), "kernel"))); err != nil {
		t.Fatal(err)
	}
	return cache
}

// addProgram copies an archive and adds a program of this host at its own path, with the libraries
// that the archive lacks.
func addProgram(from, to, program string) error {
	more := []string{program}
	libraries, err := exec.Command("ldd", program).Output()
	if err != nil {
		return err
	}
	for _, word := range strings.Fields(string(libraries)) {
		if rest, ok := strings.CutPrefix(word, "/lib/"); ok {
			more = append(more, "/usr/lib/"+rest) // /lib is a link to it
		}
	}
	return addFiles(from, to, more)
}

// addFiles copies an archive and adds files of this host that it lacks, at their own paths.
func addFiles(from, to string, files []string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	r, w := tar.NewReader(in), tar.NewWriter(out)
	has := map[string]bool{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			has[filepath.Join("/", h.Name)] = true
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = io.Copy(w, r)
		}
		if err != nil {
			return err
		}
	}
	for _, file := range files {
		if has[file] {
			continue
		}
		has[file] = true
		b, err := os.ReadFile(file)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: "." + file, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(b))})
		}
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), out.Close())
}

// A machine that does not boot is S300 with the last words of its monitor.
func TestIIIMachineDoesNotBoot(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.VM)
	_, url := iiiDaemon(t, t.TempDir(), "SANDBOX_TYPE=vm", vmDriver(t, map[string]string{"qemu": dyingQEMU(t), "cache": machineCache(t)}),
		"SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_TEMPLATES=[]")
	m := dialIII(t, url).invoke("sandbox::create", object{"image": "python"})
	if m.Error == nil {
		t.Fatal("a sandbox was created")
	}
	var f struct {
		Code, Message string
		Retryable     bool
	}
	_, payload, _ := strings.Cut(m.Error.Message, "{") // after the engine's own words
	if err := json.Unmarshal([]byte("{"+payload), &f); err != nil {
		t.Fatalf("%v: %s", err, m.Error.Message)
	}
	if f.Code != "S300" || !strings.Contains(f.Message, lastWords) || len(f.Message) > 1000 {
		t.Errorf("%+v", f)
	}
}

// lastWords is what the false qemu says before it dies.
const lastWords = "qemu-system-x86_64: the false qemu has died"

// beQEMU makes this process a false qemu that dies, if it was started as one.
func beQEMU() {
	if filepath.Base(os.Args[0]) != "qemu-system-x86_64" {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		io.WriteString(os.Stdout, "QEMU emulator version 10.0.2 (false)\n")
		os.Exit(0)
	}
	io.WriteString(os.Stderr, strings.Repeat("x", 10_000)+"\n"+lastWords+"\n")
	os.Exit(1)
}

// dyingQEMU returns the path of a false qemu: a copy of this test binary.
func dyingQEMU(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	// Every user must reach it: a monitor has a uid of its own.
	dir, err := os.MkdirTemp("", "dying-qemu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "bin", "qemu-system-x86_64")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// withoutKVM returns a command that runs in a mount namespace whose /dev/kvm is no KVM.
func withoutKVM(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	script := `[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm && exec "$@"`
	cmd := exec.CommandContext(within(t, 5*time.Minute), "/bin/sh", append([]string{"-c", script, "sh", testenv.Build(t, "cmd/sandbar")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	return cmd
}

// With iii.driver: auto on a host without KVM, the sandboxes of iii are those of the setting
// driver, and log and doctor tell the reason.
func TestIIIDriverAuto(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.UserNS, testenv.VM, testenv.Python)
	dir := t.TempDir()
	address, engine := testenv.FreeAddress(t), testenv.FreeAddress(t)
	env := append(environ(), vmDriver(t, map[string]string{"accelerator": "", "cache": machineCache(t)}), "SANDBAR_III_DRIVER=auto", "SANDBAR_TOKEN="+token,
		"SANDBAR_III_LISTEN="+engine, "SANDBAR_III_IMAGE_ALLOWLIST=python", "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_TEMPLATES=[]",
		"SANDBAR_STATE_DIR="+filepath.Join(dir, "state"), "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "run"))
	d := &daemon{addr: address, dir: dir, cmd: withoutKVM(t, "serve", "--listen", address)}
	var err error
	if d.logs, err = os.CreateTemp(dir, "log-"); err != nil {
		t.Fatal(err)
	}
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = env, d.logs, d.logs
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	d.await(t)
	c := dialIII(t, "ws://"+engine)
	id := c.call("sandbox::create", object{"image": "python"})["sandbox_id"]
	if got := strings.TrimSpace(c.sh(id, "uname -r")); got != hostKernel(t) {
		t.Errorf("uname -r prints %q, and not the host's %q", got, hostKernel(t))
	}
	if said := d.said(); !strings.Contains(said, "iii: sandboxes are not virtual machines") || !strings.Contains(said, "no machine boots on KVM") {
		t.Errorf("the log does not tell the reason:\n%s", said)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}

	doctor := withoutKVM(t, "doctor", "--json")
	doctor.Env = append(env, "SANDBAR_RUNTIME_DIR="+filepath.Join(dir, "other-run"))
	out, err := doctor.Output()
	var report struct {
		Drivers []struct {
			Name  string
			Facts []struct{ Name, State, Fix string }
		}
	}
	if jerr := json.Unmarshal(out, &report); err != nil || jerr != nil {
		t.Fatalf("%v, %v: %s", err, jerr, out)
	}
	facts := map[string]string{}
	for _, d := range report.Drivers {
		for _, f := range d.Facts {
			if d.Name == "vm" {
				facts[f.Name] = f.State + "; " + f.Fix
			}
		}
	}
	for name, want := range map[string]string{"monitor": "QEMU", "kernel": "6.", "root": "option", "accelerator": "tcg (emulation): no machine boots on KVM"} {
		if !strings.Contains(facts[name], want) {
			t.Errorf("doctor: %s is %q, want %q", name, facts[name], want)
		}
	}
}
