package engine

import (
	"context"
	"maps"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbar-dev/sandbar"
)

// ClientLimits are the limits of one client, by its name. A zero field is no limit.
type ClientLimits struct {
	// MaxSandboxes is the largest number of the client's live sandboxes, one-shot and long-lived
	// together. Further requests wait, even if the platform has free slots.
	MaxSandboxes int
	// MaxQueue is the largest number of the client's waiting requests. Further requests are
	// Exhausted, with a RetryAfter.
	MaxQueue int
	// Rate is how many executions and sandboxes the client may begin per second, and Burst how many
	// at once. Further requests are Exhausted, with a RetryAfter. Default of Burst: Rate rounded
	// up.
	Rate  float64
	Burst int
}

// WithClient returns a context that carries the caller's identity. See Client.
func WithClient(ctx context.Context, c sandbar.Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// Client returns the caller that WithClient set, or the zero Client. Protocols copy it to
// Spec.Client.
func Client(ctx context.Context) sandbar.Client {
	c, _ := ctx.Value(clientKey{}).(sandbar.Client)
	return c
}

type clientKey struct{}

// WithValidity returns a context that carries the validity of the caller's credentials, for what
// lasts longer than a request.
func WithValidity(ctx, valid context.Context) context.Context {
	return context.WithValue(ctx, validityKey{}, valid)
}

// Validity returns the context that WithValidity set, which ends when the caller's credentials
// become invalid. Without one it never ends.
func Validity(ctx context.Context) context.Context {
	if valid, ok := ctx.Value(validityKey{}).(context.Context); ok {
		return valid
	}
	return context.Background()
}

type validityKey struct{}

// rateLimiters are the rate limiters of clients and of tenants.
type rateLimiters map[party]*rate.Limiter

// newRateLimiters makes the rate limiters of clients and tenants. It reuses limiters of earlier
// whose settings are unchanged, so that their state is kept.
func newRateLimiters(clients map[string]ClientLimits, tenants map[string]TenantLimits, earlier rateLimiters) rateLimiters {
	p := rateLimiters{}
	add := func(of party, perSecond float64, burst int) {
		if perSecond <= 0 {
			return
		}
		if burst <= 0 {
			burst = max(1, int(perSecond+0.999))
		}
		p[of] = earlier[of]
		if p[of] == nil || p[of].Limit() != rate.Limit(perSecond) || p[of].Burst() != burst {
			p[of] = rate.NewLimiter(rate.Limit(perSecond), burst)
		}
	}
	for name, c := range clients {
		add(party{name: name}, c.Rate, c.Burst)
	}
	for name, t := range tenants {
		add(party{tenant: name}, t.Rate, t.Burst)
	}
	return p
}

// SetClients replaces Config.Clients. Executions and sandboxes of a client continue and count: a
// client with more sandboxes than its new limit gets a further one only after enough of them have
// ended. Invalid: a limit is negative; then nothing changes.
func (e *Engine) SetClients(clients map[string]ClientLimits) error {
	if err := checkClients(clients); err != nil {
		return err
	}
	e.limiting.Lock()
	defer e.limiting.Unlock()
	e.cfg.Clients = maps.Clone(clients)
	e.applyLimits()
	return nil
}

// applyLimits puts Config.Clients and Config.Tenants in force. The caller has limiting.
func (e *Engine) applyLimits() {
	e.queue.setLimits(e.cfg.Clients, e.cfg.Tenants)
	next := newRateLimiters(e.cfg.Clients, e.cfg.Tenants, *e.rateLimiters.Load())
	e.rateLimiters.Store(&next)
}

func checkClients(clients map[string]ClientLimits) error {
	for name, l := range clients {
		if l.MaxSandboxes < 0 || l.MaxQueue < 0 || !(l.Rate >= 0) || l.Burst < 0 {
			return badConfig("clients", "holds a negative limit for "+sandbar.Quote(name, 100))
		}
	}
	return nil
}

// allow returns nil if the client's rate limit admits one more execution or sandbox now.
func (p rateLimiters) allow(c sandbar.Client) error {
	who := partyOf(c)
	limiter := p[who]
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
	e := sandbar.Errorf(sandbar.Exhausted, "%s exceeds its rate of %v executions per second", who, float64(limiter.Limit()))
	e.Fix = "try again in " + wait.Round(time.Millisecond).String() + ", or let the operator raise rate or burst of this " + who.kind()
	e.RetryAfter = wait
	return e
}
