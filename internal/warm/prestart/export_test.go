package prestart

import "github.com/sandbar-dev/sandbar/driver"

// Ended returns a channel that is closed when the interpreter of a fork has ended.
func Ended(sb driver.Sandbox) <-chan struct{} {
	if h, ok := sb.(*blockedInterpreter); ok {
		return h.ended
	}
	return sb.(*pausedInterpreter).ended
}
