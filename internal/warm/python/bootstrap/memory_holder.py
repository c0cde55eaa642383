# Reports a program's end before the kernel frees its memory.
import os
import _thread


class MemoryHolder:
    """Clones the copy with shared memory, and stays behind as the second owner of that memory.

    A process's parent learns of its end after the kernel has freed its memory, which takes as long
    as a short program runs. If another process has the same memory (CLONE_VM, clone(2)), nothing is
    freed. So the process that has entered the sandbox clones the copy, and stays as the holder until
    the daemon closes the other end of its socket.

    The program can write all of the holder's memory, including its code. So before there is a
    program, the holder has the sandbox's user, rights and limits, one descriptor that nobody writes
    to, one second of processor time, and a seccomp filter that allows read and exit. No process of
    the sandbox can signal or trace it: it is in the template's PID namespace.

    Before the clone, unregister_thread removes the addresses that libc has registered with the
    kernel for this thread; the kernel would write there for both processes. register_thread restores
    them in the copy.

    If this is not possible, clone forks and no holder stays."""

    START_TIMEOUT = 5  # seconds until the holder must have installed its filter
    RSEQ, UNREGISTER, AREA = 0x53053053, 1, 32  # rseq(2): libc's signature, the flag, bytes of struct rseq

    def __init__(self, kernel, machine, wanted):
        import time
        self.kernel, self.time, self.able = kernel, time, False
        if not wanted or not machine.enabled:
            return
        ctypes = kernel.ctypes
        self.page = kernel.map_page()  # the data of clone_code, at the offsets that it names
        rules = b''.join(map(self.rule, (
            (0x20, 0, 0, 4), (0x15, 0, 3, 0xc000003e),  # kill on a call of another architecture
            (0x20, 0, 0, 0), (0x15, 2, 0, 0), (0x15, 1, 0, 60),  # allow read and exit
            (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7fff0000))))
        self.put(16, (1).to_bytes(8, 'little') * 2)  # struct rlimit: one second
        self.put(32, (len(rules) // 8).to_bytes(8, 'little') + (self.page + 48).to_bytes(8, 'little') + rules)
        code = machine.load(clone_code())
        if code is not None:
            self.clone_function = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p)(code)
            self.able = True  # for the trial
            self.able = self.trial()

    def put(self, at, content):
        self.kernel.ctypes.memmove(self.page + at, content, len(content))

    @staticmethod
    def rule(words):
        """One struct sock_filter."""
        code, true, false, k = words
        return code.to_bytes(2, 'little') + bytes((true, false)) + k.to_bytes(4, 'little')

    def trial(self):
        """Whether this host can clone a copy of this process, with the thread's registrations intact."""
        read, write = os.pipe()
        keep, held = os.pipe()
        pid = self.kernel.fork()
        if pid == 0:
            try:
                os.close(held)
                before = os.getpid()
                self.unregister_thread()
                self.clone(keep)
                self.clone(-1)
                self.register_thread()
                tid = self.kernel.ctypes.c_uint32.from_address(self.address).value
                if before != os.getpid() == _thread.get_native_id() == tid:
                    os.write(write, b'1')
            finally:
                os._exit(0)
        os.close(write)
        whole = os.read(read, 1) == b'1'
        for fd in keep, held, read:
            os.close(fd)
        self.reap(pid)
        return whole

    @staticmethod
    def reap(pid):
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:  # SIGCHLD is ignored: the kernel reaps the child
            pass

    def unregister_thread(self):
        """Removes the addresses at which the kernel writes for this thread."""
        if not self.able:
            return
        kernel, ctypes = self.kernel, self.kernel.ctypes
        word, size = ctypes.c_uint64(), ctypes.c_uint64()
        kernel.prctl(PR_GET_TID_ADDRESS, ctypes.addressof(word))
        self.address = word.value
        kernel.call('get_robust_list', 0, ctypes.addressof(word), ctypes.addressof(size))
        self.robust = word.value, size.value
        kernel.call('set_tid_address', 0)
        kernel.call('set_robust_list', 0, size.value)
        try:
            offset = ctypes.c_int64.in_dll(kernel.libc, '__rseq_offset').value
            used = ctypes.c_uint32.in_dll(kernel.libc, '__rseq_size').value
        except ValueError:  # glibc before 2.35 registers none
            used = 0
        self.area = _thread.get_ident() + offset if used else 0
        if self.area:
            kernel.call('rseq', self.area, self.AREA, self.UNREGISTER, self.RSEQ)

    def clone(self, keep):
        """Returns in a child. The caller becomes the holder, or exits if keep is negative."""
        if not self.able:
            pid = self.kernel.fork()
            if pid:
                if keep >= 0:
                    self.reap(pid)  # the process outside the sandbox must exit last
                os._exit(0)
            return
        flags = CLONE_VM | CLONE_CHILD_SETTID | SIGCHLD
        if keep < 0:
            flags |= CLONE_CHILD_CLEARTID
        error = self.clone_function(flags, self.address, keep, self.page)
        if error:
            raise OSError(-error, 'clone')

    def register_thread(self):
        """Restores what unregister_thread has removed, and waits until the holder has its filter."""
        if not self.able:
            return
        kernel = self.kernel
        kernel.call('set_robust_list', *self.robust)
        if self.area:
            kernel.call('rseq', self.area, self.AREA, 0, self.RSEQ)
        # The holder sets a byte when it has its filter. It cannot wake this process: the filter
        # allows read and exit only.
        end = self.time.monotonic() + self.START_TIMEOUT
        while not kernel.ctypes.c_ubyte.from_address(self.page).value:
            if self.time.monotonic() > end:
                raise OSError(EPERM, 'the memory holder')
            self.time.sleep(1e-4)
