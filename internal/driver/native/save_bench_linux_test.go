package native

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// BenchmarkSave saves a sandbox with 10,000 small files, and one with 256 MiB, and restores it. It
// also reports the processor time of the agents, which does not depend on the load of the host.
func BenchmarkSave(b *testing.B) {
	for name, script := range map[string]string{
		"10000-files": "mkdir tree && cd tree && for i in $(seq 10000); do echo $i >$i; done",
		"256-MiB":     "head -c 268435456 /dev/urandom >big",
	} {
		b.Run(name, func(b *testing.B) {
			d := saving(b)
			s := roomy(d.Driver)
			box := create(b, d.Driver, s)
			if got := shell(b, box, script); got != "" {
				b.Fatal(got)
			}
			saver, _ := driver.As[driver.Saver](box)
			var saves, restores, saved, restored time.Duration
			n := 0
			for b.Loop() {
				dir := b.TempDir()
				before, began := agentTime(b, box), time.Now()
				if _, err := saver.Save(b.Context(), dir, driver.SaveOptions{}); err != nil {
					b.Fatal(err)
				}
				saves, saved = saves+agentTime(b, box)-before, saved+time.Since(began)
				began = time.Now()
				c, err := d.Restore(b.Context(), sandbar.NewID(), s, dir)
				if err != nil {
					b.Fatal(err)
				}
				restores, restored = restores+agentTime(b, c), restored+time.Since(began)
				if err := c.Destroy(context.Background()); err != nil {
					b.Fatal(err)
				}
				os.RemoveAll(dir)
				n++
			}
			for metric, d := range map[string]time.Duration{"save": saved, "restore": restored, "save-agent": saves, "restore-agent": restores} {
				b.ReportMetric(float64(d.Microseconds())/1000/float64(n), metric+"-ms")
			}
		})
	}
}

// agentTime returns the processor time of a sandbox's agent.
func agentTime(b *testing.B, box driver.Sandbox) time.Duration {
	b.Helper()
	var ts unix.Timespec
	// the clock of another process (clock_getcpuclockid(3))
	if err := unix.ClockGettime(int32(^box.(*savable).r.Init.PID()<<3|2), &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
