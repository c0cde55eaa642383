package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// mergedHost is a host whose /bin etc. are links into /usr.
func mergedHost() HostRootOptions {
	return HostRootOptions{
		Dirs: []HostDir{{"/usr", ""}, {"/bin", "usr/bin"}, {"/sbin", "usr/sbin"}, {"/lib", "usr/lib"}, {"/lib64", "/usr/lib64"}, {"/usr/local/etc", ""}},
		Etc:  []string{"java-17-openjdk", "java-8-openjdk", "javascript", "passwd", "shadow"},
		Disk: 64 << 20, Inodes: 1000, UID: 1000, GID: 1000, Ranged: true, Hostname: "sandbox",
		Local: []string{"", "bin", "lib", "lib/python3.11", "lib/python3.11/dist-packages"},
	}
}

// oldHost is a host with real directories, and an ordinary user's daemon.
func oldHost() HostRootOptions {
	return HostRootOptions{
		Dirs:  []HostDir{{"/bin", ""}, {"/lib64", "/system/lib64"}, {"/usr", ""}, {"/lib", ""}, {"/usr/local/etc", ""}},
		Extra: []string{"/opt/b/c", "/opt/python", "/opt/b", "/usr/games", "/usr/local/etc", "/home/alice/venv", "/var/lib/model", "/opt/b", "/etc/perl/XML", "/etc/php"},
		Disk:  sandbar.Unlimited, Inodes: sandbar.Unlimited, UID: 1000, GID: 100, Hostname: "old",
		MachineID: "0123456789abcdef0123456789abcdef",
	}
}

// Sandboxes have "python" if the host has python3, even if the host has no "python".
func TestPythonLink(t *testing.T) {
	for python, want := range map[string]bool{"/usr/bin/python3": true, "": false} {
		o := mergedHost()
		o.Python = python
		steps, err := HostRoot(o)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(steps, func(m wire.Mount) bool {
			return m.Kind == wire.MountSymlink && m.Target == LinksDir+"/python" && m.Source == python
		})
		if found != want {
			t.Errorf("%q: a link is %v", python, found)
		}
	}
}

func TestHostRootGolden(t *testing.T) {
	for name, o := range map[string]HostRootOptions{"merged": mergedHost(), "old": oldHost()} {
		t.Run(name, func(t *testing.T) {
			steps, err := HostRoot(o)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "root_"+name+".txt", planText(steps))
		})
	}
}

// planText prints a plan, one step per line.
func planText(steps []wire.Mount) string {
	var b strings.Builder
	for _, m := range steps {
		fmt.Fprintf(&b, "%-8s %s", kindText(m.Kind), m.Target)
		switch m.Kind {
		case wire.MountSymlink:
			fmt.Fprintf(&b, " -> %s", m.Source)
		case wire.MountFile:
			fmt.Fprintf(&b, " %q mode=%04o", m.Source, m.Mode)
		case wire.MountBind, wire.MountBindInner, wire.MountAttach, wire.MountOverlay:
			fmt.Fprintf(&b, " from=%s", m.Source)
		case wire.MountProc:
			if m.Source != "" {
				b.WriteString(" " + m.Source)
			}
		case wire.MountTmpfs:
			fmt.Fprintf(&b, " size=%d inodes=%d", m.Size, m.Inodes)
		}
		if m.Kind == wire.MountTmpfs || m.Kind == wire.MountMkdir {
			fmt.Fprintf(&b, " mode=%04o owner=%d:%d", m.Mode, m.UID, m.GID)
		}
		b.WriteString(flagText(m.Flags) + "\n")
	}
	return b.String()
}

func kindText(k wire.MountKind) string {
	return map[wire.MountKind]string{wire.MountTmpfs: "tmpfs", wire.MountBind: "bind", wire.MountProc: "proc", wire.MountDevpts: "devpts",
		wire.MountMkdir: "mkdir", wire.MountSymlink: "symlink", wire.MountFile: "file", wire.MountBindInner: "inner",
		wire.MountMask: "mask", wire.MountSetFlags: "reseal", wire.MountAttach: "attach", wire.MountOverlay: "overlay", wire.MountRoot: "root",
		wire.MountReplaceFile: "cover", wire.MountMaskOthers: "masks"}[k]
}

