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

// Ranges of ids that the host gives to sandboxes, one range each. They start
// beyond what systemd hands out to containers and end where numbers turn
// negative, so they belong to no user and no other manager of containers.
const (
	firstUID  = 0x70000000
	rangeSize = 1 << 16
	maxRanges = 1 << 12
)

// IDs says how ids inside map to ids of the host.
type IDs struct {
	// Ranged: each sandbox has 65,536 ids of its own; its programs are a user
	// that exists nowhere else. Otherwise its one id is the daemon's user.
	Ranged bool
	caps   uint8 // how many capabilities the kernel has
}

// DetectIDs looks whether this process may map ranges: it must be root, and
// where it is itself in a user namespace, that must have the ids.
func DetectIDs() IDs {
	return IDs{
		Ranged: os.Geteuid() == 0 && ownsIDs("/proc/self/uid_map") && ownsIDs("/proc/self/gid_map"),
		caps:   capabilities(),
	}
}

// ownsIDs reports whether a map holds all the ids of the ranges.
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

// ownerID is the id of a range that owns the sandbox's user namespace. The kernel charges
// what is counted by user (inotify instances and watches, namespaces, message queues,
// pending signals) to the owner of the namespace too: one whom no other sandbox and
// nobody of the host has, and as whom nothing runs.
const ownerID = rangeSize - 1

// Request is the request for an agent of a sandbox with these ids. Without a range
// its one id is that of its programs.
func (m IDs) Request(mode string, r *Range, programs int) *wire.Spawn {
	if m.Ranged {
		ids := wire.IDMap{Outside: uint32(r.First), Size: rangeSize}
		return &wire.Spawn{Mode: mode, UIDs: ids, GIDs: ids, Ranged: true, Owner: uint32(r.First + ownerID)}
	}
	return &wire.Spawn{
		Mode: mode,
		UIDs: wire.IDMap{Inside: uint32(programs), Outside: uint32(os.Geteuid()), Size: 1},
		GIDs: wire.IDMap{Inside: uint32(programs), Outside: uint32(os.Getegid()), Size: 1},
		// The agent is not uid 0 inside, so an exec would take its capabilities in
		// its own namespace; as ambient ones they stay until it has built the root.
		Caps: m.caps,
	}
}

// capabilities is how many the running kernel has.
func capabilities() uint8 {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n >= 0 && n < 64 {
			return uint8(n + 1)
		}
	}
	return unix.CAP_LAST_CAP + 1
}

// Range is one sandbox's ids.
type Range struct {
	slot  int
	First int // as the host numbers it
}

// Ranges hands them out. It starts at a random one, so that two daemons on
// a host hardly ever use the same; if they do, nothing but the numbers is
// shared: namespaces keep the sandboxes apart.
type Ranges struct {
	mu   sync.Mutex
	used map[int]bool
	next int
}

// NewRanges returns ranges none of which is in use.
func NewRanges() *Ranges {
	return &Ranges{used: map[int]bool{}, next: rand.IntN(maxRanges)}
}

// Take takes a range that nobody has; Exhausted if there is none.
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

// GiveBack takes a range back that nothing uses any more.
func (u *Ranges) GiveBack(r *Range) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, r.slot)
}
