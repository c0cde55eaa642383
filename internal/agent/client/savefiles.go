package client

import (
	"context"
	"os"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Quiet waits until the agent has answered every request, and makes new ones wait until release is
// called. So neither starts of programs nor file operations are in progress meanwhile. Streams and
// signals go on. One Quiet per sandbox may be in progress. Callers of other methods give up after
// answerTimeout.
//
// Timeout, Canceled: there was no such moment before the end of ctx. Gone: the sandbox has ended.
func (s *Sandbox) Quiet(ctx context.Context) (release func(), err error) {
	var taken []chan struct{}
	release = func() {
		for _, slots := range taken {
			<-slots
		}
	}
	for _, t := range []wire.Type{wire.TypeStart, wire.TypeKill, wire.TypeFS} {
		for range maxPending {
			select {
			case s.slots[t] <- struct{}{}:
				taken = append(taken, s.slots[t])
				continue
			case <-s.dead:
				err = errGone()
			case <-ctx.Done():
				err = sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the sandbox: %w", ctx.Err())
			}
			release()
			return nil, err
		}
	}
	return release, nil
}

// SaveFiles makes the agent write the files that programs have written to a pipe; see
// wire.TypeSaveFiles. It returns when the agent has written all, or the end of ctx has come.
// The programs should stand still.
//
// NoSpace and others: the agent could not read a file. Unsupported: the agent cannot be sent a
// descriptor. Gone: the sandbox has ended.
func (s *Sandbox) SaveFiles(ctx context.Context, pipe *os.File) error {
	r, err := s.request(ctx, wire.TypeSaveFiles, nil, []int{int(pipe.Fd())}, &call{})
	if err != nil {
		return err
	}
	if r.Failure != wire.OK {
		return fileError("saving", "the sandbox's files", r.Errno)
	}
	return nil
}

// Refuse makes all later requests fail, for a sandbox that will be destroyed.
func (s *Sandbox) Refuse() { s.refuse() }
