package agent

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// A program that needs more memory than its machine has is not killed at once: the kernel first
// drops the program's own code from memory, which is in files, and reads it again and again. In an
// emulated machine that takes half a minute. The agent ends it earlier.

// pressureTrigger makes memory.pressure readable when programs wait for memory for 0.1 of 1 second
// (Documentation/accounting/psi.rst). An emulated machine spends most of the time that is lost in
// executing the kernel, which does not count.
const pressureTrigger = "some 100000 1000000\x00"

const (
	// droppableMemory in bytes, and the part of the limit that is 1/droppableShare, whichever is
	// more: a program that waits for memory is killed if less can be dropped. The code of Python
	// has 8 MiB.
	droppableMemory = 4 << 20
	droppableShare  = 64
	// relief is the memory in bytes that a kill must at least free.
	relief = 4 << 20
)

// relievePressure kills programs that wait for memory. It returns if the
// kernel has no pressure stall information.
func (g programCgroup) relievePressure() {
	if g.dir == 0 {
		return
	}
	fd, err := g.open("memory.pressure", unix.O_RDWR|unix.O_NONBLOCK)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(pressureTrigger)); err != nil {
		return
	}
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err != nil || fds[0].Revents&unix.POLLERR != 0:
			return
		default:
			g.killForMemory()
		}
	}
}

// killForMemory makes the kernel kill programs if almost nothing of what they hold can be dropped.
// A limit below what they hold leaves the kernel no other choice; it selects the victims, and
// counts them in memory.events.
func (g programCgroup) killForMemory() {
	held := g.heldMemory()
	if g.memory-held > max(droppableMemory, g.memory/droppableShare) {
		return
	}
	_ = writeAt(g.dir, "memory.max", strconv.FormatInt(held-relief, 10)) // returns when that much is free
	_ = writeAt(g.dir, "memory.max", strconv.FormatInt(g.memory, 10))
}

// heldMemory returns the memory of programs that the kernel cannot drop, in bytes: all but files
// and caches (memory.stat in Documentation/admin-guide/cgroup-v2.rst).
func (g programCgroup) heldMemory() (n int64) {
	fd, err := g.open("memory.stat", unix.O_RDONLY)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var buf [8 << 10]byte
	size, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(buf[:size]) {
		name, rest := cutField(line)
		number, _ := cutField(rest)
		switch string(name) {
		case "anon", "shmem", "kernel", "sock":
			n += int64(parseNumber(number))
		case "slab_reclaimable":
			n -= int64(parseNumber(number))
		}
	}
	return n
}
