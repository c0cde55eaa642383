package native

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// slotDriver returns a driver with slots.
func slotDriver(t testing.TB) *Driver {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.UserNS)
	d := newDriver(t)
	d.reuse = true
	if !d.TakesOneShots(spec(d)) {
		t.Fatal("this host has no slots")
	}
	return d
}

// ended is the end of a program.
type ended struct {
	sandbar.Result
	out, err string
}

// once runs a shell program in a slot.
func once(t testing.TB, d *Driver, s sandbar.Spec, o driver.OneShot) ended {
	t.Helper()
	e, err := tryOnce(t.Context(), d, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func tryOnce(ctx context.Context, d *Driver, s sandbar.Spec, o driver.OneShot) (ended, error) {
	var out, errOut bytes.Buffer
	sb, p, err := d.RunOnce(ctx, sandbar.NewID(), s, o, driver.Stdio{Stdout: &out, Stderr: &errOut})
	if err != nil {
		return ended{}, err
	}
	r, err := p.Wait()
	return ended{r, out.String(), errOut.String()}, errors.Join(err, sb.Destroy(context.WithoutCancel(ctx)))
}

func shellOnce(code string, args ...string) driver.OneShot {
	return driver.OneShot{Cmd: sandbar.Cmd{Args: append([]string{"sh", "main.sh"}, args...)}, File: sandbar.DefaultDir + "/main.sh", Code: code}
}

// look prints what a program sees of its sandbox, and what it may do there.
const look = `
run() { echo "== $*"; "$@" 2>&1; echo "= $?"; }
run id
run umask
run pwd
run env
run hostname
echo == status; grep -v -E '^(Pid|PPid|NSpid|NSpgid|NStgid|NSsid|Tgid|Vm|Rss|Hugetlb|Threads|voluntary|nonvoluntary|Cpus|Mems|Sig|Shd|FDSize|State|Name|Seccomp_filters|untag|x86_Thread)' /proc/self/status
echo == limits; grep -v 'Max file locks' /proc/self/limits
for f in oom_score_adj timerslack_ns cgroup loginuid sessionid uid_map gid_map setgroups coredump_filter personality autogroup; do echo "== $f"; cat /proc/self/$f 2>&1; done
for f in /proc/sys/user/*; do echo "$f $(cat $f)"; done
cat /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern /proc/net/dev | sed 's/[0-9][0-9 ]*$//'
echo == roots; ls -laR / --ignore=proc --ignore=usr --ignore='[0-9]*' 2>&1 | sed -E 's/ +[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / DATE /; s/^total .*/total/; s/^(d[^ ]+ +[0-9]+ +[^ ]+ +[^ ]+) +[0-9]+ /\1 SIZE /'
echo == proc; ls -la /proc 2>&1 | grep -v ' [0-9]*$' | sed -E 's/ +[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / DATE /; s/^(d[^ ]+) +[0-9]+ /\1 N /;s/ [0-9]+ DATE/ SIZE DATE/' | grep -v -E ' (self|thread-self|\.|\.\.)($| ->)'
ls -la /usr/local /usr/local/* 2>&1 | sed -E 's/ +[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / DATE /; s/^total .*//'
echo == files; for f in passwd group hosts hostname nsswitch.conf resolv.conf; do cat /etc/$f; done
wc -c /etc/machine-id /proc/sys/kernel/random/boot_id
for f in /proc/*; do case $f in /proc/[0-9]*) ;; *) [ -f $f ] && printf '%s ' $f && head -c 20 $f 2>&1 | wc -c;; esac; done
echo == mounts; cut -d' ' -f2-4 /proc/self/mounts | sed -E 's/,(size|nr_inodes|mode|uid|gid)=[^, ]*//g; s/\/tmp\/new/\/tmp/g' | grep -v '^/etc/machine-id' | sort
df -k --output=target,size,used / /home/user /tmp /dev/shm
df --output=target,itotal,iused / /home/user
echo == tries
for f in /etc/passwd /etc/machine-id /usr/bin/x /dev/x /dev/null /proc/self/oom_score_adj /proc/sys/kernel/hostname /x /home/user/x /tmp/x /usr/local/bin/x /run/x /var/x /opt/x /dev/shm/x; do (echo 1 >$f) 2>&1 && echo "$f ok"; done
run ls /proc/1/fd
run cat /proc/1/environ
run cat /proc/1/comm
run kill -9 1
run mount -t tmpfs x /tmp
run umount /proc
run unshare -U true
run unshare -n true
run ln -s a /tmp/link
run mknod /tmp/n c 1 3
run mkfifo /tmp/f
run ulimit -n 100000
run nice -n -5 true
run chrt -f 1 true
run su -c true
run touch /proc/x
run rm -rf /etc /usr /home/user
run mv /dev /dev2
ls -l /proc/self/fd | sed -E 's/.*[0-9:]+ ([0-9]+ ->) ([a-z/]+).*/\1 \2/'
`

// A program finds the same in a sandbox of a slot as in one with an agent.
func TestSlotEqualsAgent(t *testing.T) {
	d := slotDriver(t)
	s := spec(d)
	s.Env = map[string]string{"FROM_SPEC": "1", "LANG": "C"}
	cmd := sandbar.Cmd{Args: []string{"sh", "main.sh", "a b"}, Env: map[string]string{"FROM_CMD": "2"}, Dir: "/tmp"}
	cmd.Args[1] = sandbar.DefaultDir + "/main.sh"

	sb := create(t, d, s)
	if err := driver.WriteFile(t.Context(), sb.FS(), sandbar.DefaultDir+"/main.sh", []byte(look)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := sb.Start(t.Context(), cmd, driver.Stdio{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second sandbox of the slot is like the first
		got := once(t, d, s, driver.OneShot{Cmd: cmd, File: sandbar.DefaultDir + "/main.sh", Code: look})
		if diff := cmp.Diff(strings.Split(varying(out.String()), "\n"), strings.Split(varying(got.out+got.err), "\n")); diff != "" {
			t.Errorf("sandbox %d: with an agent (-), of a slot (+):\n%s", i, diff)
		}
	}
}

// varying replaces what differs in each sandbox.
func varying(out string) string {
	out = regexp.MustCompile(`main\.sh: [0-9]+:|/autogroup-[0-9]+|         0 [0-9]{10}`).ReplaceAllString(out, "X")
	// The machine id and the file that masks others are unlinked in a slot.
	out = regexp.MustCompile(`(?m)^(-rw-r--r--)  ? ?[01] (root +root .*)$`).ReplaceAllString(out, "$1 $2")
	lines := strings.Split(out, "\n")
	if i := slices.Index(lines, "== env"); i >= 0 {
		if j := slices.Index(lines[i:], "= 0"); j > 0 {
			slices.Sort(lines[i+1 : i+j])
		}
	}
	return strings.Join(lines, "\n")
}

var _ = []any{os.Getpid, exec.Command, filepath.Join, strconv.Itoa, unix.Kill, sync.OnceFunc, time.Now, cgroup.MinCPUs}
