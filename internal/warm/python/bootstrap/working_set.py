# Maps the pages that every program uses before the program starts.
import os
import sys


class WorkingSet:
    """The pages that programs are known to use, which each copy maps when it is made.

    The kernel copies a page at the first write, and maps a page of a file at the first read. Each of
    these faults takes longer than the copying. A profile run (Profile) reports the pages; the daemon
    sends them to the template."""

    READ, WRITE = 22, 23  # MADV_POPULATE_READ, MADV_POPULATE_WRITE (Linux 5.14)
    MAX_RANGES = 4096

    def __init__(self, kernel):
        ctypes = kernel.ctypes
        self.madvise = kernel.libc.madvise
        self.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.ranges = []

    def set(self, ranges):
        """Takes triples of address, length and advice, eight bytes each."""
        numbers = [int.from_bytes(ranges[at:at + 8], 'little') for at in range(0, len(ranges), 8)]
        self.ranges = list(zip(*[iter(numbers)] * 3))[:self.MAX_RANGES]

    def map(self):
        for start, length, advice in self.ranges:
            self.madvise(start, length, advice)  # a range that cannot be mapped is mapped when it is used


class Profile:
    """Reports which pages a copy has used when it is ready, and which more at its end."""

    # By the mode of a mapping: the advice that maps its pages, and the bits of a pagemap entry
    # (proc_pid_pagemap(5)): present, and for private pages exclusively mapped.
    MODES = {b'rw-p': (WorkingSet.WRITE, 0x81), b'r--p': (WorkingSet.READ, 0x80), b'r-xp': (WorkingSet.READ, 0x80)}
    KERNEL = 1 << 35  # the first page number of the kernel's half of the address space

    def __init__(self):
        self.ready = self.read()

    @staticmethod
    def read():
        """Reads /proc/self/pagemap for each mapping. It is evaluated at the end: that uses pages too."""
        with open('/proc/self/maps', 'rb', 0) as maps, open('/proc/self/pagemap', 'rb', 0) as file:
            seen = []
            for line in maps.readall().splitlines():
                extent, mode = line.split()[:2]
                first, last = (int(end, 16) >> 12 for end in extent.split(b'-'))
                if mode in Profile.MODES and last <= Profile.KERNEL:
                    seen.append((first, mode, os.pread(file.fileno(), 8 * (last - first), 8 * first)))
            return seen

    def report(self):
        """Writes the ranges to the standard output, those in use when the copy was ready first."""
        ready, end = (self.used(seen) for seen in (self.ready, self.read()))
        ranges = self.ranges(sorted(ready)) + self.ranges(sorted(end - ready))
        os.write(1, b''.join(b'%x %x %x\n' % each for each in ranges))

    @classmethod
    def used(cls, seen):
        """The mapped pages of files, and the private pages, with their advice."""
        pages = set()
        for first, mode, entries in seen:
            advice, bits = cls.MODES[mode]
            pages.update((first + i // 8, advice) for i in range(7, len(entries), 8) if entries[i] & bits == bits)
        return pages

    @staticmethod
    def ranges(pages):
        """Address, length and advice of consecutive pages, in bytes."""
        ranges = []
        for page, advice in pages:
            if ranges and sum(ranges[-1][:2]) == page << 12 and ranges[-1][2] == advice:
                ranges[-1] = ranges[-1][0], ranges[-1][1] + 4096, advice
            else:
                ranges.append((page << 12, 4096, advice))
        return ranges
