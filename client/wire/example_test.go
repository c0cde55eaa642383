package wire_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandbar-dev/sandbar/client/wire"
)

// The body of POST /sandboxes. A field that is left out is the operator's default.
func ExampleCreate() {
	b, err := json.Marshal(wire.Create{Name: "box", Limits: &wire.Limits{Memory: 256 << 20, Timeout: wire.Unlimited}, IdleTimeout: wire.Seconds(90 * time.Second)})
	fmt.Println(string(b), err)
	// Output:
	// {"name":"box","limits":{"memory":268435456,"timeout":"unlimited"},"idle_timeout":90} <nil>
}
