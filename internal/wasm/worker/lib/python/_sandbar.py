# Replaces Python's modules that need threads, sockets or processes in this sandbox.
import errno
import os
import posix
import struct

_CALL = "/dev/sandbar"


def _call(request):
    fd = posix.open(_CALL, posix.O_RDWR)
    try:
        view = memoryview(request)
        while view:
            view = view[posix.write(fd, view):]
        parts = []
        while part := posix.read(fd, 1 << 18):
            parts.append(part)
    finally:
        posix.close(fd)
    answer = b"".join(parts)
    if answer[0]:
        raise OSError(answer[0], os.strerror(answer[0]))
    return answer[1:]


def _path(path):
    return os.fsencode(os.path.join(os.getcwd(), os.fsdecode(path)))


def _strings(items):
    items = [os.fsencode(i) for i in items]
    return struct.pack("<I", len(items)) + b"".join(struct.pack("<I", len(i)) + i for i in items)


# ---- os

def _with_path(function, path, *args):
    try:
        return function(*args)
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from None


def chmod(path, mode, *, dir_fd=None, follow_symlinks=True):
    if isinstance(path, int) or dir_fd is not None:
        raise NotImplementedError("chmod of a descriptor")
    _with_path(_call, path, b"C" + struct.pack("<I", mode & 0o7777) + _path(path))


_stat, _lstat = posix.stat, posix.lstat
_names = [n for n in dir(posix.stat_result) if n.startswith("st_")]


def _stat_with_mode(path, result, flag):
    # WASI has no permission bits.
    mode, = struct.unpack("<I", _call(b"M" + bytes([flag]) + _path(path)))
    fields = list(result)[:10]
    fields[0] |= mode
    return os.stat_result(fields, {n: getattr(result, n) for n in _names})


def stat(path, *, dir_fd=None, follow_symlinks=True):
    result = _stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    if isinstance(path, int) or dir_fd is not None:
        return result
    return _stat_with_mode(path, result, int(follow_symlinks))


def lstat(path, *, dir_fd=None):
    result = _lstat(path, dir_fd=dir_fd)
    if dir_fd is not None:
        return result
    return _stat_with_mode(path, result, 0)


def chdir(path):
    # wasi-libc would only append the path to the working directory.
    _with_path(posix.chdir, path, os.path.realpath(os.fsdecode(path)))


def getuid():
    return 1000


geteuid = getgid = getegid = getuid


def umask(mask):
    return 0o022


def kill(pid, sig):
    import signal
    if pid not in (0, os.getpid()):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    if sig:
        signal.raise_signal(sig)


def system(command):
    import subprocess
    return subprocess.call(command, shell=True) << 8


# ---- processes

def _run(args, env, directory, data):
    command = (_strings(args) + _strings(f"{k}={v}" for k, v in env.items()) +
               struct.pack("<I", len(directory)) + directory + struct.pack("<I", len(data)) + data)
    answer = _call(b"S" + command)
    code, out = struct.unpack_from("<iI", answer)
    return code, answer[8:8 + out], answer[8 + out:]


def _write(fd, data):
    view = memoryview(data)
    while view:
        view = view[posix.write(fd, view):]


