package daemonid

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
)

// Owner returns a new label for resources on another machine or engine: the scope of this process,
// the process, and a random number for the driver within it. Processes in the same scope can tell
// by it whether that process is alive.
func Owner() string {
	var b [8]byte
	rand.Read(b[:])
	here, name := Scope(), ForPID(os.Getpid())
	if here == "" || name == "" {
		here, name = "?", "?"
	}
	return here + "/" + name + "/" + hex.EncodeToString(b[:])
}

// OwnerDead reports whether the process of an Owner label is known to be dead. here is Scope and
// alive is Alive, except in tests.
func OwnerDead(label, here string, alive func(string) bool) bool {
	parts := strings.Split(label, "/")
	return len(parts) == 3 && here != "" && parts[0] == here && !alive(parts[1])
}