func flagText(f uint32) string {
	var words []string
	for _, w := range []struct {
		flag uint32
		name string
	}{{wire.MountReadOnly, "ro"}, {wire.MountNoSuid, "nosuid"}, {wire.MountNoDev, "nodev"}, {wire.MountNoExec, "noexec"}, {wire.MountOptional, "optional"}} {
		if f&w.flag != 0 {
			words = append(words, w.name)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " " + strings.Join(words, ",")
}

// checkPlan checks a plan against the invariants of all plans.
func checkPlan(o HostRootOptions, steps []wire.Mount) error {
	made := map[string]bool{"/": true} // the paths that exist in the new root
	links := map[string]bool{}
	for i, m := range steps {
		if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target {
			return fmt.Errorf("step %d: the target %q is not a plain absolute path", i, m.Target)
		}
		for dir := path.Dir(m.Target); dir != "/"; dir = path.Dir(dir) {
			if links[dir] {
				return fmt.Errorf("step %d: %s would be made through the link %s", i, m.Target, dir)
			}
		}
		if made[m.Target] && (m.Kind == wire.MountBind && !slices.Contains(o.Extra, m.Target) || m.Kind == wire.MountFile || m.Kind == wire.MountSymlink) {
			return fmt.Errorf("step %d: %s is already there", i, m.Target)
		}
		switch m.Kind {
		case wire.MountFile, wire.MountSymlink:
			if !made[path.Dir(m.Target)] {
				return fmt.Errorf("step %d: %s comes before its directory", i, m.Target)
			}
		case wire.MountBindInner:
			if base := m.Source; !made[base] && !strings.HasPrefix(base, "/proc/") {
				return fmt.Errorf("step %d: %s comes before its source %s", i, m.Target, base)
			}
			if err := checkInner(m); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		case wire.MountBind:
			if err := checkBind(o, m); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
		case wire.MountOverlay:
			if m.Target != "/usr/local" || m.Source != stagingDir || m.Flags != writable|wire.MountOptional {
				return fmt.Errorf("step %d: an overlay %+v", i, m)
			}
		}
		if m.Kind == wire.MountSymlink {
			links[m.Target] = true
		}
		for dir := m.Target; dir != "/"; dir = path.Dir(dir) {
			made[dir] = true
		}
	}
	for _, name := range []string{"/etc", "/dev"} {
		if !slices.Contains(steps, wire.Mount{Kind: wire.MountSetFlags, Target: name, Flags: sealed}) {
			return fmt.Errorf("%s is not sealed", name)
		}
	}
	return nil
}

// checkInner: a directory that is mounted a second time is nosuid and nodev, and the layers of the
// overlay are visible only through the overlay.
func checkInner(m wire.Mount) error {
	if m.Flags&wire.MountNoSuid == 0 || m.Flags&wire.MountNoDev == 0 {
		return fmt.Errorf("%s honours setuid, or devices work in it", m.Target)
	}
	for _, layer := range []string{"/lower", "/upper", "/work"} {
		if beneath(m.Source, stagingDir+layer) || m.Source == stagingDir && m.Target != stagingDir {
			return fmt.Errorf("%s is shown as %s", m.Source, m.Target)
		}
	}
	return nil
}

// checkBind: everything from the host is read-only and nosuid, and nothing comes from a private
// directory of a user.
func checkBind(o HostRootOptions, m wire.Mount) error {
	if m.Source != m.Target {
		return fmt.Errorf("%s of the host appears as %s", m.Source, m.Target)
	}
	if m.Flags&(wire.MountReadOnly|wire.MountNoSuid) != wire.MountReadOnly|wire.MountNoSuid {
		return fmt.Errorf("%s is writable or honours setuid", m.Source)
	}
	if m.Flags&wire.MountNoDev == 0 && !strings.HasPrefix(m.Source, "/dev/") {
		return fmt.Errorf("devices in %s work", m.Source)
	}
	if slices.Contains(o.Extra, m.Source) {
		return nil
	}
	for _, private := range []string{"/root", "/home", "/var", "/run", "/tmp", "/proc", "/sys", "/boot", "/mnt", "/media", "/srv", "/opt",
		"/etc/passwd", "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/docker", "/etc/kubernetes",
		"/etc/sudoers", "/etc/machine-id", "/etc/hosts", "/etc/resolv.conf", "/etc/npmrc", "/etc/pip.conf", "/etc/gitconfig", "/etc/profile", "/etc/environment"} {
		if beneath(m.Source, private) || beneath(private, m.Source) {
			return fmt.Errorf("%s of the host is shown", m.Source)
		}
	}
	return nil
}

func TestHostRootKeepsItsPromises(t *testing.T) {
	for name, o := range map[string]HostRootOptions{"merged": mergedHost(), "old": oldHost()} {
		steps, err := HostRoot(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPlan(o, steps); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		steps, err := HostRoot(o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if err := checkPlan(o, steps); err != nil {
			t.Fatalf("%v\n%s", err, planText(steps))
		}
	})
}

// drawOptions returns any host that HostRoot accepts.
func drawOptions(t *rapid.T) HostRootOptions {
	o := HostRootOptions{
		Dirs:   []HostDir{{"/usr", ""}},
		Disk:   rapid.Int64Range(1, 1<<62).Draw(t, "disk"),
		Inodes: rapid.Int64Range(1, 1<<62).Draw(t, "inodes"),
		UID:    rapid.Uint32().Draw(t, "uid"), GID: rapid.Uint32().Draw(t, "gid"),
		Ranged: rapid.Bool().Draw(t, "ranged"), Hostname: "h",
		Etc: rapid.SliceOf(rapid.SampledFrom([]string{"java-17-openjdk", "shadow", "java", "ssh", "..", "a/../shadow"})).Draw(t, "etc"),
	}
	slices.Sort(o.Etc)
	o.Etc = slices.Compact(o.Etc)
	if rapid.Bool().Draw(t, "local") {
		o.Local = []string{"", "bin", "lib/python3.11/dist-packages"}
	}
	for _, name := range HostDirs()[1:] {
		switch rapid.IntRange(0, 4).Draw(t, name) {
		case 0:
			o.Dirs = append(o.Dirs, HostDir{name, ""})
		case 1:
			o.Dirs = append(o.Dirs, HostDir{name, "usr" + name})
		case 2:
			o.Dirs = append(o.Dirs, HostDir{name, "/usr" + name})
		case 3:
			o.Dirs = append(o.Dirs, HostDir{name, "/elsewhere/../root"})
		}
	}
	part := rapid.SampledFrom([]string{"opt", "etc", "usr", "var", "home", "user", "local", "lib", "a", "bin", "tmp", "ssl", "perl", ".scratch"})
	for _, parts := range rapid.SliceOfN(rapid.SliceOfN(part, 1, 4), 0, 6).Draw(t, "extra") {
		if p := "/" + path.Join(parts...); CheckExtra(p) == nil {
			o.Extra = append(o.Extra, p)
		}
	}
	return o
}

// TestHostRootBounds: the size of the one writable file system is that of the limits plus that of
// its initial files, and no other file system is writable without a bound.
func TestHostRootBounds(t *testing.T) {
	plain := func(o *HostRootOptions) {}
	// The root; bin, etc, home, home/user, lib, lib64, opt, run, sbin, srv, tmp, usr, var, var/run,
	// var/tmp; dev with six devices, five links and pts and shm; proc with etc and shm, the empty
	// file that masks show; lower; upper and four directories in it, work with two inodes.
	const own, local = 1 + 15 + 14 + 3 + 1, 1 + 5 + 3
	for _, tt := range []struct {
		disk, inodes         int64
		change               func(*HostRootOptions)
		wantSize, wantInodes int64
	}{
		{1, 1, plain, 1, own + local + 1},
		{64 << 20, 1000, plain, 64 << 20, own + local + 1000},
		{64 << 20, 1000, func(o *HostRootOptions) { o.Local = nil }, 64 << 20, own + 1000},
		{64 << 20, 1000, func(o *HostRootOptions) { o.Local, o.Omit = nil, Proc }, 64 << 20, own - 1 + 1000},
		{64 << 20, 1000, func(o *HostRootOptions) { o.BootID = "01234567-89ab-4cde-8f01-23456789abcd" }, 64<<20 + 4096, own + local + 1 + 1000},
		{64 << 20, 1000, func(o *HostRootOptions) { o.Extra = []string{"/opt/a/b"} }, 64 << 20, own + local + 2 + 1000},
		{sandbar.Unlimited, sandbar.Unlimited, plain, 1 << 50, 1 << 40},
		{1 << 62, 1<<63 - 5, plain, 1 << 50, 1 << 40},
	} {
		o := mergedHost()
		o.Disk, o.Inodes = tt.disk, tt.inodes
		tt.change(&o)
		steps, err := HostRoot(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range steps {
			switch {
			case m.Kind != wire.MountTmpfs:
			case m.Target == "/etc":
				if m.Size <= 0 || m.Inodes <= 0 {
					t.Errorf("/etc has no bound: %+v", m)
				}
			case m.Target != "/":
				t.Errorf("a file system of its own at %s", m.Target)
			case m.Size != tt.wantSize || m.Inodes != tt.wantInodes:
				t.Errorf("disk %d, inodes %d: size %d, inodes %d; want %d, %d", tt.disk, tt.inodes, m.Size, m.Inodes, tt.wantSize, tt.wantInodes)
			}
		}
		home := wire.Mount{Kind: wire.MountBindInner, Source: Writable()[0], Target: Writable()[0], Flags: writable}
		if !slices.Contains(steps, home) {
			t.Errorf("%s is no mount of its own", home.Target)
		}
	}
}

// TestHostRootOwners: with one id in the namespace no other id is used; with a range, programs own
// exactly their own directories.
func TestHostRootOwners(t *testing.T) {
	theirs := []string{"/proc/etc", "/home", "/home/user", "/opt", "/run", "/srv", "/var"}
	for _, ranged := range []bool{true, false} {
		o := mergedHost()
		o.Ranged, o.UID, o.GID = ranged, 4321, 1234
		steps, err := HostRoot(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range steps {
			if m.Kind != wire.MountTmpfs && m.Kind != wire.MountMkdir {
				continue
			}
			programs := m.UID == 4321 && m.GID == 1234
			agent := m.UID == 0 && m.GID == 0
			switch {
			case !ranged && !programs:
				t.Errorf("%s belongs to %d:%d, which is not mapped", m.Target, m.UID, m.GID)
			case !ranged:
			case slices.Contains(theirs, m.Target) || beneath(m.Target, stagingDir+"/upper"):
				if !programs {
					t.Errorf("%s belongs to %d:%d, and is for programs", m.Target, m.UID, m.GID)
				}
			case !agent:
				t.Errorf("%s belongs to %d:%d", m.Target, m.UID, m.GID)
			}
			if ranged && agent && m.Mode&0o002 != 0 && m.Mode&0o1000 == 0 {
				t.Errorf("programs can replace what is in %s", m.Target)
			}
		}
	}
}

func TestPasswd(t *testing.T) {
	for _, tt := range []struct {
		uid, gid uint32
		want     string
		group    string
	}{
		{1000, 100, "user:x:1000:100:user:/home/user:/bin/sh\nroot:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n", "user:x:100:\nroot:x:0:\nnogroup:x:65534:\n"},
		{0, 0, "user:x:0:0:user:/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n", "user:x:0:\nnogroup:x:65534:\n"},
		{65534, 65534, "user:x:65534:65534:user:/home/user:/bin/sh\nroot:x:0:0:root:/:/usr/sbin/nologin\n", "user:x:65534:\nroot:x:0:\n"},
	} {
		o := HostRootOptions{UID: tt.uid, GID: tt.gid}
		if got := passwd(o); got != tt.want {
			t.Errorf("passwd of %d: %q, want %q", tt.uid, got, tt.want)
		}
		if got := group(o); got != tt.group {
			t.Errorf("group of %d: %q, want %q", tt.gid, got, tt.group)
		}
	}
}

func TestHostRootRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*HostRootOptions){
		"no /usr":               func(o *HostRootOptions) { o.Dirs = o.Dirs[1:] },
		"/usr is a link":        func(o *HostRootOptions) { o.Dirs[0].Link = "system/usr" },
		"a directory not ours":  func(o *HostRootOptions) { o.Dirs = append(o.Dirs, HostDir{Name: "/home"}) },
		"no disk":               func(o *HostRootOptions) { o.Disk = 0 },
		"negative disk":         func(o *HostRootOptions) { o.Disk = -2 },
		"no inodes":             func(o *HostRootOptions) { o.Inodes = 0 },
		"negative inodes":       func(o *HostRootOptions) { o.Inodes = -7 },
		"no host name":          func(o *HostRootOptions) { o.Hostname = "" },
		"a line in a host name": func(o *HostRootOptions) { o.Hostname = "a\n127.0.0.2 evil" },
		"long host name":        func(o *HostRootOptions) { o.Hostname = strings.Repeat("a", 64) },
		"short machine id":      func(o *HostRootOptions) { o.MachineID = "abc" },
		"machine id not hex":    func(o *HostRootOptions) { o.MachineID = strings.Repeat("Z", 32) },
		"boot id not a UUID":    func(o *HostRootOptions) { o.BootID = strings.Repeat("0", 36) },
		"an extra that is /":    func(o *HostRootOptions) { o.Extra = []string{"/"} },
	} {
		o := mergedHost()
		spoil(&o)
		if steps, err := HostRoot(o); sandbar.CodeOf(err) != sandbar.Invalid || steps != nil {
			t.Errorf("%s: %d steps, %v; want an Invalid error", name, len(steps), err)
		}
	}
}

func TestCheckExtra(t *testing.T) {
	for _, p := range []string{"/opt", "/opt/python", "/usr/local/etc", "/etc/php", "/home/alice/venv", "/var/lib/model", "/nix/store", "/srv/x", "/runtime", "/etc/ssl/private2", "/opt/a b"} {
		if err := CheckExtra(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{"", ".", "opt", "../opt", "/", "//opt", "/opt/", "/opt/../root", "/opt/./x", "/opt\x00x", "/" + strings.Repeat("a", 1024),
		"/proc", "/proc/1", "/sys", "/dev", "/dev/kvm", "/run", "/run/docker.sock", "/var/run", "/var/run/docker.sock", "/var", "/boot", "/root", "/root/venv",
		"/tmp", "/tmp/x", "/home", "/home/user", "/home/user/x", "/etc", "/etc/passwd", "/etc/shadow", "/etc/ssh", "/etc/ssl", "/etc/ssl/private/key.pem",
		"/etc/docker", "/etc/mtab", "/usr/local/etc/npmrc"} {
		if err := CheckExtra(p); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%q: %v; want an Invalid error", p, err)
		}
	}
}

// TestRowsSayWhy: every row of every table has a reason, and no row occurs twice.
func TestRowsSayWhy(t *testing.T) {
	for name, rows := range map[string][]row{
		"hostDirs": hostDirs(), "localRows": localRows(), "programMasks": maskedHostDirs(), "etcRows": etcRows(), "deviceRows": deviceRows(),
		"procReadOnly": procReadOnly(), "procShown": procShown(), "procMasks": procMasks(), "never": forbiddenExtra(), "imageUpperDirs": imageUpperDirs(),
	} {
		seen := map[string]bool{}
		for _, r := range rows {
			if strings.TrimSpace(r.why) == "" {
				t.Errorf("%s: %s does not say why", name, r.path)
			}
			if seen[r.path] || !path.IsAbs(r.path) || path.Clean(r.path) != r.path {
				t.Errorf("%s: %s stands twice or is no plain path", name, r.path)
			}
			seen[r.path] = true
		}
	}
	for _, f := range etcFiles(oldHost()) {
		if f.why == "" {
			t.Errorf("%s does not say why", f.path)
		}
	}
	for _, r := range landlockRows() {
		if r.why == "" {
			t.Errorf("Landlock: %s does not say why", r.path)
		}
	}
	for _, r := range rlimitRows(sandbar.Limits{}, RlimitOptions{}) {
		if r.why == "" {
			t.Errorf("rlimit %d does not say why", r.resource)
		}
	}
}

// TestMasksCoverOthers: the files of /proc that runc and Docker mask or make read-only are masked
// or read-only here. procReadOnly explains sysrq-trigger. The rest of their lists is in /sys, which
// does not exist here.
func TestMasksCoverOthers(t *testing.T) {
	held := append(procMasks(), procReadOnly()...)
	for _, p := range []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"} {
		if !slices.ContainsFunc(held, func(r row) bool { return r.path == p }) {
			t.Errorf("%s is open", p)
		}
	}
}

// TestProcIsAllowed: on every host, plans show the files of procShown and no others of /proc, and a
// boot id that is not the host's.
func TestProcIsAllowed(t *testing.T) {
	const id = "01234567-89ab-4cde-8f01-23456789abcd"
	host, image := mergedHost(), someImage()
	host.BootID, image.BootID = id, id
	hostPlan, err := HostRoot(host)
	if err != nil {
		t.Fatal(err)
	}
	imagePlan, err := ImageRoot(image)
	if err != nil {
		t.Fatal(err)
	}
	for at, steps := range map[string][]wire.Mount{"": hostPlan, imageRoot: imagePlan} {
		names := strings.Join(procNames(), " ")
		if !slices.Contains(steps, wire.Mount{Kind: wire.MountMaskOthers, Source: names, Target: at + "/proc"}) {
			t.Errorf("%q: /proc is not masked but for %s", at, names)
		}
		if !slices.Contains(steps, wire.Mount{Kind: wire.MountReplaceFile, Source: id + "\n", Target: at + bootID}) {
			t.Errorf("%q: the boot id is the host's", at)
		}
	}
	for _, r := range procMasks() {
		if name, ok := strings.CutPrefix(r.path, "/proc/"); ok && ProcShown(name) {
			t.Errorf("%s is shown and masked", r.path)
		}
	}
	for _, name := range []string{"self", "meminfo", "1", "4194304"} {
		if !ProcShown(name) {
			t.Errorf("%s is not shown", name)
		}
	}
	got := ProcMasks("spl", "meminfo", "17", "vmstat", "sysrq-trigger")
	if n := len(procMasks()); len(got) != n+1 || got[n] != "/proc/spl" {
		t.Errorf("a runtime's masks end with %q", got[n:])
	}
}