def patch_subprocess(module):
    import io
    PIPE, STDOUT, DEVNULL = module.PIPE, module.STDOUT, module.DEVNULL

    class Popen:
        """A program of this sandbox. It runs until it ends when it is created, or,
        with stdin=PIPE, when its input is complete; nothing runs concurrently."""

        def __init__(self, args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None,
                     preexec_fn=None, close_fds=True, shell=False, cwd=None, env=None,
                     universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True,
                     start_new_session=False, pass_fds=(), *, user=None, group=None, extra_groups=None,
                     encoding=None, errors=None, text=None, umask=-1, pipesize=-1, process_group=None):
            if isinstance(args, (str, bytes, os.PathLike)):
                args = [args]
            args = [os.fspath(a) for a in args]
            self.args = args
            if shell:
                args = ["/bin/sh", "-c"] + args
            if executable is not None:
                args = [executable] + args[1:]
            self._argv, self._where = args, (stdin, stdout, stderr)
            self._env = dict(os.environ if env is None else env)
            self._dir = _path(cwd if cwd is not None else ".")
            self.text_mode = bool(encoding or errors or text or universal_newlines)
            self.encoding, self.errors = encoding or "utf-8", errors or "strict"
            self.pid, self.returncode = os.getpid() + 1, None
            self.stdin = self.stdout = self.stderr = None
            if not os.path.isdir(self._dir):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(self._dir))
            if stdin == PIPE:
                popen = self

                class Input(io.BytesIO):
                    def close(self):
                        if not self.closed:
                            data = self.getvalue()
                            super().close()
                            popen._execute(data)
                self.stdin = self._wrap(Input())
            else:
                self._execute(self._input(stdin))

        def _wrap(self, stream):
            if self.text_mode:
                return io.TextIOWrapper(stream, self.encoding, self.errors, write_through=True)
            return stream

        def _input(self, stdin):
            if stdin == DEVNULL:
                return b""
            fd = 0 if stdin is None else stdin if isinstance(stdin, int) else stdin.fileno()
            if stdin is None:
                return b""
            parts = []
            while part := posix.read(fd, 1 << 16):
                parts.append(part)
            return b"".join(parts)

        def _execute(self, data):
            name = self._argv[0]
            self.returncode, out, err = _with_path(_run, name, self._argv, self._env, self._dir, data)
            _, stdout, stderr = self._where
            if stderr == STDOUT:
                out, err = out + err, b""
            self.stdout = self._output(stdout, 1, out)
            self.stderr = None if stderr == STDOUT else self._output(stderr, 2, err)

        def _output(self, where, own, data):
            if where == PIPE:
                return self._wrap(io.BytesIO(data))
            if where != DEVNULL:
                fd = own if where is None else where if isinstance(where, int) else where.fileno()
                _write(fd, data)
            return None

        def communicate(self, input=None, timeout=None):
            if self.stdin is not None and not self.stdin.closed:
                if input:
                    self.stdin.write(input)
                self.stdin.close()
            out = self.stdout.read() if self.stdout else None
            err = self.stderr.read() if self.stderr else None
            return out, err

        def wait(self, timeout=None):
            if self.stdin is not None and not self.stdin.closed:
                self.stdin.close()
            return self.returncode

        def poll(self):
            return self.returncode

        def send_signal(self, sig):
            pass

        terminate = kill = lambda self: None

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            self.wait()
            for stream in self.stdout, self.stderr:
                if stream:
                    stream.close()

        def __repr__(self):
            return f"<Popen: returncode: {self.returncode} args: {self.args!r}>"

        def __class_getitem__(cls, item):
            return cls

    module.Popen = Popen
    module._can_fork_exec = True


# ---- sockets

_NO_NETWORK = "this sandbox has no network"


def patch_socket(module):
    def __init__(self, *args, **kwargs):
        raise OSError(errno.ENOTSUP, _NO_NETWORK)

    def fail(*args, **kwargs):
        raise module.gaierror(getattr(module, "EAI_FAIL", -4), _NO_NETWORK)

    module.socket.__init__ = __init__
    module.socket.__del__ = lambda self: None
    for name in "getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo":
        setattr(module, name, fail)


# ---- asyncio

def patch_selector_events(module):
    import selectors
    import time

    class Selector(selectors._BaseSelectorImpl):
        # Only timers can wake a loop: files are always ready.
        def select(self, timeout=None):
            ready = [(key, key.events) for key in list(self.get_map().values())]
            if ready:
                return ready
            if timeout is None:
                raise RuntimeError("the event loop would wait for ever: nothing is scheduled, and this sandbox has neither threads nor sockets")
            if timeout > 0:
                time.sleep(timeout)
            return []

    selectors.DefaultSelector = selectors.SelectSelector = Selector
    if hasattr(selectors, "PollSelector"):
        selectors.PollSelector = Selector
    loop = module.BaseSelectorEventLoop

    def _make_self_pipe(self):
        self._ssock = self._csock = None

    def nothing(self, *args):
        pass

    loop._make_self_pipe = _make_self_pipe
    loop._close_self_pipe = loop._write_to_self = nothing


def patch_base_events(module):
    def run_in_executor(self, executor, func, *args):
        # Without threads, the function runs immediately.
        self._check_closed()
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as e:
            if isinstance(e, (SystemExit, KeyboardInterrupt)):
                raise
            future.set_exception(e)
        return future

    async def shutdown_default_executor(self, timeout=None):
        pass

    async def no_process(self, *args, **kwargs):
        raise NotImplementedError("asyncio has no processes in this sandbox; subprocess.run has")

    loop = module.BaseEventLoop
    loop.run_in_executor = run_in_executor
    loop.shutdown_default_executor = shutdown_default_executor
    loop.subprocess_exec = loop.subprocess_shell = no_process


def patch_unix_events(module):
    def add_signal_handler(self, sig, callback, *args):
        raise NotImplementedError("there are no signals in this sandbox")

    module._UnixSelectorEventLoop.add_signal_handler = add_signal_handler


def patch(name, module):
    function = globals().get("patch_" + name.rpartition(".")[2])
    if function:
        function(module)
