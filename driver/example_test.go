package driver_test

import (
	"context"
	"fmt"
	"net"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// dialing is a sandbox that implements Dialer.
type dialing struct{ driver.Sandbox }

func (dialing) DialPort(_ context.Context, port int) (net.Conn, error) {
	return nil, sandbar.Errorf(sandbar.Unavailable, "nothing listens at port %d", port)
}

// counted is a decorator of a sandbox. It has none of the decorated sandbox's abilities.
type counted struct{ driver.Sandbox }

func (c counted) Unwrap() any { return c.Sandbox }

// As finds an ability through any number of decorators.
func ExampleAs() {
	var s driver.Sandbox = counted{dialing{}}
	d, ok := driver.As[driver.Dialer](s)
	fmt.Println(ok)
	_, err := d.DialPort(context.Background(), 80)
	fmt.Println(err)
	_, ok = driver.As[driver.Watcher](s)
	fmt.Println(ok)
	// Output:
	// true
	// nothing listens at port 80
	// false
}
