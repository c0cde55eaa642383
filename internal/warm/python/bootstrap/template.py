# The template: answers requests for copies. A copy enters its sandbox, drops its rights, and waits
# for its program.
import os
import sys

CONTROL = 3  # the daemon's socket, in the template
CALLER = 3  # the daemon's socket, in a copy
RULESET = 4  # the Landlock ruleset, until the copy has its domain
INIT = 1  # the process id of a sandbox's first process, the agent
WORKING_SET = b'pages\n'  # begins a message with the working set
NESTING = 300  # printing lists nested this deep takes some 100 KiB of stack
ZIP_END = b'PK\5\6'  # is in every zip file
NO_CODE = 0xffffffff  # in place of the program's length: its file exists


class Template:
    """The interpreter that is copied."""

    def __init__(self):
        import _socket
        self.socket = _socket
        self.control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CONTROL)
        head, _, rest = self.control.recv(1 << 20).partition(b'\n')
        (self.arch,), numbers, common, wanted, sizes = (field.split() for field in head.decode().split(';'))
        self.numbers = {name: int(number) for name, _, number in (word.partition('=') for word in numbers)}
        self.common, self.wanted = common, wanted
        self.filters = []
        for size in map(int, sizes):
            self.filters.append(rest[:size])
            rest = rest[size:]

    def prepare(self, base):
        """Imports the modules and hides them."""
        with Recorder() as recorder:
            for name in self.common:
                try:
                    __import__(name)
                except ImportError:
                    pass
            for name in self.wanted:
                self.require(name)
            self.kernel = Kernel(self.arch, self.numbers)
            self.capabilities = self.kernel.count_capabilities()
            self.command = [os.fsencode(word) for word in self.kernel.arguments()[:-1]]
            import array, atexit, gc, resource, time, types, weakref
        self.array, self.gc, self.resource, self.time = array, gc, resource, time
        for name in RESEED:
            if name in sys.modules:
                RESEED[name](sys.modules[name])
        self.exit = FastExit(self.kernel, gc, recorder.handlers)
        self.kernel.signal(SIGCHLD, SIG_IGN)  # the kernel reaps copies
        self.working_set = WorkingSet(self.kernel)
        self.ssl = sys.modules.get('_ssl')
        if self.ssl is not None:
            self.ssl.RAND_bytes(1)  # allocates OpenSSL's generator; each copy adds a seed of its own
        self.zone = os.environ.get('TZ')
        self.read = recorder.read
        hidden = HiddenModules(base, recorder, self.wanted)
        hook_imports(hidden)
        # Never freed, so that finalization does not visit all of it.
        self.kernel.ctypes.pythonapi.Py_IncRef(self.kernel.ctypes.py_object(hidden.modules))

    def require(self, name):
        """Imports a module; an error is reported to the daemon."""
        try:
            __import__(name)
        except BaseException as error:
            self.control.send(b'import\0%s\0%s' % (name.encode(), type(error).__name__.encode()))
            raise

    def serve(self):
        """Answers requests for copies. Returns only in a copy that has its program."""
        self.pid = os.getpid()
        self.gc.collect()
        self.gc.freeze()
        main = sys.modules['__main__']
        for thing in main, vars(main):  # unfrozen: they belong to the program, whose end collects them
            thing = self.kernel.ctypes.py_object(thing)
            self.kernel.ctypes.pythonapi.PyObject_GC_UnTrack(thing)
            self.kernel.ctypes.pythonapi.PyObject_GC_Track(thing)
        nested = []
        for _ in range(NESTING):
            nested = [nested]
        repr(nested)  # grows the stack: a working set can only name pages that are mapped here
        self.kernel.prctl(PR_SET_DUMPABLE, 0)
        self.control.send(b'ready\0%d.%d\0' % sys.version_info[:2] + b'\0'.join(sorted(self.read)))
        while True:
            message, fds = self.receive(self.control, 1 << 17)
            if not message:
                os._exit(0)
            if message.startswith(WORKING_SET):
                self.working_set.set(message[len(WORKING_SET):])
                continue
            # Parsed before the fork: until the copy is in its control group, its writes are
            # charged to the template.
            request = ForkRequest(message, fds)
            pid = self.kernel.fork()
            if pid == 0:
                return self.become(request)
            for fd in fds:
                os.close(fd)

    def receive(self, socket, size):
        fds = self.array.array('i')
        message, ancillary, flags, _ = socket.recvmsg(size, self.socket.CMSG_SPACE(4 * 64))
        for level, kind, data in ancillary:
            if level == self.socket.SOL_SOCKET and kind == self.socket.SCM_RIGHTS:
                fds.frombytes(data)
        if flags & self.socket.MSG_CTRUNC:
            raise OSError(EINVAL, 'recvmsg')
        return message, fds

    def become(self, request):
        """Enters the sandbox, waits for the program, and takes on its arguments and streams."""
        try:
            self.enter_sandbox(request)
        except BaseException as error:
            os.write(request.caller, b'failed %s' % str(error).encode()[:200])
            raise
        self.begin(self.receive_run())

    def enter_sandbox(self, request):
        kernel = self.kernel
        os.close(self.control.detach())
        for group in request.cgroups:
            os.write(group, b'0')  # from here on memory is charged to the sandbox
        for namespace in request.namespaces:
            kernel.call('setns', namespace, 0)
        self.become_child_of_init()
        self.working_set.map()
        os.umask(0o022)
        os.chdir(HOME)
        request.caller = os.dup2(request.caller, CALLER)
        if request.ruleset >= 0:
            request.ruleset = os.dup2(request.ruleset, RULESET)
        self.confine(request)
        kernel.call('close_range', CALLER + 1, 0xffffffff, 0)
        null = os.open('/dev/null', os.O_RDWR)
        self.null = os.fstat(null).st_rdev
        for fd in range(3):
            os.dup2(null, fd)
        os.close(null)
        reopen(0)  # in advance: most programs have no input
        os.setsid()
        for program in self.filters:
            kernel.filter(program)
        self.set_title()
        if self.ssl is not None:
            self.ssl.RAND_add(os.urandom(32), 32.0)
        self.caller = self.socket.socket(self.socket.AF_UNIX, self.socket.SOCK_STREAM, 0, CALLER)
        if request.profile:
            self.exit.profile = Profile()
        self.caller.send(b'ready %d' % os.getpid())

    def become_child_of_init(self):
        """Continues in the sandbox's PID namespace, as a child of its first process.

        setns(2) of a PID namespace holds for children only. The first child is in the namespace, but
        its parent is not; it forks the copy and exits, so that the copy's parent is the namespace's
        first process."""
        kernel, python = self.kernel, self.kernel.ctypes.pythonapi
        read, write = os.pipe()
        python.PyOS_BeforeFork()
        child = kernel.fork()
        if child:
            kernel.await_exit(child)
            os._exit(0)
        while True:
            if kernel.fork():
                os._exit(0)
            # Another number than the template's: libraries detect a fork by a changed process id.
            if os.getpid() != self.pid:
                break
        python.PyOS_AfterFork_Child()
        os.close(write)
        os.read(read, 1)  # until all parents have ended
        os.close(read)
        if os.getppid() != INIT:
            raise OSError(ESRCH, 'the first process')
        kernel.signal(SIGCHLD, SIG_DFL)

    def confine(self, request):
        """Drops what the agent's launcher drops, in the same order. Filters follow later."""
        kernel = self.kernel
        for capability in range(self.capabilities):
            kernel.prctl(PR_CAPBSET_DROP, capability)
        kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
        if request.core:
            try:
                kernel.prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, THREAD_GROUP)
            except OSError as error:
                if error.errno not in (EINVAL, ENODEV):  # no core scheduling, no hardware threads
                    raise
        if request.nice:
            os.setpriority(os.PRIO_PROCESS, 0, request.nice)
        for resource, soft, hard in request.rlimits:
            self.resource.setrlimit(resource, (soft, hard))
        if request.ruleset >= 0:
            kernel.call('landlock_restrict_self', request.ruleset, 0)
        if request.ranged:
            os.setgroups([])
            os.setresgid(request.gid, request.gid, request.gid)
            os.setresuid(request.uid, request.uid, request.uid)
        kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
        kernel.drop_capabilities()
        kernel.prctl(PR_SET_DUMPABLE, 1)

    def set_title(self, args=()):
        self.kernel.title(self.command + list(args or [FILE]),
                          [name + b'=' + value for name, value in os.environb.items()])

    def receive_run(self):
        """Receives a Run message, puts its streams in place, and returns the rest."""
        size, run, streams = 4, b'', self.array.array('i')
        while len(run) < size:
            message, fds = self.receive(self.caller, 1 << 16)
            if not message:
                os._exit(0)
            streams += fds
            run += message
            if size == 4 and len(run) >= 4:
                size += int.from_bytes(run[:4], 'little')
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
            os.close(fd)
        os.close(self.caller.detach())
        return run[4:]

    def begin(self, run):
        """Gives this process the state of one that was started for the program."""
        code = int.from_bytes(run[:4], 'little')
        at = 4 if code == NO_CODE else 4 + code
        words = run[at:].split(b'\0')
        count = int(words[0])
        args, env = words[1:1 + count], words[1 + count:]
        if code != NO_CODE:
            fd = os.open(args[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            if os.write(fd, run[4:at]) != code:
                raise OSError(ENOSPC, 'write')
            os.close(fd)
            if run.find(ZIP_END, 4, at) < 0:
                # The result of the interpreter's test whether the file is a zip file.
                sys.path_importer_cache[PATH] = None
        if env:
            os.environ.clear()
            for variable in env:
                name, _, value = variable.partition(b'=')
                os.environb[name] = value
            if os.environ.get('TZ') != self.zone:
                self.time.tzset()
        if env or args != [FILE]:
            self.set_title(args)
        sys.argv[:] = map(os.fsdecode, args)
        if sys.version_info >= (3, 10):
            sys.orig_argv[-1:] = sys.argv
        for fd in range(3):
            stat = os.fstat(fd)
            if fd == 0 and stat.st_rdev != self.null or fd and stat.st_mode & 0o170000 != 0o010000:
                reopen(fd)
        self.exit.begin(args[0], code != NO_CODE)


class ForkRequest:
    """A request for a copy (ForkRequest in package python)."""

    def __init__(self, message, fds):
        numbers = [int(word) for word in message.split()]
        cgroups, namespaces, ruleset, self.profile, self.core, self.ranged, self.uid, self.gid, self.nice = numbers[:9]
        self.rlimits = [numbers[at:at + 3] for at in range(9, len(numbers), 3)]
        self.caller, fds = fds[0], fds[1:]
        self.cgroups, fds = fds[:cgroups], fds[cgroups:]
        self.namespaces, fds = fds[:namespaces], fds[namespaces:]
        self.ruleset = fds[0] if ruleset else -1


def reopen(fd):
    """Opens a standard stream as start-up does. The template's own are pipes."""
    import _io as io  # io itself may be hidden
    name, mode = ('stdin', 'stdout', 'stderr')[fd], 'w' if fd else 'r'
    old = getattr(sys, name)
    unbuffered = old.write_through
    binary = io.open(fd, mode + 'b', 0 if unbuffered and fd else -1, closefd=False)
    raw = binary if unbuffered and fd else binary.raw
    raw.name = '<%s>' % name
    text = io.TextIOWrapper(binary, old.encoding, old.errors, '\n',
                            not unbuffered and (fd == 2 or raw.isatty()), unbuffered)
    text.mode = mode
    setattr(sys, name, text)
    setattr(sys, '__%s__' % name, text)
