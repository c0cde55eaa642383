package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// by returns a job of a client.
func by(job sandbar.Job, name, flow string) sandbar.Job {
	job.Spec.Client = sandbar.Client{Name: name, Flow: flow}
	return job
}

// served runs jobs in sequence and returns the clients whose jobs started, in order.
func served(r *rig, jobs []sandbar.Job) []string {
	var mu sync.Mutex
	var order []string
	var answers []<-chan answer
	for _, job := range jobs {
		sink := newRecorder()
		answers = append(answers, run(r.admit(job), sink))
		go func() {
			<-sink.started
			mu.Lock()
			defer mu.Unlock()
			order = append(order, job.Spec.Client.Name+job.Spec.Client.Flow)
		}()
	}
	for _, a := range answers {
		(<-a).want(r.t, sandbar.Exited)
	}
	synctest.Wait()
	return order
}

func times(n int, job sandbar.Job) []sandbar.Job { return slices.Repeat([]sandbar.Job{job}, n) }

// A request does not wait for a flood of earlier ones: flows take turns, and clients take turns
// however many flows they have.
func TestFloodsTakeTurns(t *testing.T) {
	for _, tt := range []struct {
		name string
		jobs []sandbar.Job
		want []string
	}{
		{"flows of one client", append(times(5, by(command("sleep", "1s"), "", "a")), times(2, by(command("sleep", "1s"), "", "b"))...),
			[]string{"a", "a", "b", "a", "b", "a", "a"}},
		{"clients", append(times(4, by(command("sleep", "1s"), "x", "1")), append(times(4, by(command("sleep", "1s"), "x", "2")), times(2, by(command("sleep", "1s"), "y", "1"))...)...),
			[]string{"x1", "x1", "y1", "x2", "y1", "x1", "x2", "x1", "x2", "x2"}},
		{"one after the other", times(3, by(command("sleep", "1s"), "", "a")), []string{"a", "a", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, faulty.New(), small(1, 100))
				if got := served(r, tt.jobs); !slices.Equal(got, tt.want) {
					t.Errorf("served in the order %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// bounded is a configuration with limits for one client.
func bounded(places int, c engine.ClientLimits) func(*engine.Config) {
	return func(cfg *engine.Config) {
		cfg.MaxSandboxes, cfg.MaxQueue = places, 100
		cfg.Clients = map[string]engine.ClientLimits{"x": c}
	}
}

// A client at its limit waits for its own slots while others take the free ones. Only that client
// is refused beyond its MaxQueue.
func TestClientHasItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), bounded(10, engine.ClientLimits{MaxSandboxes: 2, MaxQueue: 3}))
		slow := by(command("sleep", "1s"), "x", "")
		var answers []<-chan answer
		for range 5 {
			answers = append(answers, run(r.admit(slow), nil))
		}
		synctest.Wait()
		if s := r.Stats(); s.Active != 2 || s.Queued != 3 {
			t.Errorf("%+v, want 2 that run and 3 that wait", s)
		}
		_, err := r.Admit(slow)
		if e := sandbar.AsError(err); e.Code != sandbar.Exhausted || e.RetryAfter <= 0 {
			t.Errorf("one more than may wait: %v, again after %v", err, e.RetryAfter)
		}
		if _, err := r.Create(context.Background(), sandbar.Spec{Client: sandbar.Client{Name: "x"}}); sandbar.CodeOf(err) != sandbar.Exhausted {
			t.Errorf("a long-lived sandbox beyond them: %v", err)
		}
		begin := time.Now()
		(<-run(r.admit(by(command("exit", "0"), "y", "")), nil)).want(t, sandbar.Exited)
		if took := time.Since(begin); took != 0 {
			t.Errorf("another client waited for %v", took)
		}
		for _, a := range answers {
			(<-a).want(t, sandbar.Exited)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("five that take a second in two places took %v", took)
		}
	})
}

// A long-lived sandbox counts until it is removed.
func TestClientHasItsSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), bounded(10, engine.ClientLimits{MaxSandboxes: 1}))
		spec := sandbar.Spec{Client: sandbar.Client{Name: "x"}}
		s, err := r.Create(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := r.Create(ctx, spec); sandbar.CodeOf(err) != sandbar.Canceled {
			t.Errorf("a second: %v", err)
		}
		if err := r.Stop(context.Background(), s.ID()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Create(context.Background(), spec); err != nil {
			t.Errorf("after the first was gone: %v", err)
		}
	})
}

