package scale

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// daemons are the engines of daemons of one cluster.
type daemons struct {
	t       *testing.T
	cluster *cluster
	engines []*engine.Engine
}

// concurrentCreates is as in the driver kubernetes.
const concurrentCreates = 16

// newDaemons starts daemons that keep ready pods, and waits until these are ready. room is the
// number of sandboxes of each.
func newDaemons(t *testing.T, c *cluster, n, room, ready int) *daemons {
	d := &daemons{t: t, cluster: c}
	for range n {
		pods := faulty.New()
		pods.Capabilities.Setup, pods.Capabilities.RemoteCreates = 10*time.Minute, concurrentCreates
		pods.OnCreate, pods.OnDestroy = c.startPod, c.endPod
		o := engine.Config{Driver: pods, MaxSandboxes: room, MaxQueue: 100_000, QueueTimeout: -1, IdleTimeout: -1, MaxLifetime: -1, ReadyMemory: 1 << 40}
		if ready > 0 {
			o.Templates = []engine.Template{{Min: ready, Max: ready}}
		}
		e, err := engine.New(o)
		if err != nil {
			t.Fatal(err)
		}
		d.engines = append(d.engines, e)
	}
	for _, e := range d.engines {
		for ready > 0 && e.Templates()[0].Ready < ready {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return d
}

// end ends the daemons. Their pods end at once, because that is not what is measured.
func (d *daemons) end() {
	d.cluster.over.Store(true)
	var all sync.WaitGroup
	for _, e := range d.engines {
		all.Go(func() {
			if err := e.Shutdown(context.Background()); err != nil {
				d.t.Error(err)
			}
		})
	}
	all.Wait()
}

// claim makes a sandbox at one daemon and returns how long it took.
func (d *daemons) claim(i int) (*engine.Sandbox, time.Duration) {
	began := time.Now()
	s, err := d.engines[i%len(d.engines)].Create(d.t.Context(), sandbar.Spec{})
	if err != nil {
		d.t.Error(err)
	}
	return s, time.Since(began)
}

// burst claims n sandboxes at once and returns how long each took, in ascending order.
func (d *daemons) burst(n int) []time.Duration {
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, took[i] = d.claim(i) })
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// quantile returns a quantile of an ascending list.
func quantile(list []time.Duration, q float64) time.Duration {
	return list[int(q*float64(len(list)-1))].Round(time.Millisecond)
}

// 10,000 sandboxes are claimed at once from 50 daemons on 1,000 nodes, with ready pods for none,
// for half and for all of them. The ready ones are used at once, and the others take what the
// scheduler needs.
func TestBurst(t *testing.T) {
	testenv.Need(t, testenv.Once)
	const nodes, n, claims = 1000, 50, 10_000
	for _, ready := range []int{0, claims / 2, claims} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(nodes)
			d := newDaemons(t, c, n, 1000, ready/n)
			before := c.api.count()
			began := time.Now()
			took := d.burst(claims)
			served := time.Since(began)
			for _, e := range d.engines {
				for ready > 0 && e.Templates()[0].Ready < ready/n {
					time.Sleep(100 * time.Millisecond)
				}
			}
			t.Logf("%6d ready pods: p50 %8v, p99 %8v, the last %8v; ready again after %v; %d writes to the API server",
				ready, quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1), time.Since(began).Round(100*time.Millisecond), c.api.count()-before)
			instant := 0
			for _, d := range took {
				if d < time.Millisecond {
					instant++
				}
			}
			if instant < ready {
				t.Errorf("%d of %d ready pods were used", instant, ready)
			}
			if ready < claims && served < time.Duration(claims-ready)*time.Second/scheduled {
				t.Errorf("the burst took %v, which the scheduler cannot do", served)
			}
			d.end()
		})
	}
}

// 100,000 sandboxes are made by 50 daemons, 2,000 by each.
func TestFill(t *testing.T) {
	testenv.Need(t, testenv.TestAll, testenv.Once)
	synctest.Test(t, func(t *testing.T) {
		const all = 100_000
		c := newCluster(1000)
		d := newDaemons(t, c, 50, 2000, 0)
		began := time.Now()
		d.burst(all)
		took := time.Since(began)
		t.Logf("%d sandboxes in %v; %d writes to the API server, %.0f a second", all, took.Round(time.Second), c.api.count(), float64(c.api.count())/took.Seconds())
		if least := all * time.Second / scheduled; took < least || took > 2*least {
			t.Errorf("it took %v, and the scheduler alone takes %v", took, least)
		}
		d.end()
	})
}

// Daemons make 5,000 ready pods. Few daemons are slower than the scheduler, because each makes 16
// at once.
func TestReady(t *testing.T) {
	testenv.Need(t, testenv.TestAll, testenv.Once)
	const all = 5000
	for _, n := range []int{2, 5, 10, 50} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(1000)
			began := time.Now()
			d := newDaemons(t, c, n, all, all/n)
			rate := all / time.Since(began).Seconds()
			t.Logf("%2d daemons: %d ready pods in %v, %.0f a second", n, all, time.Since(began).Round(100*time.Millisecond), rate)
			if least := min(scheduled, float64(n)*concurrentCreates/(podStart+connect).Seconds()); rate > least || rate < 0.8*least {
				t.Errorf("%.0f a second, and %.0f are possible", rate, least)
			}
			d.end()
		})
	}
}

// Sandboxes are claimed at a steady rate and live for a minute. As long as the rate is below that
// of the scheduler, each is a ready one; beyond it the daemons fall behind.
func TestSteady(t *testing.T) {
	testenv.Need(t, testenv.TestAll, testenv.Once)
	const nodes, n, ready, life, lasts = 1000, 50, 40, time.Minute, 2 * time.Minute
	for _, rate := range []int{100, 250, 290, 350} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(nodes)
			d := newDaemons(t, c, n, 2000, ready)
			var mu sync.Mutex
			var took []time.Duration
			var all sync.WaitGroup
			began := time.Now()
			for i := 0; time.Since(began) < lasts; i++ {
				all.Go(func() {
					s, t := d.claim(i)
					mu.Lock()
					took = append(took, t)
					mu.Unlock()
					time.Sleep(life)
					if s != nil {
						_ = d.engines[i%n].Stop(context.Background(), s.ID())
					}
				})
				time.Sleep(time.Second / time.Duration(rate))
			}
			writes := float64(c.api.count()) / time.Since(began).Seconds()
			all.Wait()
			slices.Sort(took)
			t.Logf("%4d a second: p50 %6v, p99 %8v, the slowest %8v; %.0f writes a second to the API server", rate, quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1), writes)
			if late := quantile(took, 0.99) > 100*time.Millisecond; late != (rate > scheduled) {
				t.Errorf("at %d a second p99 is %v", rate, quantile(took, 0.99))
			}
			d.end()
		})
	}
}
