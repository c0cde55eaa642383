//go:build !unix

package image

import (
	"context"
	"errors"
	"os"
)

var errNoLocks = errors.New("files cannot be locked on this system as the store needs it")

func tryLock(string, bool, bool) (*os.File, error) { return nil, errNoLocks }

func waitLock(context.Context, string) (*os.File, error) { return nil, errNoLocks }
