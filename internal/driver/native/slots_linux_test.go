package native

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/driver/drivertest/escape"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// slotDriver returns a driver with slots.
func slotDriver(t testing.TB) *Driver {
	t.Helper()
	testenv.Need(t, testenv.Root, testenv.UserNS, testenv.PeakReset)
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
echo == roots; ls -laR / --ignore=proc --ignore=usr --ignore='[0-9]*' 2>&1 | sed -E 's/ +/ /g; s/ +[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / DATE /; s/^total .*/total/; s/^(d[^ ]+ +[0-9]+ +[^ ]+ +[^ ]+) +[0-9]+ /\1 SIZE /'
echo == proc; ls -la /proc 2>&1 | grep -v ' [0-9]*$' | sed -E 's/ +/ /g; s/ +[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / DATE /; s/^(d[^ ]+) +[0-9]+ /\1 N /;s/ [0-9]+ DATE/ SIZE DATE/' | grep -v -E ' (self|thread-self|\.|\.\.)($| ->)'
ls -la /usr/local /usr/local/* 2>&1 | sed -E 's/ +/ /g; s/ +[A-Z][a-z]{2} +[0-9]+ +[0-9:]+ / DATE /; s/^total .*//'
echo == files; for f in passwd group hosts hostname nsswitch.conf resolv.conf; do cat /etc/$f; done
wc -c /etc/machine-id /proc/sys/kernel/random/boot_id
for f in /proc/*; do case $f in /proc/[0-9]*) ;; *) [ -f $f ] && printf '%s ' $f && head -c 20 $f 2>&1 | wc -c;; esac; done
echo == mounts; cut -d' ' -f2-4 /proc/self/mounts | sed -E 's/,(size|nr_inodes|mode|uid|gid)=[^, ]*//g; s/\/tmp\/new/\/tmp/g' | grep -v '^/etc/machine-id' | sort
df -k --output=target,avail / /home/user /tmp /dev/shm
df --output=target,iavail / /home/user
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
run rm -rf /etc /dev/null /home/user
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
	out = regexp.MustCompile(`main\.sh: [0-9]+:|/autogroup-[0-9]+|         0 [0-9]{10}|/proc/uptime [0-9]+`).ReplaceAllString(out, "X")
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

// A program of a slot finds no trace of the one before.
func TestSlotStrangers(t *testing.T) {
	d := slotDriver(t)
	t.Run("shell", func(t *testing.T) {
		strangers(t, d, func(code string) ended { return once(t, d, spec(d), shellOnce(code)) })
	})
	d.dropIdle()
	t.Run("warm Python", func(t *testing.T) {
		tmpl := onceTemplate(t, d)
		strangers(t, d, func(code string) ended { return evalOnce(t, tmpl, pythonShell(code)) })
	})
}

// strangers checks that one of two programs that run one after the other in a slot finds no trace
// of the other.
func strangers(t *testing.T, d *Driver, run func(code string) ended) {
	const leave = `
exec 2>/dev/null
for d in / /tmp /home/user /dev/shm /run /var /opt /srv /usr/local /usr/local/bin /usr/local/etc; do echo trace >$d/trace; done
chmod 700 /tmp /opt; touch -d '1 Jan 1990' /home/user; mkfifo /tmp/fifo
python3 - <<'END'
import ctypes, os, socket
libc = ctypes.CDLL(None)
for i in range(3):
    libc.shmget(7, 4096, 0o1666); libc.semget(7, 1, 0o1666); libc.msgget(7, 0o1666)
rt = ctypes.CDLL("librt.so.1")
rt.mq_open(b"/trace", os.O_CREAT | os.O_RDWR, 0o666, None)
for port in 7, 7777:
    try:
        a = socket.socket(); a.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); a.bind(("127.0.0.1", port + 1024)); a.listen()
        b = socket.create_connection(("127.0.0.1", port + 1024)); c, _ = a.accept(); b.close(); c.close()
    except OSError: pass
u = socket.socket(socket.AF_UNIX); u.bind("\0trace"); u.listen()
try: socket.create_connection(("192.0.2.1", 9))
except OSError: pass
f = libc.inotify_init1(0)
for i in range(30): libc.inotify_add_watch(f, b"/tmp", 2 << i % 8)
END
ulimit -n 7; umask 077; cat /dev/zero | head -c 1000000 >/tmp/big
for i in 1 2 3 4 5 6 7; do sleep 0 & done; wait
`
	const find = `
ls -laR / --ignore=proc --ignore=usr | grep -e trace -e fifo -e big
stat -c '%n %a %Y' /tmp /opt /home/user | grep -e ' 700 ' -e ' 63115'
grep -v '^ *key' /proc/sysvipc/* | grep -c .
ls -a /usr/local /usr/local/bin /usr/local/etc | grep trace
sed 1d /proc/net/tcp; grep trace /proc/net/unix
cat /proc/net/snmp /proc/net/netstat /proc/net/dev /proc/net/ip6_flowlabel
sed -E 's/ (alloc|mem) [0-9]+//g' /proc/net/sockstat /proc/net/sockstat6
ulimit -n; umask; echo $$; cat /proc/sys/kernel/ns_last_pid 2>/dev/null
`
	// Whoever reads a file first holds its cached pages, and no slot must have too many.
	if out, err := exec.Command("python3", "-c", "import ctypes, os, socket; ctypes.CDLL('librt.so.1')").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := run(find)
	inode := d.slots.idle[0]
	if e := run(leave); e.ExitCode != 0 {
		t.Fatalf("%+v: %s", e.Result, e.err)
	}
	second := run(find)
	if len(d.slots.idle) != 1 || d.slots.idle[0] != inode {
		t.Fatalf("the slot was not used again: it held %d bytes and %d processes", inode.memory, inode.processes)
	}
	if diff := cmp.Diff(strings.Split(first.out, "\n"), strings.Split(second.out, "\n")); diff != "" {
		t.Errorf("before another program (-), after it (+):\n%s", diff)
	}
	if second.PeakMemory > first.PeakMemory+2<<20 {
		t.Errorf("a peak of %d bytes, and %d before", second.PeakMemory, first.PeakMemory)
	}
}

// A slot keeps its network namespace after programs that cannot have changed it, and only then. A
// kept one looks like a new one. Where the daemon cannot see internet sockets, none is kept.
func TestSlotNetwork(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := slotDriver(t)
	const look = `
readlink /proc/self/ns/net
cd /proc/self/net # besides what shows the host or the sockets of now
grep -rs '' . | grep -vE '^\./(stat/|unix|netlink|protocols|ptype|softnet_stat|xfrm_stat)' | sed -E 's/ (alloc|mem) [0-9]+//g' | sort
`
	state := func() (namespace, files string) {
		t.Helper()
		e := once(t, d, spec(d), shellOnce(look))
		namespace, files, _ = strings.Cut(e.out, "\n")
		if !strings.HasPrefix(namespace, "net:[") || !strings.Contains(files, "ipv6_route") {
			t.Fatalf("%+v: %s %s", e.Result, e.out, e.err)
		}
		return namespace, files
	}
	_, fresh := state()
	python := func(code string) string {
		return "python3 - <<'END'\nimport os, socket, struct, time\n" + code + "\nEND"
	}
	const routes = `
def route(family, kind, target, dump=0):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = struct.pack("BBBBBBBBIHH", family, 8 * len(target), 0, 0, 0, 0, 0, 0, 0, 4 + len(target), 1) + target
    s.send(struct.pack("IHHII", 16 + len(body), kind, 1 | dump, 1, 0) + body)
    s.settimeout(1)
    s.recv(1 << 16)
def end(): time.sleep(0.5) # until no socket shows any more
`
	for _, p := range []struct {
		name, code, kept string
	}{
		{"nothing", "true", "yes"},
		{"UNIX sockets", python(`
a, b = socket.socketpair(); a.send(b"x"); b.recv(1)
u = socket.socket(socket.AF_UNIX); u.bind("\0trace"); u.listen()
v = socket.socket(socket.AF_UNIX); v.connect("\0trace")`), "yes"},
		{"a socket that sends nothing", python(`socket.socket()`), "no"},
		{"a socket of version 6", python(`socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)`), "no"},
		{"a socket of a child", python(`os.wait() if os.fork() else socket.socket()`), "no"},
		{"a route of version 6", python(routes + `route(10, 26, socket.inet_pton(10, "::1")); end()`), "no"},
		// whether the first shows is up to the kernel's configuration
		{"a route of version 4", python(routes + `route(2, 26, socket.inet_aton("127.0.0.1")); end()`), ""},
		{"other queries", python(routes + `
for kind in range(18, 122, 4):
    for family in 0, 2, 7, 10, 28:
        for dump in 0, 0x300:
            route(family, kind, b"", dump)
end()`), ""},
	} {
		before, _ := state()
		if e := once(t, d, spec(d), shellOnce(p.code)); e.ExitCode != 0 {
			t.Fatalf("%s: %+v: %s", p.name, e.Result, e.err)
		}
		after, files := state()
		if kept := before == after; p.kept != "" && kept != (p.kept == "yes" && d.sockets != nil) {
			t.Errorf("after %s: kept: %v", p.name, kept)
		}
		if diff := cmp.Diff(strings.Split(fresh, "\n"), strings.Split(files, "\n")); diff != "" {
			t.Errorf("after %s: a new namespace (-), the next one (+):\n%s", p.name, diff)
		}
	}
}

// A limit of few descriptors does not keep a program from starting, nor the slot from its look at
// the network namespace.
func TestSlotNetworkFewFiles(t *testing.T) {
	d := slotDriver(t)
	look := driver.OneShot{Cmd: sandbar.Cmd{Args: []string{"readlink", "/proc/self/ns/net"}}}
	for files := int64(8); files <= 16; files++ {
		s := spec(d)
		s.Limits.Files = files
		first, second := once(t, d, s, look), once(t, d, s, look)
		if first.ExitCode != 0 || (first.out == second.out) != (d.sockets != nil) {
			t.Errorf("%d files: %+v: %q %q, then %q", files, first.Result, first.out, first.err, second.out)
		}
	}
}

// Every sandbox of a slot has ids of its own.
func TestSlotNewIDs(t *testing.T) {
	d := slotDriver(t)
	const ids = "cat /etc/machine-id /proc/sys/kernel/random/boot_id"
	first, second := once(t, d, spec(d), shellOnce(ids)), once(t, d, spec(d), shellOnce(ids))
	if first.out == second.out || len(first.out) != 33+37 {
		t.Errorf("%q, then %q", first.out, second.out)
	}
}

// The error of a program that does not start is that of a sandbox with an agent.
func TestSlotErrors(t *testing.T) {
	d := slotDriver(t)
	s := spec(d)
	long := strings.Repeat("x", 200<<10)
	for name, o := range map[string]driver.OneShot{
		"no program":        {Cmd: sandbar.Cmd{Args: []string{"nothing"}}},
		"no path":           {Cmd: sandbar.Cmd{Args: []string{"/nothing"}}},
		"no directory":      {Cmd: sandbar.Cmd{Args: []string{"true"}, Dir: "/nothing"}},
		"a file as one":     {Cmd: sandbar.Cmd{Args: []string{"true"}, Dir: "/etc/passwd"}},
		"a directory":       {Cmd: sandbar.Cmd{Args: []string{"/usr"}}},
		"not executable":    {Cmd: sandbar.Cmd{Args: []string{"/etc/passwd"}}},
		"no format":         {Cmd: sandbar.Cmd{Args: []string{"/proc/self/environ"}}},
		"the agent":         {Cmd: sandbar.Cmd{Args: []string{"/proc/self/exe"}}},
		"a magic directory": {Cmd: sandbar.Cmd{Args: []string{"true"}, Dir: "/proc/self/root"}},
		"too long":          {Cmd: sandbar.Cmd{Args: []string{"true", long}}},
		"a NUL":             {Cmd: sandbar.Cmd{Args: []string{"a\x00"}}},
		"nothing":           {},
	} {
		_, got := tryOnce(t.Context(), d, s, o)
		sb := create(t, d, s)
		_, want := sb.Start(t.Context(), o.Cmd, driver.Stdio{})
		if sandbar.CodeOf(got) != sandbar.CodeOf(want) || got == nil {
			t.Errorf("%s: %v, with an agent %v", name, got, want)
		}
	}
	s.Limits.Disk = 64 << 10
	o := shellOnce("echo began\n" + long)
	if _, err := tryOnce(t.Context(), d, s, o); sandbar.CodeOf(err) != sandbar.NoSpace {
		t.Errorf("code without room: %v", err)
	}
	o = shellOnce(strings.Repeat(long, 5))
	if _, err := tryOnce(t.Context(), d, spec(d), o); sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("too much code: %v", err)
	}
}