// A client beyond its rate gets a RetryAfter, and its request succeeds after that time.
func TestClientHasItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), bounded(10, engine.ClientLimits{Rate: 2, Burst: 3}))
		job := by(command("exit", "0"), "x", "")
		for i := range 3 {
			if _, err := r.Run(context.Background(), job, nil); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		_, err := r.Run(context.Background(), job, nil)
		e := sandbar.AsError(err)
		if e == nil || e.Code != sandbar.Exhausted || e.RetryAfter != 500*time.Millisecond {
			t.Fatalf("beyond the burst: %v, again after %v", err, e.RetryAfter)
		}
		if _, err := r.Create(context.Background(), sandbar.Spec{Client: job.Spec.Client}); sandbar.CodeOf(err) != sandbar.Exhausted {
			t.Errorf("a sandbox beyond the burst: %v", err)
		}
		if _, err := r.Run(context.Background(), by(job, "y", ""), nil); err != nil {
			t.Errorf("another client: %v", err)
		}
		time.Sleep(e.RetryAfter)
		if _, err := r.Run(context.Background(), job, nil); err != nil {
			t.Errorf("after what it was told: %v", err)
		}
	})
}

// New limits apply at once to waiting and later requests. Work that has begun continues and counts.
func TestClientsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, faulty.New(), bounded(10, engine.ClientLimits{MaxSandboxes: 1, Rate: 100}))
		slow := by(command("sleep", "1s"), "x", "")
		var answers []<-chan answer
		for range 3 {
			answers = append(answers, run(r.admit(slow), nil))
		}
		synctest.Wait()
		if s := r.Stats(); s.Active != 1 || s.Queued != 2 {
			t.Fatalf("%+v, want 1 that runs and 2 that wait", s)
		}
		if err := r.SetClients(map[string]engine.ClientLimits{"x": {MaxSandboxes: -1}}); sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("a negative bound: %v", err)
		}
		if err := r.SetClients(map[string]engine.ClientLimits{"x": {MaxSandboxes: 2, MaxQueue: 1}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := r.Stats(); s.Active != 2 || s.Queued != 1 {
			t.Errorf("%+v, want 2 that run and 1 that waits", s)
		}
		if _, err := r.Admit(slow); sandbar.CodeOf(err) != sandbar.Exhausted {
			t.Errorf("one more than may wait: %v", err)
		}
		if err := r.SetClients(map[string]engine.ClientLimits{"x": {Rate: 1}}); err != nil {
			t.Fatal(err)
		}
		for _, a := range answers {
			(<-a).want(t, sandbar.Exited)
		}
		quick := by(command("exit", "0"), "x", "")
		if _, err := r.Run(context.Background(), quick, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(context.Background(), quick, nil); sandbar.CodeOf(err) != sandbar.Exhausted {
			t.Errorf("beyond the new rate: %v", err)
		}
		if err := r.SetClients(map[string]engine.ClientLimits{"x": {Rate: 1, MaxSandboxes: 5}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(context.Background(), quick, nil); sandbar.CodeOf(err) != sandbar.Exhausted {
			t.Errorf("the same rate again is no new burst: %v", err)
		}
		if err := r.SetClients(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(context.Background(), quick, nil); err != nil {
			t.Errorf("without bounds: %v", err)
		}
	})
}

func TestClientLimitsAreChecked(t *testing.T) {
	for _, c := range []engine.ClientLimits{{MaxSandboxes: -1}, {MaxQueue: -1}, {Rate: -1}, {Burst: -1}} {
		_, err := engine.New(engine.Config{Driver: faulty.New(), Clients: map[string]engine.ClientLimits{"x": c}})
		if sandbar.CodeOf(err) != sandbar.Invalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestClientOfContext(t *testing.T) {
	if c := engine.Client(context.Background()); c != (sandbar.Client{}) {
		t.Errorf("nobody is %+v", c)
	}
	want := sandbar.Client{Name: "x", Flow: fmt.Sprint(7)}
	if c := engine.Client(engine.WithClient(context.Background(), want)); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}
