# System calls for which the interpreter has no function.
PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_MM, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 23, 24, 35, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, PR_SET_MM_MAP = 4, 14
PR_SCHED_CORE, PR_SCHED_CORE_CREATE, THREAD_GROUP = 62, 1, 1
SECCOMP_SET_MODE_FILTER = 1
LINUX_CAPABILITY_VERSION_3 = 0x20080522
EINVAL, ENODEV, ENOSPC, EPERM, ESRCH = 22, 19, 28, 1, 3
SIGCHLD, SIG_DFL, SIG_IGN = 17, 0, 1


class Kernel:
    """System calls by number, and calls of libc that the interpreter must not notice."""

    def __init__(self, arch, numbers):
        import ctypes
        self.arch, self.ctypes = arch, ctypes
        self.libc = ctypes.PyDLL(None, use_errno=True)
        self.libc.syscall.restype = ctypes.c_long
        self.numbers = numbers

    def call(self, name, *args):
        """Makes a system call whose arguments are integers."""
        result = self.libc.syscall(self.ctypes.c_long(self.numbers[name]), *map(self.ctypes.c_long, args))
        if result < 0:
            raise OSError(self.ctypes.get_errno(), name)
        return result

    def prctl(self, *args):
        return self.call('prctl', *(args + (0,) * (5 - len(args))))

    def fork(self):
        """Forks without the handlers that os.fork runs before and after."""
        pid = self.libc.fork()
        if pid < 0:
            raise OSError(self.ctypes.get_errno(), 'fork')
        return pid

    @staticmethod
    def await_exit(pid):
        """Waits until a child has ended, while SIGCHLD is ignored."""
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:  # the kernel has reaped it
            pass

    def signal(self, number, action):
        """Sets a signal's disposition behind the back of the module signal."""
        self.libc.signal(number, self.ctypes.c_void_p(action))

    def filter(self, program):
        """Installs a seccomp filter."""
        ctypes = self.ctypes
        held = ctypes.create_string_buffer(program, len(program))
        head = (ctypes.c_uint64 * 2)(len(program) // 8, ctypes.addressof(held))
        self.call('seccomp', SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(head))

    def arguments(self):
        """Returns the arguments that the interpreter was started with (sys.orig_argv, which 3.9 lacks)."""
        count, words = self.ctypes.c_int(), self.ctypes.POINTER(self.ctypes.c_wchar_p)()
        self.ctypes.pythonapi.Py_GetArgcArgv(self.ctypes.byref(count), self.ctypes.byref(words))
        return words[:count.value]

    def count_capabilities(self):
        """Returns the number of capabilities that the kernel has."""
        count = 0
        try:
            while True:
                self.prctl(PR_CAPBSET_READ, count)
                count += 1
        except OSError as error:
            if error.errno != EINVAL:
                raise
            return count

    def drop_capabilities(self):
        ctypes = self.ctypes
        head = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)()
        self.call('capset', ctypes.addressof(head), ctypes.addressof(sets))
        self.call('capget', ctypes.addressof(head), ctypes.addressof(sets))
        if any(sets):
            raise OSError(EPERM, 'capset')

    def title(self, args, env):
        """Makes /proc/self/cmdline and /proc/self/environ show args and env, as after execve(2).

        Only the output of ps depends on it, so an error of the kernel is ignored."""
        ctypes = self.ctypes
        args, env = b''.join(word + b'\0' for word in args), b''.join(word + b'\0' for word in env)
        shown = ctypes.create_string_buffer(args + env, len(args) + len(env))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(shown))  # the kernel reads it until the process ends
        start = ctypes.addressof(shown)
        with open('/proc/self/stat', 'rb') as file:
            stat = [b'', b''] + file.read().rpartition(b')')[2].split()
        code, end_code, stack, data, end_data, brk = (int(stat[n - 1]) for n in (26, 27, 28, 45, 46, 47))
        layout = (ctypes.c_uint64 * 13)(code, end_code, data, end_data, brk, self.call('brk', 0), stack,
                                        start, start + len(args), start + len(args), start + len(args) + len(env), 0, 0xffffffff << 32)
        try:
            self.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(layout), ctypes.sizeof(layout))
        except OSError:
            pass
