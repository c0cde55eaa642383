package engine

import (
	"context"
	"maps"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbar-dev/sandbar"
)

// ClientLimits are what one client may have of the platform, by its name. Zero
// fields do not bound.
type ClientLimits struct {
	// MaxSandboxes is how many may be alive at once, one-shot and long-lived
	// together. More wait, although there may be places.
	MaxSandboxes int
	// MaxQueue is how many may wait; more are Exhausted, with a RetryAfter.
	MaxQueue int
	// Rate is how many executions and sandboxes may begin a second, and Burst how
	// many of them at once; more are Exhausted, with a RetryAfter. Zero Burst is
	// Rate rounded up.
	Rate  float64
	Burst int
}

// WithClient returns a context that says who asks. See Client.
func WithClient(ctx context.Context, c sandbar.Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// Client returns whom WithClient named, or nobody in particular. Protocols put it
// into the Spec of what they ask for.
func Client(ctx context.Context) sandbar.Client {
	c, _ := ctx.Value(clientKey{}).(sandbar.Client)
	return c
}

type clientKey struct{}

// paces are what holds clients to their rates, by name.
type paces map[string]*rate.Limiter

// newPaces keeps the limiters of earlier that are the same, with what their clients
// have begun lately.
func newPaces(clients map[string]ClientLimits, earlier paces) paces {
	p := paces{}
	for name, c := range clients {
		if c.Rate > 0 {
			burst := c.Burst
			if burst <= 0 {
				burst = max(1, int(c.Rate+0.999))
			}
			p[name] = earlier[name]
			if p[name] == nil || p[name].Limit() != rate.Limit(c.Rate) || p[name].Burst() != burst {
				p[name] = rate.NewLimiter(rate.Limit(c.Rate), burst)
			}
		}
	}
	return p
}

// SetClients replaces Config.Clients. What a client has begun goes on and counts:
// one with more sandboxes than it may now have gets no further one until some have
// ended. Error: Invalid for a negative bound, and nothing is changed.
func (e *Engine) SetClients(clients map[string]ClientLimits) error {
	if err := checkClients(clients); err != nil {
		return err
	}
	clients = maps.Clone(clients)
	e.queue.bound(clients)
	next := newPaces(clients, *e.paces.Load())
	e.paces.Store(&next)
	return nil
}

func checkClients(clients map[string]ClientLimits) error {
	for name, l := range clients {
		if l.MaxSandboxes < 0 || l.MaxQueue < 0 || !(l.Rate >= 0) || l.Burst < 0 {
			return badConfig("clients", "holds a negative limit for "+sandbar.Quote(name, 100))
		}
	}
	return nil
}

// allow returns nil if a client may begin something now.
func (p paces) allow(c sandbar.Client) error {
	limiter := p[c.Name]
	if limiter == nil {
		return nil
	}
	now := time.Now()
	turn := limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	turn.CancelAt(now)
	e := sandbar.Errorf(sandbar.Exhausted, "client %s begins more than %v executions a second, which is its rate", sandbar.Quote(c.Name, 100), float64(limiter.Limit()))
	e.Fix = "try again in " + wait.Round(time.Millisecond).String() + ", or let the operator raise rate or burst of this client"
	e.RetryAfter = wait
	return e
}
