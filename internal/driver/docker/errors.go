package docker

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
)

// maxEngineText is the longest engine message in an error, in bytes.
const maxEngineText = 300

// failed converts the error of a call to the engine. caller is the context of the request; the call
// had a timeout of its own besides.
func (e *engine) failed(caller context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if caller.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(caller), "%s: %w", what, caller.Err())
	}
	at := "the Docker Engine at " + sandbar.Quote(e.at.host, 200) + " (" + e.at.from + ")"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: what + ": " + at + " denies access to this user",
			Fix: "run the daemon as root or as a member of the group that owns the socket (docker)"}
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: what + ": " + at + " does not answer",
			Fix: "check whether it is overloaded or stopped: docker info"}
	case client.IsErrConnectionFailed(err), errdefs.IsUnavailable(err), isGone(err):
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: what + ": " + at + " cannot be reached",
			Fix: "start it (systemctl start docker), or select another by the option " + optionHost + " or DOCKER_HOST"}
	case errdefs.IsConflict(err):
		return &sandbar.Error{Code: sandbar.Conflict, Message: what + ": " + at + ": " + engineText(err)}
	case errdefs.IsNotFound(err):
		return &sandbar.Error{Code: sandbar.NotFound, Message: what + ": " + at + ": " + engineText(err)}
	case errdefs.IsInvalidArgument(err):
		return &sandbar.Error{Code: sandbar.Unsupported, Message: what + ": " + at + " refuses it: " + engineText(err),
			Fix: "run `sandbar doctor` for the limits that it enforces"}
	}
	return &sandbar.Error{Code: sandbar.Internal, Message: what + ": " + at + ": " + engineText(err)}
}

// engineText returns an engine's message, safe to print. It may contain names of images and
// containers, but nothing of their contents.
func engineText(err error) string {
	return sandbar.Quote(strings.TrimPrefix(err.Error(), "Error response from daemon: "), maxEngineText)
}

// plain returns a word of an engine's answer, safe to print and short.
func plain(word string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, word[:min(len(word), 100)])
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// isGone reports that the connection broke or was refused: the engine has crashed or is restarting.
func isGone(err error) bool {
	for _, gone := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, fs.ErrNotExist, net.ErrClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return strings.HasSuffix(err.Error(), "EOF")
}
