package native

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
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
}

// detectIDs looks whether this process may map ranges: it must be root, and
// where it is itself in a user namespace, that must have the ids.
func detectIDs() idMap {
	return idMap{ranged: os.Geteuid() == 0 && ownsIDs("/proc/self/uid_map") && ownsIDs("/proc/self/gid_map")}
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

// apply adds the map of a sandbox to how its agent is made. Without a range its
// one id is that of its programs.
func (m idMap) apply(a *syscall.SysProcAttr, r *uidRange, programs int) {
	if m.ranged {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: r.first, Size: rangeSize}}
		a.GidMappings = a.UidMappings
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: 0, Gid: 0}
		return
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: programs, HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: programs, HostID: os.Getegid(), Size: 1}}
	// The agent is not uid 0 inside, so an exec would take its capabilities in
	// its own namespace; as ambient ones they stay until it has built the root.
	for c := uintptr(0); c <= lastCap(); c++ {
		a.AmbientCaps = append(a.AmbientCaps, c)
	}
}

// lastCap is the highest capability of the running kernel.
func lastCap() uintptr {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err == nil {
		if n, err := strconv.Atoi(trimLine(b)); err == nil && n >= 0 && n < 64 {
			return uintptr(n)
		}
	}
	return unix.CAP_LAST_CAP
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
