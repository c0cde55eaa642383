package native

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// sandboxUID is the user, and the group, of programs inside a sandbox.
const sandboxUID = 1000

// Ranges of ids that the host gives to sandboxes, one range each. They start
// beyond what systemd hands out to containers and end where numbers turn
// negative, so they belong to no user and no other manager of containers.
const (
	firstUID  = 0x70000000
	rangeSize = 1 << 16
	maxRanges = 1 << 12
)

// idMap says how ids inside map to ids of the host.
type idMap struct {
	// ranged: each sandbox has 65,536 ids of its own; its programs are a user
	// that exists nowhere else. Otherwise its one id is the daemon's user.
	ranged bool
	caps   uint8 // how many capabilities the kernel has
}

// detectIDs looks whether this process may map ranges: it must be root, and
// where it is itself in a user namespace, that must have the ids.
func detectIDs() idMap {
	return idMap{
		ranged: os.Geteuid() == 0 && ownsIDs("/proc/self/uid_map") && ownsIDs("/proc/self/gid_map"),
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

// spawn is the request for an agent of a sandbox with these ids. Without a range
// its one id is that of its programs.
func (m idMap) spawn(mode string, r *uidRange, programs int) *wire.Spawn {
	if m.ranged {
		ids := wire.IDMap{Outside: uint32(r.first), Size: rangeSize}
		return &wire.Spawn{Mode: mode, UIDs: ids, GIDs: ids, Ranged: true}
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
		if n, err := strconv.Atoi(trimLine(b)); err == nil && n >= 0 && n < 64 {
			return uint8(n + 1)
		}
	}
	return unix.CAP_LAST_CAP + 1
}

// uidRange is one sandbox's ids.
type uidRange struct {
	slot  int
	first int
}

// uidRanges hands them out. It starts at a random one, so that two daemons on
// a host hardly ever use the same; if they do, nothing but the numbers is
// shared: namespaces keep the sandboxes apart.
type uidRanges struct {
	mu   sync.Mutex
	used map[int]bool
	next int
}

func newUIDRanges() *uidRanges {
	return &uidRanges{used: map[int]bool{}, next: rand.IntN(maxRanges)}
}

func (u *uidRanges) take() (*uidRange, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range maxRanges {
		slot := u.next
		u.next = (u.next + 1) % maxRanges
		if !u.used[slot] {
			u.used[slot] = true
			return &uidRange{slot: slot, first: firstUID + slot*rangeSize}, nil
		}
	}
	return nil, sandbar.Errorf(sandbar.Exhausted, "all %d id ranges for sandboxes are in use", maxRanges)
}

func (u *uidRanges) giveBack(r *uidRange) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, r.slot)
}
