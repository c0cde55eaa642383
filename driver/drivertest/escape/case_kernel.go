package escape

import "github.com/sandbar-dev/sandbar"

// kernelCases are numbers 56 to 66. Without a claimed boundary only 65 runs: for root on a bare
// host most of the calls would succeed.
func kernelCases() []Case {
	return []Case{
		{ID: "56-namespaces", Title: "make a namespace, join another", Claim: Kernel, Python: `
flags = dict(mnt=0x20000, cgroup=0x2000000, uts=0x4000000, ipc=0x8000000, user=0x10000000, pid=0x20000000, net=0x40000000, time=0x80)
for name, flag in flags.items():
    apart(lambda: denied_as("unshare " + name, "unshare", flag))
    def cloned():
        r, e = call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
        if r == 0: os._exit(0)
        if r > 0: os.waitpid(r, 0); escaped("clone into a new namespace:", name)
        else: held("clone", name, why(e))
    apart(cloned)
    def joined():
        try: fd = os.open("/proc/1/ns/" + name, os.O_RDONLY)
        except OSError:
            try: fd = os.open("/proc/self/ns/" + name, os.O_RDONLY)
            except OSError as e: held("open", name, why(e.errno)); return
        denied_as("setns " + name, "setns", fd, 0)
    apart(joined)
done()`},
		{ID: "57-mounts", Title: "mount, unmount and move file systems, old calls and new", Claim: Kernel, Python: `
os.makedirs("m", exist_ok=True)
M = b"m"
def one(f): apart(f)
one(lambda: denied("mount", b"none", M, b"tmpfs", 0, 0))
one(lambda: denied("mount", b"/", M, b"none", 4096, 0)) # bind
one(lambda: denied("mount", b"none", b"/", b"none", 4096 | 32, 0)) # remount, writable
one(lambda: denied("mount", b"none", b"/", b"none", 1 << 19, 0)) # shared
one(lambda: denied("mount", b"proc", M, b"proc", 0, 0))
one(lambda: denied("mount", b"cgroup", M, b"cgroup2", 0, 0))
one(lambda: denied("mount", b"overlay", M, b"overlay", 0, b"lowerdir=/,upperdir=m,workdir=m"))
for where in [b"/proc", b"/proc/sys", b"/proc/kcore", b"/dev", b"/", b"/tmp", HOME.encode()]:
    one(lambda: denied("umount2", where, 2))
one(lambda: denied("pivot_root", b".", b"."))
one(lambda: refused("fsopen", b"tmpfs", 0))
one(lambda: refused("fspick", -100, b"/", 0))
one(lambda: refused("open_tree", -100, b"/", 1))
one(lambda: refused("move_mount", -100, b"/tmp", -100, M, 0))
one(lambda: refused("mount_setattr", -100, b"/", 0, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32))
one(lambda: refused("fsmount", -1, 0, 0))
done()`},
		{ID: "58-calls", Title: "calls with a history: io_uring, bpf, perf, keys, kexec, modules, handles", Claim: Rights, Python: `
buf = ctypes.create_string_buffer(4096)
refused("io_uring_setup", 1, buf)
refused("userfaultfd", 0)
refused("userfaultfd", 1)
refused("bpf", 0, buf, 72)
refused("bpf", 5, buf, 72)
perf = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 0) + bytes(96)); refused("perf_event_open", perf, 0, -1, -1, 0)
refused("keyctl", 0, -3, 1)
refused("add_key", b"user", b"escape", b"x", 1, -2)
refused("request_key", b"user", b"escape", 0, 0)
refused("init_module", 0, 0, b"")
refused("finit_module", -1, b"", 0)
refused("kexec_load", 0, 0, 0, 1 << 31)
refused("kexec_file_load", -1, -1, 0, b"", 0)
handle = ctypes.create_string_buffer(struct.pack("<Ii", 8, 1) + bytes(128))
refused("open_by_handle_at", -100, handle, 0)
refused("acct", 0)
refused("swapon", b"/nonexistent", 0)
refused("quotactl", 0x800007 << 8, 0, 0, 0)
refused("syslog", 10, 0, 0)
done()`},
		{ID: "59-foreign-abi", Title: "system calls of another architecture's interface", Claim: Kernel, Python: `
import mmap
if os.uname().machine == "x86_64":
    def int80():
        m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        m.write(b"\x53\xb8\x14\0\0\0\xcd\x80\x5b\xc3") # push rbx; mov eax, 20 (getpid); int 0x80; pop rbx; ret
        f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
        r = f()
        if r == os.getpid(): escaped("int 0x80 answers")
        else: held("int 0x80", r)
    status = apart(int80)
    if os.WIFSIGNALED(status): held("int 0x80 was killed by signal", os.WTERMSIG(status))
    def x32():
        r, e = call(0x40000000 | 39)
        if r >= 0: escaped("x32 answers")
        else: held("x32", why(e))
    status = apart(x32)
    if os.WIFSIGNALED(status): held("x32 was killed by signal", os.WTERMSIG(status))
done()`},
		{ID: "60-clone3", Title: "clone3, whose flags a filter cannot see", Claim: Rights, Python: `
args = ctypes.create_string_buffer(struct.pack("<8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
r, e = call("clone3", args, 64)
if r == 0: os._exit(0)
if r > 0: os.waitpid(r, 0); escaped("clone3 made a user namespace")
elif e != errno.ENOSYS: escaped("clone3 says", why(e), "and not ENOSYS, so that libc does not fall back")
done()`},
		{ID: "61-cgroups", Title: "write to control groups, mount their file systems", Claim: Kernel, Python: `
for where, dirs, names in os.walk("/sys/fs/cgroup"):
    for n in names:
        path = os.path.join(where, n)
        try: os.close(os.open(path, os.O_WRONLY))
        except OSError: continue
        escaped("open for writing:", path)
    if os.access(where, os.W_OK):
        attempt("make a group in " + where, lambda: (os.mkdir(where + "/escape"), os.rmdir(where + "/escape")))
def release_agent():
    call("unshare", 0x10000000 | 0x20000 | 0x2000000)
    os.makedirs("cg", exist_ok=True)
    for kind, data in [(b"cgroup", b"memory"), (b"cgroup", b"rdma"), (b"cgroup", b"none,name=escape"), (b"cgroup2", None)]:
        denied("mount", b"none", b"cg", kind, 0, data or 0)
apart(release_agent)
done()`},
		{ID: "62-privileges", Title: "capabilities, no_new_privs and the filter of this process", Claim: Rights, Python: `
status = dict(l.rstrip().split(":", 1) for l in open("/proc/self/status") if ":" in l)
for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]:
    if int(status[name], 16): escaped(name, "is", status[name].strip())
for name, want in [("NoNewPrivs", "1"), ("Seccomp", "2")]:
    if status.get(name, "").strip() != want: escaped(name, "is", status.get(name))
done()`},
		{ID: "63-known-holes", Title: "the first step of known exploits: a user namespace with netfilter, cgroups or overlays", Claim: Rights, Python: `
def chain():
    if call("unshare", 0x10000000 | 0x40000000 | 0x20000)[0] < 0: held("no user namespace"); return
    escaped("a user namespace with a network of its own")
    attempt("netfilter in it", lambda: socket.socket(16, socket.SOCK_RAW, 12).close())
apart(chain)
r, e = call("personality", 0x0040000) # ADDR_NO_RANDOMIZE
if r >= 0: escaped("personality without address randomisation")
else: held("personality", why(e))
done()`},
		{ID: "65-kernel-information", Title: "kernel addresses, logs, memory, firmware", Claim: Rights, Python: `
for path in ["/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/keys", "/proc/latency_stats", "/proc/kpagecount",
        "/proc/kpageflags", "/proc/kpagecgroup", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/iomem", "/proc/ioports", "/proc/acpi", "/proc/asound", "/proc/scsi",
        "/proc/sysvipc/shm", "/proc/config.gz", "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/devices/virtual/powercap", "/sys/kernel/security", "/sys/class/dmi/id"]:
    try:
        if os.path.isdir(path): got = ", ".join(os.listdir(path))
        else: 
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK); got = os.read(fd, 4096); os.close(fd)
            if path == "/proc/sysvipc/shm": got = got.splitlines()[1:]
            if path in ("/proc/iomem", "/proc/ioports") and not any(int(l.split(b"-")[0], 16) for l in got.splitlines()[1:4]): got = ""
    except OSError as e: held(path, why(e.errno)); continue
    if got: escaped(path, "tells", str(got)[:60])
try:
    with open("/proc/kallsyms") as f:
        if any(int(f.readline().split()[0], 16) for i in range(50)): escaped("addresses of kernel symbols")
except (OSError, IndexError): pass
denied("syslog", 3, ctypes.create_string_buffer(4096), 4096)
done()`},
		{ID: "65-name", Title: "the name of the host", Claim: Kernel, Leaks: true, Python: `
names = {os.uname().nodename, open("/proc/sys/kernel/hostname").read().strip()}
if env("HOST_NAME") in names: escaped("the host's name")
done()`},
		{ID: "65-processes", Title: "processes of the host in the list", Claim: Processes, Leaks: true, Python: `
if host_visible(): escaped("process", BAIT_PID, "of the host")
done()`},
		{ID: "66-fuzz", Title: "random system calls", Claim: Kernel, MayDie: true, Limits: sandbar.Limits{PIDs: 64}, Python: `
import random
rnd = random.Random(66)
# Never attempted, so that nothing happens should everything else have failed:
# signals to others, clocks, swap, reboot, names of the host, ports, modules, kexec, hangup.
NEVER = {"x86_64": {62, 129, 153, 200, 234, 297, 159, 163, 164, 167, 168, 169, 170, 171, 172, 173, 175, 176, 227, 246, 305, 313, 320, 424},
    "aarch64": {58, 89, 104, 105, 106, 112, 129, 130, 131, 138, 142, 161, 162, 170, 171, 224, 225, 240, 266, 273, 294, 424}}.get(os.uname().machine)
page = ctypes.create_string_buffer(b"/tmp/escape-fuzz\0" + bytes(4079))
values = [0, 1, 2, 3, 7, 8, 64, 4096, -1, -100, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 63, ctypes.addressof(page), os.getpid()]
def batch():
    # What a child writes by chance must not stand in the middle of a verdict.
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3): os.dup2(null, fd)
    signal.alarm(1)
    for i in range(200):
        nr = rnd.randrange(0, 470)
        if nr in NEVER: continue
        libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(rnd.choice(values)) for j in range(6)])
def fuzz():
    end = time.time() + float(env("FUZZ_SECONDS", "4"))
    while time.time() < end:
        pid = os.fork()
        if pid == 0:
            rnd.seed(os.urandom(8)); batch(); os._exit(0)
        stop = time.time() + 2
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.time() > stop: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); break
            time.sleep(0.001)
if NEVER:
    try: fuzz()
    except BaseException as e: held("fuzzing ended", repr(e)) # a child may have reached out to this process
done()`},
	}
}
