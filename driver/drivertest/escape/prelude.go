package escape

// prelude is the beginning of every Python program: functions to report, and raw system calls by
// name.
const prelude = `
import ctypes, errno, os, signal, socket, stat, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
env = os.environ.get
HOME = env("HOME", "/home/user")
# A prestarted interpreter has no token in its arguments: its name tells.
libc.prctl(15, env("SANDBAR_ESCAPE", "")[-15:].encode(), 0, 0, 0)
BAIT_PID = int(env("BAIT_PID", "0"))

def say(*words):
    os.write(1, (" ".join(str(w) for w in words).replace("\n", " ") + "\n").encode("utf-8", "replace"))

def escaped(*words): say("ESCAPED", *words)
def held(*words): say("held:", *words)
def done(): say("DONE")
def why(e): return errno.errorcode.get(e, e)

# attempt calls f; it is an escape when f returns.
def attempt(what, f, *args):
    try:
        r = f(*args)
    except (OSError, ValueError, OverflowError) as e:
        held(what, why(getattr(e, "errno", 0)))
        return None
    escaped(what)
    return r

NR = {
    "x86_64": dict(ptrace=101, personality=135, pivot_root=155, acct=163, mount=165, umount2=166, swapon=167, reboot=169,
        init_module=175, quotactl=179, syslog=103, clone=56, kexec_load=246, add_key=248, request_key=249, keyctl=250, unshare=272,
        move_pages=279, perf_event_open=298, name_to_handle_at=303, open_by_handle_at=304, setns=308, process_vm_readv=310,
        process_vm_writev=311, kcmp=312, finit_module=313, kexec_file_load=320, bpf=321, userfaultfd=323),
    "aarch64": dict(ptrace=117, personality=92, pivot_root=41, acct=89, mount=40, umount2=39, swapon=224, reboot=142,
        init_module=105, quotactl=60, syslog=116, clone=220, kexec_load=104, add_key=217, request_key=218, keyctl=219, unshare=97,
        move_pages=239, perf_event_open=241, name_to_handle_at=264, open_by_handle_at=265, setns=268, process_vm_readv=270,
        process_vm_writev=271, kcmp=272, finit_module=273, kexec_file_load=294, bpf=280, userfaultfd=282),
}.get(os.uname().machine, {})
NR.update(io_uring_setup=425, open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433,
    pidfd_open=434, clone3=435, pidfd_getfd=438, mount_setattr=442, quotactl_fd=443, memfd_secret=447)

# call makes a raw system call and returns (result, errno).
def call(name, *args):
    nr = NR.get(name) if isinstance(name, str) else name
    if nr is None: return -1, errno.ENOSYS
    conv = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    r = libc.syscall(ctypes.c_long(nr), *conv)
    return r, ctypes.get_errno()

REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS}

# refused makes a system call that must not reach the kernel's own code: any
# answer but a refusal is an escape.
def refused(name, *args):
    r, e = call(name, *args)
    if r >= 0: escaped(name, "returned", r)
    elif e in REFUSED: held(name, why(e))
    else: escaped(name, "was let through and failed with", why(e))
    return r

# denied makes a system call that must fail, in whatever way.
def denied(name, *args):
    r, e = call(name, *args)
    if r >= 0: escaped(name, "returned", r)
    else: held(name, why(e))
    return r

# denied_as is denied, told by another name.
def denied_as(what, name, *args):
    r, e = call(name, *args)
    if r >= 0: escaped(what)
    else: held(what, why(e))

# apart runs f in a child; how the child ended is returned as a wait status.
def apart(f):
    pid = os.fork()
    if pid == 0:
        try: f()
        except BaseException as e: held("child", repr(e))
        os._exit(0)
    return os.waitpid(pid, 0)[1]

def pids(): return sorted(int(n) for n in os.listdir("/proc") if n.isdigit())
def host_visible(): return os.path.exists("/proc/%d/stat" % BAIT_PID)
`
