package prestart

import "github.com/sandbar-dev/sandbar/driver"

// Ended is closed when the interpreter that waits in a fork has ended.
func Ended(sb driver.Sandbox) <-chan struct{} {
	if h, ok := sb.(*holding); ok {
		return h.ended
	}
	return sb.(*waiting).ended
}
