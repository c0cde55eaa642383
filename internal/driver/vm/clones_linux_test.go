package vm

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// identity prints what must differ between two machines of one snapshot, one item a line: random
// numbers of the kernel, of Python and of OpenSSL, the machine's id and that of its boot.
const identity = `
import os, random, uuid, secrets, ssl
print(os.getrandom(16).hex())
print(open("/dev/urandom", "rb").read(16).hex())
print(open("/proc/sys/kernel/random/uuid").read().strip())
print("%x" % random.getrandbits(128))
print(uuid.uuid4())
print(secrets.token_hex(16))
print(ssl.RAND_bytes(16).hex())
print(open("/etc/machine-id").read().strip())
print(open("/proc/sys/kernel/random/boot_id").read().strip())
`

// identities is the number of lines of identity.
const identities = 9

// TestClones checks that machines of one snapshot differ: 8 of them, or 100 in "make test-all".
func TestClones(t *testing.T) {
	n := 8
	if testenv.Long() {
		n = 100
	}
	d := newDriver(t, testOptions(t))
	seen := map[string]string{}
	for i := range n {
		// Each machine ends before the next one starts, which bounds the memory of the test.
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			box := newBox(t, d, fmt.Sprintf("clone%d", i))
			lines := strings.Split(strings.TrimSpace(run(t, box, "python3", "-c", identity)), "\n")
			if len(lines) != identities {
				t.Fatalf("%d lines: %q", len(lines), lines)
			}
			for _, line := range lines {
				if other, ok := seen[line]; ok {
					t.Errorf("machine %d has %q, like %s", i, line, other)
				}
				seen[line] = fmt.Sprintf("machine %d", i)
			}
			clockOf(t, box)
		})
	}
}

// BenchmarkCreate measures what a sandbox costs that is restored from a snapshot.
func BenchmarkCreate(b *testing.B) {
	d := newDriver(b, testOptions(b))
	newBox(b, d, "first")
	var all []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		box, err := d.Create(b.Context(), "sb_bench", spec())
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(began))
		b.StopTimer()
		if err := box.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "ms-p50")
}
