# All hand-assembled code of the template (x86-64), behind one switch: Config.MachineCode in
# package python, whose comment says what the code costs and what it gains.
#
# Each user of MachineCode.load has a fallback for None: MemoryHolder forks, and WorkingSet lets pages
# fault in.


class MachineCode:
    """Puts instructions into executable memory, if the switch and the processor allow it."""

    def __init__(self, kernel, allowed):
        self.kernel, self.enabled = kernel, allowed and kernel.arch == 'amd64'

    def load(self, code):
        """Returns the address of at most 4096 bytes of code; None if it is off or the host forbids it."""
        if not self.enabled:
            return None
        try:
            page = self.kernel.map_page()
            self.kernel.ctypes.memmove(page, code, len(code))
            self.kernel.call('mprotect', page, 4096, PROT_READ | PROT_EXEC)
        except OSError:
            return None
        return page


def populate_code():
    """For WorkingSet: populate(ranges, count) calls madvise(2) for each triple of arguments.

    A loop in Python would itself write to pages."""
    return (b'\xf3\x0f\x1e\xfa'  # endbr64
            + b'\x53\x41\x54\x48\x89\xfb\x49\x89\xf4'  # push rbx; push r12; mov rbx, rdi; mov r12, rsi
            + b'\xeb\x19'  # jmp test
            + b'\x48\x8b\x3b\x48\x8b\x73\x08\x48\x8b\x53\x10'  # next: mov rdi, [rbx]; mov rsi, [rbx+8]; mov rdx, [rbx+16]
            + b'\xb8\x1c\x00\x00\x00\x0f\x05'  # madvise(rdi, rsi, rdx)
            + b'\x48\x83\xc3\x18\x49\xff\xcc'  # add rbx, 24; dec r12
            + b'\x4d\x85\xe4\x75\xe2'  # test: test r12, r12; jnz next
            + b'\x41\x5c\x5b\xc3')  # pop r12; pop rbx; ret


def clone_code():
    """For MemoryHolder: clone(flags, tid, keep, page) makes a child with the caller's memory and stack.

    It returns 0 in the child, or a negative error. The parent never returns, because the child uses
    its stack: the parent keeps all state in registers. It becomes the holder: it closes all
    descriptors but keep, limits its processor time, installs the filter at page+32, sets the byte at
    page to 1, and exits when a read of keep returns. If keep is negative, it exits at once."""
    leave = (b'\x31\xff'  # leave: xor edi, edi
             + b'\xb8\x3c\x00\x00\x00\x0f\x05'  # exit(0)
             + b'\xf4')  # hlt
    stay = (b'\x31\xff\x41\x8d\x74\x24\xff\x31\xd2'  # xor edi, edi; lea esi, [r12-1]; xor edx, edx
            + b'\xb8\xb4\x01\x00\x00\x0f\x05'  # close_range(0, keep-1, 0)
            + b'\x41\x8d\x7c\x24\x01\x83\xce\xff\x31\xd2'  # lea edi, [r12+1]; or esi, -1; xor edx, edx
            + b'\xb8\xb4\x01\x00\x00\x0f\x05'  # close_range(keep+1, ~0, 0)
            + b'\x31\xff\x31\xf6\x49\x8d\x55\x10\x45\x31\xd2'  # xor edi, edi; xor esi, esi; lea rdx, [r13+16]; xor r10d, r10d
            + b'\xb8\x2e\x01\x00\x00\x0f\x05'  # prlimit64(0, RLIMIT_CPU, page+16, 0)
            + b'\x85\xc0\x75%s'  # test eax, eax; jnz leave
            + b'\xbf\x01\x00\x00\x00\x31\xf6\x49\x8d\x55\x20'  # mov edi, 1; xor esi, esi; lea rdx, [r13+32]
            + b'\xb8\x3d\x01\x00\x00\x0f\x05'  # seccomp(SECCOMP_SET_MODE_FILTER, 0, page+32)
            + b'\x85\xc0\x75%s'  # test eax, eax; jnz leave
            + b'\x41\xc6\x45\x00\x01'  # mov byte [r13], 1
            + b'\x44\x89\xe7\x49\x8d\x75\x08\xba\x01\x00\x00\x00'  # mov edi, r12d; lea rsi, [r13+8]; mov edx, 1
            + b'\x31\xc0\x0f\x05')  # read(keep, page+8, 1)
    first = stay.index(b'%s')
    second = stay.index(b'%s', first + 2)
    size = len(stay) - 2  # each of the two placeholders becomes one byte
    stay = stay.replace(b'%s', bytes((size - first - 1,)), 1).replace(b'%s', bytes((size - second,)), 1)
    return (b'\xf3\x0f\x1e\xfa'  # endbr64
            + b'\x41\x54\x41\x55'  # push r12; push r13
            + b'\x41\x89\xd4\x49\x89\xcd'  # mov r12d, edx; mov r13, rcx
            + b'\x49\x89\xf2\x31\xf6\x31\xd2\x45\x31\xc0'  # mov r10, rsi; xor esi, esi; xor edx, edx; xor r8d, r8d
            + b'\xb8\x38\x00\x00\x00\x0f\x05'  # clone(flags, 0, 0, tid, 0)
            + b'\x48\x85\xc0\x7f\x05'  # test rax, rax; jg parent
            + b'\x41\x5d\x41\x5c\xc3'  # pop r13; pop r12; ret
            + b'\x45\x85\xe4\x78' + bytes((len(stay),))  # parent: test r12d, r12d; js leave
            + stay + leave)
