package drivertest

import (
	"reflect"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// abilityCases test Caps and the optional interfaces of a driver.
func abilityCases() []testCase {
	return []testCase{
		{name: "caps", run: checkCaps},
		{name: "decorated", run: func(c *C) {
			box := c.box()
			wrapped := decorated{decorated{box}}
			sameAbility[driver.Dialer](c, box, wrapped, "Dialer")
			sameAbility[driver.Watcher](c, box, wrapped, "Watcher")
			sameAbility[driver.Explainer](c, box, wrapped, "Explainer")
			if _, ok := driver.As[interface{ NoSuchAbility() }](wrapped); ok {
				c.Errorf("As finds a missing ability")
			}
		}},
		{name: "options", run: func(c *C) {
			h := c.s.host(c.dir)
			h.Options = map[string]string{"no-such-option": "1"}
			d, err := c.s.h.New(h)
			c.code(err, "New with an unknown option", sandbar.Invalid)
			if err == nil {
				closeDriver(c, d)
			}
		}},
		{name: "refusals", run: func(c *C) {
			for what, change := range map[string]func(*sandbar.Spec){
				"an unknown image":          func(s *sandbar.Spec) { s.Image = "no-such-image" },
				"an unknown network":        func(s *sandbar.Spec) { s.Network = "no-such-network" },
				"a malformed variable":      func(s *sandbar.Spec) { s.Env = map[string]string{"a=b": "c"} },
				"a NUL in a variable":       func(s *sandbar.Spec) { s.Env = map[string]string{"a": "b\x00c"} },
				"a variable without a name": func(s *sandbar.Spec) { s.Env = map[string]string{"": "c"} },
			} {
				spec := c.spec()
				change(&spec)
				b, err := c.d.Create(c.ctx, c.newID(), spec)
				if err == nil {
					_, err = b.Start(c.ctx, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
					c.destroy(b)
				}
				c.code(err, "Create and Start with "+what, sandbar.Invalid, sandbar.Unsupported, sandbar.NotFound)
			}
		}},
		{name: "watcher", needs: []need{needAbility[driver.Watcher]("Watcher")}, run: func(c *C) {
			box := c.box()
			w, _ := driver.As[driver.Watcher](box)
			select {
			case <-w.Dead():
				c.Fatalf("a live sandbox is reported dead")
			default:
			}
			c.destroy(box)
			c.until(func() bool {
				select {
				case <-w.Dead():
					return true
				default:
					return false
				}
			}, "a destroyed sandbox is reported dead")
		}},
	}
}

func checkCaps(c *C) {
	caps := c.d.Caps()
	if caps.Name != c.s.h.Name {
		c.Errorf("the driver calls itself %q; the harness %q", caps.Name, c.s.h.Name)
	}
	if again := c.d.Caps(); !reflect.DeepEqual(caps, again) {
		c.Errorf("Caps is not constant: %+v, then %+v", caps, again)
	}
	if caps.Boundary == "" {
		c.Errorf("the boundary is not named")
	}
	if caps.Boundary == driver.BoundaryNone && (caps.PrivateFiles || caps.PrivateNetwork || caps.PrivateProcesses || caps.PrivateQuotas) {
		c.Errorf("without a boundary something is claimed to be private: %+v", caps)
	}
	if caps.OOMCounted && caps.Enforced.Memory == sandbar.EnforcedNone {
		c.Errorf("OOMCounted is claimed, but the memory limit is not enforced")
	}
	for _, l := range limits() {
		if by := l.enforced(caps.Enforced); by == "" {
			c.Errorf("Caps does not say how %s is enforced", l.name)
		} else if by == sandbar.EnforcedNone && len(caps.Notes) == 0 {
			c.Errorf("%s is not enforced, and no note says what is missing", l.name)
		}
	}
}

// decorated wraps a sandbox in another type.
type decorated struct{ driver.Sandbox }

// Unwrap returns the wrapped sandbox.
func (d decorated) Unwrap() any { return d.Sandbox }

func sameAbility[T any](c *C, plain, wrapped driver.Sandbox, name string) {
	_, direct := any(plain).(T)
	_, seen := driver.As[T](wrapped)
	if direct && !seen {
		c.Errorf("%s is not found behind two decorators", name)
	}
	if _, viaAs := driver.As[T](plain); seen != viaAs {
		c.Errorf("%s: As finds %v behind decorators and %v without", name, seen, viaAs)
	}
}

func closeDriver(c *C, d driver.Driver) {
	if cl, ok := driver.As[driver.Closer](d); ok {
		if err := cl.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	}
}
