package doctor

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The states of a feature.
const (
	yes     = "yes"
	no      = "no"
	limited = "limited"
	unknown = "unknown"
)

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// kernelFeatures returns the features that isolation is built from, as read from /proc.
func kernelFeatures() []Feature {
	f := os.DirFS("/").(files)
	ask := func(what int) (int, error) {
		return unix.PrctlRetInt(unix.PR_GET_SPECULATION_CTRL, uintptr(what), 0, 0, 0)
	}
	return append(look(f, os.Geteuid(), landlockABI(), unix.Access),
		speculation(ask),
		coreScheduling(unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, 0, 0, 0)),
		coreDumps(read(f, "proc/sys/kernel/core_pattern")))
}

// files is the source of the features; a test replaces it.
type files interface {
	ReadFile(name string) ([]byte, error)
}

func look(f files, uid, landlock int, access func(path string, mode uint32) error) []Feature {
	mounts := readMounts(f)
	v2, v1 := cgroup2(f, mounts, access), cgroup1(mounts)
	if v1.State == yes {
		v2.Fix = "" // no fix needed: version 1 enforces the limits
	}
	return []Feature{
		userNamespaces(f, uid),
		seccomp(f),
		landlockFeature(landlock),
		v2, v1,
		overlay(f),
		procfs(mounts, uid),
	}
}

// read returns the content of a one-line file, "" if it cannot be read.
func read(f files, name string) string {
	b, err := f.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func userNamespaces(f files, uid int) Feature {
	out := Feature{Name: "user namespaces", State: yes}
	most, err := strconv.Atoi(read(f, "proc/sys/user/max_user_namespaces"))
	switch {
	case err != nil:
		out.State, out.Detail, out.Fix = no, "the kernel was built without them", "use a kernel with CONFIG_USER_NS"
	case most == 0:
		out.State, out.Detail, out.Fix = no, "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=65536"
	case uid == 0:
	case read(f, "proc/sys/kernel/unprivileged_userns_clone") == "0":
		out.State, out.Detail, out.Fix = no, "not for ordinary users", "sysctl -w kernel.unprivileged_userns_clone=1, or run as root"
	case read(f, "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		out.State, out.Detail = limited, "AppArmor restricts them for ordinary users"
		out.Fix = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give the sandbar binary an AppArmor profile with \"userns,\", or run as root"
	}
	return out
}

func seccomp(f files) Feature {
	actions := read(f, "proc/sys/kernel/seccomp/actions_avail")
	if actions == "" {
		return Feature{Name: "seccomp filters", State: no, Fix: "use a kernel with CONFIG_SECCOMP_FILTER"}
	}
	return Feature{Name: "seccomp filters", State: yes, Detail: actions}
}

func landlockFeature(abi int) Feature {
	if abi == 0 {
		return Feature{Name: "Landlock", State: no, Detail: "the second layer around files is missing",
			Fix: "use a kernel from 5.13 on with landlock in its list of security modules (lsm=…,landlock)"}
	}
	return Feature{Name: "Landlock", State: yes, Detail: "ABI " + strconv.Itoa(abi)}
}

// mount is one line of mountinfo (proc_pid_mountinfo(5)).
type mount struct{ point, kind, options, superOptions string }

func readMounts(f files) []mount {
	b, err := f.ReadFile("proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []mount
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if ok && len(left) >= 6 && len(right) >= 3 {
			out = append(out, mount{left[4], right[0], left[5], right[2]})
		}
	}
	return out
}

// limitControllers are the controllers that enforce limits.
var limitControllers = []string{"memory", "cpu", "pids"}

func cgroup2(f files, mounts []mount, access func(string, uint32) error) Feature {
	out := Feature{Name: "cgroup v2", State: no}
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.kind == "cgroup2" })
	if i < 0 {
		out.Detail = "not mounted"
		return out
	}
	dir := filepath.Join(mounts[i].point, ownCgroup(f))
	controllers := strings.Fields(read(f, strings.TrimPrefix(filepath.Join(dir, "cgroup.controllers"), "/")))
	out.Detail = "controllers: " + orNone(controllers)
	for _, c := range limitControllers {
		if !slices.Contains(controllers, c) {
			out.Fix = "boot with systemd.unified_cgroup_hierarchy=1, or have systemd delegate the controllers (Delegate=yes)"
			return out
		}
	}
	if access(dir, unix.W_OK) != nil {
		out.State, out.Detail = limited, out.Detail+"; groups cannot be created in "+dir
		out.Fix = "run as root, or under \"systemd-run --user --scope -p Delegate=yes\""
		return out
	}
	out.State = yes
	return out
}

// ownCgroup returns this process's version 2 cgroup.
func ownCgroup(f files) string {
	for line := range strings.Lines(read(f, "proc/self/cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return "/"
}

func cgroup1(mounts []mount) Feature {
	var found []string
	for _, m := range mounts {
		if m.kind != "cgroup" {
			continue
		}
		for _, c := range limitControllers {
			if slices.Contains(strings.Split(m.superOptions, ","), c) && slices.Contains(strings.Split(m.options, ","), "rw") {
				found = append(found, c)
			}
		}
	}
	out := Feature{Name: "cgroup v1", State: no, Detail: "controllers: " + orNone(found)}
	switch {
	case len(found) >= len(limitControllers):
		out.State = yes
	case len(found) > 0:
		out.State = limited
	}
	return out
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

func overlay(f files) Feature {
	b, err := f.ReadFile("proc/filesystems")
	if err != nil {
		return Feature{Name: "overlayfs", State: unknown}
	}
	if slices.Contains(strings.Fields(string(b)), "overlay") {
		return Feature{Name: "overlayfs", State: yes}
	}
	return Feature{Name: "overlayfs", State: no, Detail: "not loaded; images other than host need it, and sandboxes of host to write in /usr/local", Fix: "modprobe overlay"}
}

// procfs reports whether a user namespace can mount a new /proc. The kernel allows it only if the
// outer /proc is fully visible; containers mount over parts of theirs (mount_namespaces(7)).
func procfs(mounts []mount, uid int) Feature {
	out := Feature{Name: "private /proc", State: yes}
	var covered []string
	for _, m := range mounts {
		if strings.HasPrefix(m.point, "/proc/") && m.point != "/proc/sys/fs/binfmt_misc" {
			covered = append(covered, m.point)
		}
	}
	if len(covered) == 0 {
		return out
	}
	out.Detail = strconv.Itoa(len(covered)) + " places in /proc are covered, as in a container"
	if uid != 0 {
		out.State, out.Fix = limited, "run outside of the container, or let it see all of /proc (docker run --security-opt systempaths=unconfined)"
	}
	return out
}
