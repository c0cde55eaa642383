package native

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/outfit"
	"github.com/sandbar-dev/sandbar/internal/policy"
)

// optionPaths is the option that adds directories of the host to sandboxes.
const optionPaths = "paths"

// parseOptions reads the driver's section of the configuration.
func parseOptions(options map[string]string) (extra []string, err error) {
	for k, v := range options {
		if k != optionPaths {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "drivers.native." + k,
				Message: "the native driver has no option " + sandbar.Quote(k, 40) + "; it has: " + optionPaths}
		}
		for _, p := range strings.Split(v, ":") {
			if p == "" {
				continue
			}
			if err := policy.CheckExtra(p); err != nil {
				return nil, err
			}
			extra = append(extra, p)
		}
	}
	return extra, nil
}

// fewestMarks is how many programs one sandbox must be able to start: the agent
// refuses to work with less.
const fewestMarks = 1 << 16

// probe checks what the driver cannot do without.
func probe() error {
	lack := func(what, fix string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the native driver cannot run here: " + what, Fix: fix}
	}
	if !kernelAtLeast(5, 12) {
		return lack("the kernel is older than 5.12, which brought mount_setattr", "use a newer kernel, or another driver")
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return lack("the kernel has no user namespaces", "use a kernel with CONFIG_USER_NS, or another driver")
	}
	if n := outfit.HardLimit(unix.RLIMIT_LOCKS); n < fewestMarks {
		return lack("the limit of file locks is "+strconv.FormatUint(n, 10)+", and programs are told apart by numbers up to that limit, which nothing else uses",
			"start the daemon without that limit (ulimit -Hx unlimited, LimitLOCKS in systemd)")
	}
	if n, ok := sysctl("/proc/sys/user/max_user_namespaces"); ok && n == 0 {
		return lack("user namespaces are switched off", "as root: sysctl user.max_user_namespaces=10000")
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if n, ok := sysctl("/proc/sys/kernel/unprivileged_userns_clone"); ok && n == 0 {
		return lack("ordinary users may not make user namespaces", "as root: sysctl kernel.unprivileged_userns_clone=1, or run sandbar as root")
	}
	if n, ok := sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && n == 1 {
		return lack("AppArmor keeps ordinary users from using user namespaces",
			"as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give sandbar an AppArmor profile with \"userns,\", or run it as root")
	}
	return nil
}

func sysctl(path string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

// kernelAtLeast compares the running kernel's version.
func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	parts := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	if len(parts) < 2 {
		return false
	}
	x, _ := strconv.Atoi(parts[0])
	y, _ := strconv.Atoi(strings.TrimFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' }))
	return x > major || (x == major && y >= minor)
}
