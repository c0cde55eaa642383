package escape

import "github.com/sandbar-dev/sandbar"

// uncountedCases are number 90: memory that is not private and resident, or whose owner hides.
// Files, segments and pipes are number 32.
func uncountedCases() []Case {
	memory := sandbar.Limits{Memory: 64 << 20}
	return []Case{
		{ID: "90-shared", Title: "memory as shared mappings", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
import mmap
kept = []
def more(): m = mmap.mmap(-1, STEP); m.write(b"x" * STEP); kept.append(m)
take("shared mappings", more)
done()`},
		{ID: "90-sockets", Title: "memory in the buffers of sockets", Claim: Memory,
			Limits: sandbar.Limits{Memory: memory.Memory, Files: 1000}, MayDie: true, Python: hog + `
kept = []
def more():
    pair = socket.socketpair(); kept.append(pair); total = 0
    for s in pair:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        s.setblocking(False)
        try:
            while total < STEP: total += s.send(b"x" * 65536)
        except BlockingIOError: pass
    return total
take("socket buffers", more)
done()`},
		{ID: "90-undumpable", Title: "memory of a process that is not dumpable", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
kept = []
def more(): kept.append(b"x" * STEP)
libc.prctl(4, 0, 0, 0, 0) # PR_SET_DUMPABLE
take("memory while not dumpable", more)
done()`},
		{ID: "90-headless", Title: "memory of a process whose first thread has ended", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
import threading
kept = []
def more(): kept.append(b"x" * STEP)
def rest():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z": time.sleep(0.01)
    take("memory without a first thread", more)
    done(); os._exit(0)
threading.Thread(target=rest).start()
libc.syscall(ctypes.c_long({"x86_64": 60, "aarch64": 93}[os.uname().machine]), 0)`},
		{ID: "90-page-tables", Title: "memory as page tables of empty mappings", Claim: Memory, Limits: memory, MayDie: true, Python: hog + `
import mmap
MAP_NORESERVE = 0x4000
kept = []
def more():
    m = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, prot=mmap.PROT_READ); kept.append(m)
    for at in range(0, 1 << 30, 2 << 20): m[at]
    return 512 * 4096
take("page tables", more)
done()`},
	}
}
