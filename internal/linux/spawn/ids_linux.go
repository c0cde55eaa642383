package spawn

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Each sandbox has one range of rangeSize uids and gids of the host. The ranges start above those
// that systemd assigns to containers and end at 2^31, so no user and no other container manager has
// them.
const (
	firstUID  = 0x70000000
	rangeSize = 1 << 16
	maxRanges = 1 << 12
)

// IDs is the mapping of a sandbox's ids to ids of the host.
type IDs struct {
	// Ranged: each sandbox has its own 65,536 ids, so no other sandbox and no user of the host has
	// the uid of its programs. Otherwise a sandbox has one id, which maps to the daemon's user.
	Ranged bool
	caps   uint8 // number of capabilities of the kernel
}

// DetectIDs determines whether this process can map ranges. It must be root, and its user namespace
// must map all ids of the ranges.
func DetectIDs() IDs {
	return IDs{
		Ranged: os.Geteuid() == 0 && ownsIDs("/proc/self/uid_map") && ownsIDs("/proc/self/gid_map"),
		caps:   capabilities(),
	}
}

// ownsIDs reports whether a uid_map or gid_map (user_namespaces(7)) contains all ids of the ranges.
func ownsIDs(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var inside, outside, size uint64
		if _, err := fmt.Sscan(s.Text(), &inside, &outside, &size); err != nil {
			return false
		}
		if inside <= firstUID && inside+size >= firstUID+rangeSize*maxRanges {
			return true
		}
	}
	return false
}

// ownerID is the id within a range that owns the sandbox's user namespace. The kernel charges
// per-user resources (inotify instances and watches, namespaces, message queues, pending signals)
// to the owner of the namespace too. No process runs with this id.
const ownerID = rangeSize - 1

// Request returns the request that starts an agent in a mode (agent.ModeSocket, …). r is the
// sandbox's range. Without ranges the sandbox's only id is programs, the uid of its programs.
func (m IDs) Request(mode string, r *Range, programs int) *wire.Spawn {
	if m.Ranged {
		ids := wire.IDMap{Outside: uint32(r.First), Size: rangeSize}
		return &wire.Spawn{Mode: mode, UIDs: ids, GIDs: ids, Ranged: true, Owner: uint32(r.First + ownerID)}
	}
	return &wire.Spawn{
		Mode: mode,
		UIDs: wire.IDMap{Inside: uint32(programs), Outside: uint32(os.Geteuid()), Size: 1},
		GIDs: wire.IDMap{Inside: uint32(programs), Outside: uint32(os.Getegid()), Size: 1},
		// The agent's uid in its namespace is not 0, so it would lose its capabilities at
		// execve(2). Ambient ones stay (capabilities(7)). The agent needs them until it has built
		// the root.
		Caps: m.caps,
	}
}

// capabilities returns the number of capabilities of the running kernel.
func capabilities() uint8 {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n >= 0 && n < 64 {
			return uint8(n + 1)
		}
	}
	return unix.CAP_LAST_CAP + 1
}

// Range is the range of ids of one sandbox.
type Range struct {
	slot  int
	First int // first id, on the host
}

// Ranges allocates ranges to sandboxes. It starts at a random one, so two daemons of a host are
// unlikely to use the same range. If they do, the kernel's per-user limits count both sandboxes
// together, and namespaces still separate them.
type Ranges struct {
	mu   sync.Mutex
	used map[int]bool
	next int
}

// NewRanges returns Ranges with all ranges free.
func NewRanges() *Ranges {
	return &Ranges{used: map[int]bool{}, next: rand.IntN(maxRanges)}
}

// Take allocates a free range. Exhausted: all are in use.
func (u *Ranges) Take() (*Range, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range maxRanges {
		slot := u.next
		u.next = (u.next + 1) % maxRanges
		if !u.used[slot] {
			u.used[slot] = true
			return &Range{slot: slot, First: firstUID + slot*rangeSize}, nil
		}
	}
	return nil, sandbar.Errorf(sandbar.Exhausted, "all %d id ranges for sandboxes are in use", maxRanges)
}

// Release frees a range. No process may use its ids any more.
func (u *Ranges) Release(r *Range) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, r.slot)
}
