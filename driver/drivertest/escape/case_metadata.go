package escape

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/driver"
)

// metadataCases are numbers 97 and 98 and a part of 42: host metadata that the kernel exposes, and
// rarely used socket options.
func metadataCases() []Case {
	return []Case{
		{ID: "42-core-limit", Title: "raise the limit of core dumps, or lower it to where handlers run", Claim: Kernel, Python: `
import resource
before = resource.getrlimit(resource.RLIMIT_CORE)
inf = 2**64 - 1
old = ctypes.create_string_buffer(16)
for soft, hard in [(0, 0), (0, 1), (1, inf), (inf, inf), (2, 2), (0, inf)]:
    new = ctypes.create_string_buffer(struct.pack("<QQ", soft, hard))
    for pid in (0, os.getpid()):
        call({"x86_64": 302, "aarch64": 261}[os.uname().machine], pid, resource.RLIMIT_CORE, new, 0)
        call({"x86_64": 302, "aarch64": 261}[os.uname().machine], pid, resource.RLIMIT_CORE, new, old)
    call({"x86_64": 160, "aarch64": 164}[os.uname().machine], resource.RLIMIT_CORE, new)
    now = resource.getrlimit(resource.RLIMIT_CORE)
    if now != before: escaped("the limit of core dumps was", before, "and is", now); break
if before != (1, 1): escaped("the limit of core dumps is", before)
done()`},
		{ID: "97-host-metadata", Title: "facts about the host in /proc: names outside of the allow-list, the boot id", Claim: Rights, Leaks: true, NeedsPython: true, Attack: hostMetadata},
		{ID: "98-out-of-band", Title: "out-of-band bytes over UNIX sockets and TCP", Claim: Rights, Python: `
MSG_OOB = socket.MSG_OOB
def pairs():
    yield "UNIX", *socket.socketpair()
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
    c = socket.create_connection(s.getsockname()); yield "TCP", c, s.accept()[0]
def mmsg(a):
    byte = ctypes.create_string_buffer(b"x")
    iov = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(byte), 1))
    head = ctypes.create_string_buffer(struct.pack("QIIQQQQiIII", 0, 0, 0, ctypes.addressof(iov), 1, 0, 0, 0, 0, 0, 0))
    r, e = call({"x86_64": 307, "aarch64": 269}[os.uname().machine], a.fileno(), head, 1, MSG_OOB)
    if r < 0: raise OSError(e, "sendmmsg")
for name, a, b in pairs():
    a.settimeout(5); b.settimeout(5)
    a.send(b"x"); b.recv(1)
    attempt("send out of band, " + name, a.send, b"x", MSG_OOB)
    attempt("sendmsg out of band, " + name, a.sendmsg, [b"x"], [], MSG_OOB)
    attempt("sendmsg out of band with other flags, " + name, a.sendmsg, [b"xy"], [], MSG_OOB | socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    attempt("sendmmsg out of band, " + name, mmsg, a)
done()`},
		{ID: "98-credentials", Title: "lie about who sends over a UNIX socket; privileged socket options", Claim: Rights, Python: `
a, b = socket.socketpair()
b.setsockopt(socket.SOL_SOCKET, 16, 1) # SO_PASSCRED
me = (os.getpid(), os.getuid(), os.getgid())
for lie in [(1, me[1], me[2]), (me[0], me[1] + 1, me[2]), (me[0], me[1], me[2] + 1), (os.getppid(), me[1], me[2]), (me[0], 65534, 65534)]:
    if lie == me: continue
    attempt("credentials %r of %r" % (lie, me), a.sendmsg, [b"x"], [(socket.SOL_SOCKET, 2, struct.pack("iII", *lie))])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
FORCED = dict(SO_DEBUG=(1, 1), SO_SNDBUFFORCE=(32, 64 << 20), SO_RCVBUFFORCE=(33, 64 << 20), SO_MARK=(36, 7), SO_PRIORITY=(12, 7))
for name, (option, value) in FORCED.items():
    for s, kind in [(udp, "UDP"), (a, "UNIX")]:
        def now(): return s.getsockopt(socket.SOL_SOCKET, {"SO_SNDBUFFORCE": 7, "SO_RCVBUFFORCE": 8}.get(name, option))
        try: before = now(); s.setsockopt(socket.SOL_SOCKET, option, value); after = now()
        except OSError as e: held(name, kind, why(e.errno)); continue
        if after != before: escaped(name, kind, before, "became", after)
done()`},
		{ID: "98-netlink", Title: "families and groups of netlink: listen to the host, speak to groups", Claim: Rights, Python: `
AF_NETLINK = 16
for family in list(range(1, 23)):
    attempt("netlink family %d" % family, lambda: socket.socket(AF_NETLINK, socket.SOCK_RAW, family).close())
try: s = socket.socket(AF_NETLINK, socket.SOCK_RAW, 0)
except OSError as e: held("routing", why(e.errno)); s = None
if s:
    try: s.bind((0, 0xffffffff)) # hears of its own network only
    except OSError as e: held("all groups", why(e.errno))
    new = struct.pack("IHHIIBxHiII", 32, 16, 5, 1, 0, 0, 0, 1, 0, 0) # RTM_NEWLINK: interface 1 down, acknowledged
    for groups in (1, 2, 1 << 30):
        attempt("speak to groups %x" % groups, s.sendto, new, (0, groups))
    for option, name in [(5, "NETLINK_NO_ENOBUFS"), (8, "NETLINK_LISTEN_ALL_NSID")]:
        if option == 8: attempt(name, s.setsockopt, 270, option, 1)
done()`},
		{ID: "98-speculation", Title: "change speculation control, the cookie of core scheduling", Claim: Rights, Python: `
PR = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
for what in range(4):
    for state in (2, 4, 8, 16): # enable, disable, for good, until exec
        refused_prctl = call(PR, 53, what, state, 0, 0)
        if refused_prctl[0] >= 0: escaped("speculation control", what, "was set to", state)
        elif refused_prctl[1] not in (errno.EPERM, errno.EINVAL): escaped("speculation control", what, "was let through and failed with", why(refused_prctl[1]))
for op in range(4):
    r, e = call(PR, 62, op, 0, 1, 0)
    if r >= 0: escaped("core scheduling, operation", op)
    else: held("core scheduling", op, why(e))
done()`},
	}
}

