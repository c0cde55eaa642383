package doctor

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return m
}

// modern is a host on which everything works.
func modern() map[string]string {
	return map[string]string{
		"proc/sys/user/max_user_namespaces":           "65536",
		"proc/sys/kernel/seccomp/actions_avail":       "kill_process errno allow",
		"proc/self/cgroup":                            "0::/user.slice",
		"proc/self/mountinfo":                         "22 1 0:21 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate",
		"sys/fs/cgroup/user.slice/cgroup.controllers": "cpuset cpu io memory pids",
		"proc/filesystems":                            "nodev\toverlay\n\text4",
	}
}

const hybrid = "22 1 0:21 / /proc rw - proc proc rw\n" +
	"30 1 0:26 / /c/memory rw - cgroup cgroup rw,memory\n31 1 0:27 / /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
	"32 1 0:28 / /c/pids rw - cgroup cgroup rw,pids\n33 1 0:29 / /c/unified rw - cgroup2 cgroup2 rw"

func TestKernelFeatures(t *testing.T) {
	for name, tc := range map[string]struct {
		change   map[string]string // "-" removes a file
		uid      int
		landlock int
		denied   bool
		feature  string
		want     string // state: detail
		fix      string // part of it
	}{
		"user namespaces":               {feature: "user namespaces", want: "yes: "},
		"none built in":                 {change: map[string]string{"proc/sys/user/max_user_namespaces": "-"}, feature: "user namespaces", want: "no: the kernel was built without them", fix: "CONFIG_USER_NS"},
		"set to zero":                   {change: map[string]string{"proc/sys/user/max_user_namespaces": "0"}, feature: "user namespaces", want: "no: user.max_user_namespaces is 0", fix: "sysctl -w user.max_user_namespaces"},
		"for root only, root":           {change: map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0"}, feature: "user namespaces", want: "yes: "},
		"for root only, user":           {uid: 1000, change: map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0"}, feature: "user namespaces", want: "no: not for ordinary users", fix: "unprivileged_userns_clone=1"},
		"AppArmor":                      {uid: 1000, change: map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, feature: "user namespaces", want: "limited: AppArmor restricts them for ordinary users", fix: "AppArmor profile"},
		"seccomp":                       {feature: "seccomp filters", want: "yes: kill_process errno allow"},
		"no seccomp":                    {change: map[string]string{"proc/sys/kernel/seccomp/actions_avail": "-"}, feature: "seccomp filters", want: "no: ", fix: "CONFIG_SECCOMP_FILTER"},
		"Landlock":                      {landlock: 7, feature: "Landlock", want: "yes: ABI 7"},
		"no Landlock":                   {feature: "Landlock", want: "no: the second layer around files is missing", fix: "lsm="},
		"cgroup v2":                     {feature: "cgroup v2", want: "yes: controllers: cpuset cpu io memory pids"},
		"cgroup v2, not delegated":      {uid: 1000, denied: true, feature: "cgroup v2", want: "limited: controllers: cpuset cpu io memory pids; groups cannot be created in /sys/fs/cgroup/user.slice", fix: "Delegate=yes"},
		"cgroup v2, controllers lack":   {change: map[string]string{"sys/fs/cgroup/user.slice/cgroup.controllers": "cpu pids"}, feature: "cgroup v2", want: "no: controllers: cpu pids", fix: "unified_cgroup_hierarchy"},
		"no cgroups":                    {change: map[string]string{"proc/self/mountinfo": ""}, feature: "cgroup v2", want: "no: not mounted"},
		"cgroup v1":                     {change: map[string]string{"proc/self/mountinfo": hybrid}, feature: "cgroup v1", want: "yes: controllers: memory cpu pids"},
		"v2 beside a complete v1":       {change: map[string]string{"proc/self/mountinfo": hybrid}, feature: "cgroup v2", want: "no: controllers: none"},
		"cgroup v1, memory only":        {change: map[string]string{"proc/self/mountinfo": "30 1 0:26 / /c rw - cgroup cgroup rw,memory"}, feature: "cgroup v1", want: "limited: controllers: memory"},
		"cgroup v1, read-only":          {change: map[string]string{"proc/self/mountinfo": "30 1 0:26 / /c ro - cgroup cgroup rw,memory,cpu,pids"}, feature: "cgroup v1", want: "no: controllers: none"},
		"overlayfs":                     {feature: "overlayfs", want: "yes: "},
		"no overlayfs":                  {change: map[string]string{"proc/filesystems": "nodev\tproc"}, feature: "overlayfs", want: "no: not loaded; images other than host need it, and sandboxes of host to write in /usr/local", fix: "modprobe"},
		"proc":                          {uid: 1000, feature: "private /proc", want: "yes: "},
		"covered proc, user":            {uid: 1000, change: map[string]string{"proc/self/mountinfo": "30 1 0:26 / /proc/kcore rw - tmpfs tmpfs rw"}, feature: "private /proc", want: "limited: 1 places in /proc are covered, as in a container", fix: "systempaths"},
		"covered proc, root":            {change: map[string]string{"proc/self/mountinfo": "30 1 0:26 / /proc/kcore rw - tmpfs tmpfs rw"}, feature: "private /proc", want: "yes: 1 places in /proc are covered, as in a container"},
		"binfmt_misc covers nothing":    {uid: 1000, change: map[string]string{"proc/self/mountinfo": "30 1 0:26 / /proc/sys/fs/binfmt_misc rw - autofs x rw"}, feature: "private /proc", want: "yes: "},
		"malformed lines are passed by": {change: map[string]string{"proc/self/mountinfo": "x\n- -\n1 2 - 3\n"}, feature: "cgroup v2", want: "no: not mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			files := modern()
			for f, text := range tc.change {
				files[f] = text
				if text == "-" {
					delete(files, f)
				}
			}
			access := func(string, uint32) error {
				if tc.denied {
					return errors.New("no")
				}
				return nil
			}
			for _, f := range look(tree(files), tc.uid, tc.landlock, access) {
				if f.Name != tc.feature {
					continue
				}
				if got := f.State + ": " + f.Detail; got != tc.want || (f.Fix != "") != (tc.fix != "") || !strings.Contains(f.Fix, tc.fix) {
					t.Errorf("%q, fix %q; want %q, fix %q", got, f.Fix, tc.want, tc.fix)
				}
				return
			}
			t.Error("not in the list")
		})
	}
}

// The real host can be read as well.
func TestThisKernel(t *testing.T) {
	if len(kernelFeatures()) != 10 || kernelRelease() == "" {
		t.Error("features or release are missing")
	}
	if _, ok := os.DirFS("/").(files); !ok {
		t.Error("the root directory cannot be read as a file system")
	}
}
