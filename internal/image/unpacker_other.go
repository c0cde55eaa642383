//go:build !unix

package image

import (
	"context"
	"io"
	"os"
)

func (b *build) run(context.Context, operation) (result, error) { return result{}, errNoLocks }

func serve(func(context.Context, *job, daemon, *os.Root, io.Reader) (*result, error)) int { return 1 }