// Programs have streams, signals, limits and outcomes as with an agent. Nothing remains of them.
func TestSlotPrograms(t *testing.T) {
	d := slotDriver(t)
	s := spec(d)
	t.Run("input and outputs", func(t *testing.T) {
		var out, errOut bytes.Buffer
		sb, p, err := d.RunOnce(t.Context(), sandbar.NewID(), s, shellOnce("cat; echo err >&2; exit 3"), driver.Stdio{Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errOut})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Wait()
		if err != nil || r.ExitCode != 3 || r.Outcome != sandbar.Exited || out.String() != "in" || errOut.String() != "err\n" || p.PID() != 2 {
			t.Errorf("%+v, %v, %q, %q, pid %d", r, err, &out, &errOut, p.PID())
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("large output", func(t *testing.T) {
		if e := once(t, d, s, shellOnce("head -c 3000000 /dev/zero")); len(e.out) != 3000000 || e.StdoutBytes != 3000000 {
			t.Errorf("%d bytes, %+v", len(e.out), e.Result)
		}
	})
	t.Run("signal", func(t *testing.T) {
		var out bytes.Buffer
		sb, p, err := d.RunOnce(t.Context(), sandbar.NewID(), s, shellOnce("sleep 1000"), driver.Stdio{Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(15); err != nil {
			t.Error(err)
		}
		if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Signaled || r.Signal != 15 {
			t.Errorf("%+v, %v", r, err)
		}
		if err := errors.Join(p.Signal(15), p.KillTree(), sb.Destroy(t.Context()), p.KillTree(), p.Signal(15), sb.Destroy(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		e := once(t, d, s, driver.OneShot{Cmd: sandbar.Cmd{Args: []string{"python3", "-c", "x = bytearray(1 << 30); x[::4096] = x[::4096]"}}})
		if e.Outcome != sandbar.OutOfMemory || e.OOMKills == 0 || e.PeakMemory < 100<<20 {
			t.Errorf("%+v", e.Result)
		}
		if e := once(t, d, s, shellOnce("true")); e.OOMKills != 0 || e.PeakMemory > 8<<20 || e.CPUTime > time.Second {
			t.Errorf("the next program: %+v", e.Result)
		}
	})
	t.Run("processes", func(t *testing.T) {
		const code = `python3 -c '
import os
n = 0
try:
    while n < 1000:
        if os.fork() == 0: os.read(os.pipe()[0], 1)
        n += 1
except OSError: pass
print(n, flush=True)
os.kill(-1, 9)'`
		e := once(t, d, s, shellOnce(code))
		sb := create(t, d, s)
		if err := driver.WriteFile(t.Context(), sb.FS(), sandbar.DefaultDir+"/main.sh", []byte(code)); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		p, err := sb.Start(t.Context(), sandbar.Cmd{Args: []string{"sh", "main.sh"}}, driver.Stdio{Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err != nil || out.String() != e.out || e.out == "" {
			t.Errorf("%q processes, with an agent %q, %v", e.out, &out, err)
		}
	})
	t.Run("orphans", func(t *testing.T) {
		for tries := 1; ; tries++ {
			began := time.Now()
			e := once(t, d, s, shellOnce("setsid sleep 1000 >/dev/null 2>&1 & (while kill -0 $$ 2>/dev/null; do :; done; echo late) & echo early"))
			if e.out == "early\n" && tries < 5 { // it got no processor within driver.DrainWindow
				continue
			}
			if e.out != "early\nlate\n" || time.Since(began) > 20*time.Second {
				t.Errorf("%q after %v", e.out, time.Since(began))
			}
			break
		}
	})
	t.Run("killed tree", func(t *testing.T) {
		sb, p, err := d.RunOnce(t.Context(), sandbar.NewID(), s, shellOnce("setsid sleep 1000 & sleep 1000"), driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.KillTree(); err != nil {
			t.Error(err)
		}
		<-sb.Dead()
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("destroyed", func(t *testing.T) {
		sb, p, err := d.RunOnce(t.Context(), sandbar.NewID(), s, shellOnce("trap '' TERM; while :; do :; done"), driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("at once", func(t *testing.T) {
		var wg sync.WaitGroup
		most := 40
		if testing.Short() {
			most = 10
		}
		for i := range most {
			wg.Go(func() {
				e, err := tryOnce(t.Context(), d, s, shellOnce("echo $1", strconv.Itoa(i)))
				if err != nil || e.out != strconv.Itoa(i)+"\n" {
					t.Errorf("%d: %q, %v", i, e.out, err)
				}
			})
		}
		wg.Wait()
	})
	if left := descendants(t, d); len(left) > idleSlots()*2 {
		t.Errorf("%d processes remain", len(left))
	}
	d.closeSlots()
	for _, dir := range groupDirs(t, d) {
		t.Errorf("the control group %s remains", dir)
	}
}

// groupDirs lists the control groups of the driver's sandboxes.
func groupDirs(t *testing.T, d *Driver) (dirs []string) {
	t.Helper()
	all, err := filepath.Glob("/sys/fs/cgroup/*/*/*" + d.Owner + "*")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("/sys/fs/cgroup/*/*/*/*" + d.Owner + "*")
	if err != nil {
		t.Fatal(err)
	}
	return append(all, more...)
}

// A killed slot, or first process, loses its own program only.
func TestSlotKilled(t *testing.T) {
	d := slotDriver(t)
	s := spec(d)
	killEach(t, func() (*single, driver.Single, driver.Process) {
		sb, p, err := d.RunOnce(t.Context(), sandbar.NewID(), s, shellOnce("sleep 1000"), driver.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		return sb.(*single), sb, p
	}, func() ended { return once(t, d, s, shellOnce("echo next")) })
	// An idle slot that was killed is replaced.
	for _, x := range d.slots.idle {
		if err := x.Init.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.Init = nil
	}
	if _, err := tryOnce(t.Context(), d, s, shellOnce("true")); err != nil && sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Error(err)
	}
	if e := once(t, d, s, shellOnce("echo next")); e.out != "next\n" {
		t.Errorf("got %q", e.out)
	}
}

// Programs ignore no signals because the daemon does.
func TestSlotSignals(t *testing.T) {
	signal.Ignore(unix.SIGUSR2)
	defer signal.Reset(unix.SIGUSR2)
	// signal.Ignore ignores none of the C library's signals.
	for _, n := range []uintptr{32, 33, 60} {
		var old [4]uintptr
		ignore := [4]uintptr{1} // struct sigaction: SIG_IGN
		if _, _, err := unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&ignore)), uintptr(unsafe.Pointer(&old)), 8, 0, 0); err != 0 {
			t.Fatal(err)
		}
		defer unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	}
	d := slotDriver(t)
	if e := once(t, d, spec(d), shellOnce("grep -E '^Sig(Ign|Blk)' /proc/self/status")); e.out != "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" {
		t.Errorf("got %s", e.out)
	}
}

// A slot has no mounts but those that its sandboxes bind.
func TestSlotRoot(t *testing.T) {
	d := slotDriver(t)
	once(t, d, spec(d), shellOnce("true"))
	fd, err := d.slots.idle[0].Init.Open("mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "mountinfo")
	defer f.Close()
	mounts, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		at := strings.Fields(line)[4]
		if at != "/" && at != "/proc" && !strings.HasPrefix(at, "/parts/etc/") && !strings.HasPrefix(at, "/parts/dev") && !strings.HasPrefix(at, "/parts/host/usr") && at != "/parts/etc" {
			t.Errorf("the slot has %s", line)
		}
	}
	if !strings.Contains(string(mounts), " /parts/host/usr ") {
		t.Errorf("the slot has not what it should have:\n%s", mounts)
	}
}

// killEach kills the slot, and then the first process, of a program that start starts. Afterwards
// next must print "next".
func killEach(t *testing.T, start func() (*single, driver.Single, driver.Process), next func() ended) {
	t.Helper()
	for i, victim := range []string{"slot", "first process"} {
		x, sb, p := start()
		pids, err := os.ReadFile(x.slot.Group.Dirs()[0] + "/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Fields(string(pids))
		slices.SortFunc(list, func(a, b string) int { return len(a) - len(b) })
		pid, err := strconv.Atoi(list[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
			t.Errorf("%s killed: %+v, %v", victim, r, err)
		}
		<-sb.Dead()
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if e := next(); e.out != "next\n" {
			t.Errorf("after the %s was killed: %q", victim, e.out)
		}
	}
}

// While the spawner, slots and first processes are killed at random, a program has its right
// result, or it is lost and that is said. Later programs run in slots again, and nothing is left.
func TestSlotsUnderKills(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := slotDriver(t)
	var mu, killing sync.Mutex
	tmpl := onceTemplate(t, d)
	// The engine prepares another template, too, when one has ended.
	living := func() driver.Template {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-tmpl.Dead():
			if err := tmpl.Close(); err != nil {
				t.Error(err)
			}
			s := pythonTemplate(d)
			s.Once = true
			var err error
			for try := range 100 { // the spawner may be killed again
				if try == 20 { // on a busy host a template takes longer than the time between two kills
					killing.Lock()
					defer killing.Unlock()
				}
				var next driver.Template
				if next, err = d.Prepare(t.Context(), s); err == nil {
					tmpl = next
					return tmpl
				}
			}
			t.Errorf("no template: %v", err)
		default:
		}
		return tmpl
	}
	const workers = 4
	programs := 30
	if testenv.Long() {
		programs = 1000
	}
	var kills, whole, lost, refused atomic.Int64
	stop := make(chan struct{})
	var killer, all sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var victims []int
			for _, dir := range groupsOf(d.Owner) {
				procs, _ := os.ReadFile(dir + "/cgroup.procs")
				for f := range strings.FieldsSeq(string(procs)) {
					if pid, err := strconv.Atoi(f); err == nil && bytes.HasPrefix(comm(pid), []byte(agent.Name)) {
						victims = append(victims, pid)
					}
				}
			}
			if len(victims) == 0 || rand.IntN(10) == 0 {
				victims = spawnersOf(d.Owner)
			}
			killing.Lock()
			if len(victims) > 0 && unix.Kill(victims[rand.IntN(len(victims))], unix.SIGKILL) == nil {
				kills.Add(1)
			}
			killing.Unlock()
		}
	})
	for w := range workers {
		all.Go(func() {
			for i := range programs {
				token := strconv.Itoa(w*programs + i)
				var e ended
				var err error
				if w%2 == 0 {
					e, err = tryOnce(t.Context(), d, spec(d), shellOnce("sleep 0.01; echo "+token))
				} else {
					e, err = tryEval(t.Context(), living(), "import time; time.sleep(0.01); print("+token+")")
				}
				switch {
				case err != nil && slices.Contains([]sandbar.Code{sandbar.Unsupported, sandbar.Gone, sandbar.Unavailable, sandbar.Internal}, sandbar.CodeOf(err)):
					refused.Add(1)
				case err != nil:
					t.Errorf("program %s: %v", token, err)
				case e.Outcome == sandbar.Lost, e.Outcome == sandbar.Signaled && e.Signal == 9:
					lost.Add(1)
				case e.Outcome == sandbar.Exited && e.ExitCode == 0 && e.out == token+"\n":
					whole.Add(1)
				default:
					t.Errorf("program %s: %+v: %q %q", token, e.Result, e.out, e.err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	killer.Wait()
	t.Logf("%d kills: %d programs whole, %d lost, %d refused", kills.Load(), whole.Load(), lost.Load(), refused.Load())
	// The spawner has the programs of all workers; another process has one at most.
	if n := lost.Load() + refused.Load(); n > workers*kills.Load() || whole.Load() == 0 {
		t.Errorf("%d kills ended %d programs", kills.Load(), n)
	}
	waitUntil(t, "a slot runs a shell again", func() bool { // the last victim may not have ended yet
		e, err := tryOnce(t.Context(), d, spec(d), shellOnce("echo next"))
		return err == nil && e.out == "next\n"
	})
	waitUntil(t, "a slot runs a warm Python again", func() bool {
		e, err := tryEval(t.Context(), living(), "print('next')")
		return err == nil && e.out == "next\n"
	})
	d.dropIdle()
	if err := living().Close(); err != nil {
		t.Error(err)
	}
	waitUntil(t, "nothing is left", func() bool { return len(groupsOf(d.Owner)) == 0 && len(descendants(t, d)) == 0 })
}

// comm returns the name of a process.
func comm(pid int) []byte {
	name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return name
}

// Every attack of a program that a sandbox with an agent contains is contained in one of a slot.
func TestSlotEscapes(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := slotDriver(t)
	s := spec(d)
	s.Limits.Inodes = 1 << 16
	// The first four use files through the agent after their program has run; the others are slow.
	others := []string{"06-remove-links", "07-chmod-links", "11-special-files", "89-magic-links", "03-swap-race", "12-big-trees", "34-cpu"}
	for _, c := range escape.Cases() {
		if c.NeedsOutbound || slices.Contains(others, c.ID) {
			continue
		}
		r := escape.Run(t.Context(), escape.Target{Driver: &onceDriver{Driver: d}, Spec: s, Python: "/usr/bin/python3"}, c)
		if !r.OK() && r.Verdict != escape.NotRun {
			t.Errorf("%s: %s: %s", c.ID, r.Verdict, r.Evidence)
		}
		if c.Python == "" && !c.NeedsPython {
			continue
		}
		w := &warm{Driver: d, t: t, once: true, templates: map[string]driver.Template{}}
		r = escape.Run(t.Context(), escape.Target{Driver: &onceDriver{d, w}, Spec: s, Python: "/usr/bin/python3"}, c)
		w.close()
		if !r.OK() && r.Verdict != escape.NotRun {
			t.Errorf("%s, warm: %s: %s", c.ID, r.Verdict, r.Evidence)
		}
	}
}

// onceDriver makes sandboxes whose first program runs in a slot, if nothing else was asked of them
// before. If warm is set, a Python program runs in a copy of a template.
type onceDriver struct {
	*Driver
	warm *warm
}

// Unwrap implements driver.Unwrapper.
func (o *onceDriver) Unwrap() any { return o.Driver }

// Create implements driver.Driver.
func (o *onceDriver) Create(ctx context.Context, id sandbar.ID, s sandbar.Spec) (driver.Sandbox, error) {
	if !o.TakesOneShots(s) {
		return o.Driver.Create(ctx, id, s)
	}
	return &onceBox{d: o.Driver, warm: o.warm, id: id, spec: s}, o.refuse(s)
}

// onceBox is a sandbox of an onceDriver.
type onceBox struct {
	d    *Driver
	warm *warm
	id   sandbar.ID
	spec sandbar.Spec

	mu     sync.Mutex
	single driver.Single
	full   driver.Sandbox
}

// sandbox returns the sandbox with an agent.
func (b *onceBox) sandbox(ctx context.Context) (driver.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if b.full == nil {
		b.full, err = b.d.Create(ctx, sandbar.NewID(), b.spec)
	}
	return b.full, err
}

// Start implements driver.Sandbox.
func (b *onceBox) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Process, error) {
	b.mu.Lock()
	first := b.full == nil && b.single == nil
	if first {
		sb, p, err := b.runOnce(ctx, c, std)
		if sandbar.CodeOf(err) != sandbar.Unsupported {
			if err == nil {
				b.single = sb
			}
			b.mu.Unlock()
			return p, err
		}
	}
	b.mu.Unlock()
	sb, err := b.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	return sb.Start(ctx, c, std)
}

// runOnce runs the first program.
func (b *onceBox) runOnce(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (driver.Single, driver.Process, error) {
	if b.warm == nil || !isEvaluation(c) {
		return b.d.RunOnce(ctx, b.id, b.spec, driver.OneShot{Cmd: c}, std)
	}
	s := b.spec
	s.Env = nil
	tmpl, err := b.warm.template(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	f, err := tmpl.(*template).forkOnce(ctx, b.id)
	if err != nil {
		return nil, nil, err
	}
	env := maps.Clone(b.spec.Env)
	maps.Copy(env, c.Env)
	p, err := f.Eval(ctx, evaluation(c, env), std)
	if err != nil {
		return nil, nil, errors.Join(err, f.Destroy(ctx))
	}
	return f, p, nil
}

// FS implements driver.Sandbox.
func (b *onceBox) FS() sandbar.FS {
	sb, err := b.sandbox(context.Background())
	if err != nil {
		panic(err)
	}
	return sb.FS()
}

// DialPort implements driver.Dialer.
func (b *onceBox) DialPort(ctx context.Context, port int) (net.Conn, error) {
	sb, err := b.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	return sb.(driver.Dialer).DialPort(ctx, port)
}

// Destroy implements driver.Sandbox.
func (b *onceBox) Destroy(ctx context.Context) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.single != nil {
		err = b.single.Destroy(ctx)
	}
	if b.full != nil {
		err = errors.Join(err, b.full.Destroy(ctx))
	}
	b.d.dropIdle() // the suite looks for processes and groups that remain
	return err
}

// The option reuse has two values.
func TestReuseOption(t *testing.T) {
	for value, want := range map[string]bool{"none": false, "slots": true} {
		if o, err := parseOptions(map[string]string{optionReuse: value}); err != nil || o.slots != want {
			t.Errorf("%s: %+v, %v", value, o, err)
		}
	}
	for _, bad := range []map[string]string{{optionReuse: "all"}, {optionReuse: ""}, {"other": "x"}} {
		if _, err := parseOptions(bad); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A driver whose slots fail goes on with agents.
func TestSlotsThatFail(t *testing.T) {
	d := slotDriver(t)
	d.Filter = []byte{1, 2, 3, 4, 5, 6, 7, 8} // the kernel refuses this filter
	for range slotFailures {
		if _, err := tryOnce(t.Context(), d, spec(d), shellOnce("true")); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("got %v", err)
		}
	}
	if d.TakesOneShots(spec(d)) {
		t.Error("it still makes slots")
	}
}