// hostMetadata searches /proc for content beyond the list in SECURITY.md. A kernel in user space
// has its own content under some other names.
func hostMetadata(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	own := s.Driver.Caps().Boundary == driver.BoundaryGVisor
	_, err = s.Program(ctx, box, "HOST = "+strconv.Quote(strings.TrimSpace(string(host)))+"\nOWN_KERNEL = "+map[bool]string{true: "True", false: "False"}[own]+hostMetadataProgram, "")
	return err
}

const hostMetadataProgram = `
SHOWN = set("self thread-self mounts net sys sysvipc cpuinfo meminfo stat loadavg uptime version dma execdomains".split())
if OWN_KERNEL: SHOWN |= set("cgroups cmdline devices filesystems gvisor sentry-meminfo".split())
for name in sorted(os.listdir("/proc")):
    if name.isdigit() or name in SHOWN: continue
    path = "/proc/" + name
    try:
        if os.path.isdir(path): got = ", ".join(os.listdir(path))
        else:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try: got = os.read(fd, 4096)
            finally: os.close(fd)
    except OSError as e: held(path, why(e.errno)); continue
    if got: escaped(path, "tells", str(got)[:60])
for path in ["/proc/pressure/cpu", "/proc/vmstat", "/proc/zoneinfo", "/proc/buddyinfo", "/proc/interrupts", "/proc/schedstat", "/proc/tty/drivers", "/proc/irq/0/spurious"]:
    try: got = open(path, "rb").read(4096)
    except OSError as e: held(path, why(e.errno)); continue
    if got: escaped(path, "tells", str(got)[:60])
try: boot = open("/proc/sys/kernel/random/boot_id").read().strip()
except OSError as e: held("boot_id", why(e.errno)); boot = ""
if boot == HOST: escaped("the host's boot id")
done()`
