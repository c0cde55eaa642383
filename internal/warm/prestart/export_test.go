package prestart

import "github.com/sandbar-dev/sandbar/driver"

// Ended is closed when the interpreter that waits in a fork has ended.
func Ended(sb driver.Sandbox) <-chan struct{} {
	if h, ok := sb.(*blockedInterpreter); ok {
		return h.ended
	}
	return sb.(*pausedInterpreter).ended
}
