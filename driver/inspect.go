package driver

import "context"

// Inspector is an optional interface of a Driver that depends on other programs and files of the
// host.
type Inspector interface {
	// Inspect returns the state of what the driver depends on. With measure it also makes a sandbox
	// and tells how long that takes, which can take minutes; otherwise it takes less than a second.
	// A fact whose Fix is not empty is a problem.
	Inspect(ctx context.Context, measure bool) []Fact
}

// Fact is the state of one thing that a driver depends on.
type Fact struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Fix   string `json:"fix,omitempty"` // the next step of an operator
}
