//go:build amd64 || arm64

package interp

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// start clones the process with clone3(2) and lets the child execute the instructions at code.
func start(args, size, code uintptr) (pid, errno uintptr)

// address returns the address of start.
func address() uintptr

// codeSize is more than the size of start in bytes.
const codeSize = 1024

// Start starts a process that unmaps all memory but the shared one (unless keepsMemory), closes all
// descriptors but the socket, asks the kernel to kill it when the calling thread ends, and executes
// the instructions at Entry. The caller must be locked to its thread and owns the pidfd.
func Start(p Process) (pid, pidfd int, err error) {
	addr, _, e := syscall.RawSyscall6(unix.SYS_MMAP, Base, Size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, uintptr(p.Memory), 0)
	if e != 0 {
		return 0, -1, e
	}
	defer syscall.RawSyscall(unix.SYS_MUNMAP, addr, Size, 0)
	memory := unsafe.Slice((*byte)(mapped(addr)), Size)
	if err := putPrologue(memory, p.Socket); err != nil {
		return 0, -1, err
	}
	fd := int32(-1)
	args := cloneArgs{
		flags:      p.Flags | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND,
		pidfd:      uint64(uintptr(unsafe.Pointer(&fd))),
		exitSignal: uint64(unix.SIGCHLD),
	}
	if p.Cgroup >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(p.Cgroup)
	}
	// No handler of the Go runtime may run in the child, so all signals are blocked there for good.
	all, old := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	n, errno := start(uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), Base+prologueAt)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	if errno != 0 {
		return 0, -1, syscall.Errno(errno)
	}
	return int(n), int(fd), nil
}

// cloneArgs is struct clone_args (clone(2)).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// mapped converts the address of a mapping outside of the Go heap.
func mapped(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// putPrologue writes the first instructions of a process.
func putPrologue(memory []byte, socket int) error {
	page := uintptr(os.Getpagesize())
	from := address() &^ (page - 1)
	keep := [][2]uintptr{{from, (address() + codeSize + page - 1) &^ (page - 1)}, {Base, Base + Size}}
	var ranges [][2]uintptr
	if !keepsMemory {
		var err error
		if ranges, err = mappings(); err != nil {
			return err
		}
	}
	const exitAt = Base + prologueAt + InstrSize // the second instruction, which the first skips
	list := []Instr{{Number: Equal, OnZero: exitAt + InstrSize}, {Number: unix.SYS_EXIT_GROUP, Args: [6]uint64{1}}}
	for _, r := range ranges {
		for _, k := range keep {
			if k[0] < r[1] && k[1] > r[0] { // the code is in the middle of a mapping
				if r[0] < k[0] {
					list = append(list, unmap(r[0], k[0]))
				}
				r[0] = min(k[1], r[1])
			}
		}
		if r[0] < r[1] {
			list = append(list, unmap(r[0], r[1]))
		}
	}
	call := func(nr uintptr, args ...uint64) {
		i := Instr{Number: uint64(nr)}
		copy(i.Args[:], args)
		list = append(list, i)
	}
	must := func(nr uintptr, args ...uint64) {
		call(nr, args...)
		list[len(list)-1].OnError = exitAt
	}
	must(unix.SYS_DUP3, uint64(socket), Socket, 0)
	must(unix.SYS_CLOSE_RANGE, 0, Socket-1, 0)
	must(unix.SYS_CLOSE_RANGE, Socket+1, 1<<32-1, 0)
	must(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uint64(unix.SIGKILL))
	// The parent may have ended before the prctl(2).
	call(unix.SYS_GETPPID)
	list[len(list)-1].Save = Base + ParentAt
	list = append(list, Instr{Number: Equal, Args: [6]uint64{Base + ParentAt, uint64(os.Getpid())}, Indirect: 1, Next: exitAt, OnZero: Base + Entry})
	if prologueAt+len(list)*InstrSize > Entry {
		return unix.E2BIG
	}
	for i := range list {
		list[i].Put(memory[prologueAt+i*InstrSize:])
	}
	return nil
}

// unmap returns the instruction that unmaps a range. A failure only leaves memory mapped, such as
// pages of the kernel that cannot be unmapped.
func unmap(from, to uintptr) Instr {
	return Instr{Number: unix.SYS_MUNMAP, Args: [6]uint64{uint64(from), uint64(to - from)}}
}

// mappings returns the ranges of this process's memory.
func mappings() (ranges [][2]uintptr, err error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		lo, rest, _ := bytes.Cut(line, []byte("-"))
		hi, _, _ := bytes.Cut(rest, []byte(" "))
		from, err := strconv.ParseUint(string(lo), 16, 64)
		if err != nil {
			return nil, err
		}
		to, err := strconv.ParseUint(string(hi), 16, 64)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, [2]uintptr{uintptr(from), uintptr(to)})
	}
	return ranges, nil
}
