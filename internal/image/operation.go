package image

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/process/child"
)

// Name is the argv[0] of an unpacker, the process that parses data of registries and images.
const Name = "sandbar-image-unpacker"

// operation is a job for an unpacker, and the daemon's part of it.
type operation struct {
	job job
	// input writes the archive of a jobArchive. It returns errors of the source only; the unpacker
	// reports its own.
	input func(context.Context, io.Writer) error
	// dial answers kindDial, files answers kindOpen; nil if not available.
	dial  dialer
	files opener
	// known reports whether the store already has an image, which ends the job.
	known func(id, manifest string) bool
	// progress, if not nil, is called with the job's progress.
	progress func(Progress)
}

// daemon has the requests of an unpacker to the daemon.
type daemon interface {
	dial(ctx context.Context, addr string) (net.Conn, error)
	open(name string) (*os.File, error)
	known(id, manifest string) error
	progress(p Progress)
}

// maxMemory bounds an unpacker's memory in bytes: one decompression window, a few documents and the
// lists of removed paths.
const maxMemory = 1 << 30

// environment is an unpacker's environment: the operator's TLS files, and runtime settings that
// avoid re-reading the number of CPUs.
func environment() []string {
	env := []string{"GOMAXPROCS=2", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Main runs an unpacker and does not return, if this process was started as one; otherwise it
// returns. A program that pulls or imports images must call it first in main, because unpackers are
// further processes of the same program. Without it, Pull and Import fail.
func Main() {
	if len(os.Args) == 1 && os.Args[0] == Name {
		os.Exit(serve(work))
	}
	child.Claim(Name)
}

// work does a job. It is independent of how the process is confined. input is the archive, if there
// is one.
func work(ctx context.Context, j *job, d daemon, top *os.Root, input io.Reader) (*result, error) {
	b, err := newStage(top, j.Limits)
	if err != nil {
		return nil, err
	}
	o := ImportOptions{Pick: j.Pick, Arch: j.Arch}
	var id string
	switch j.Kind {
	case jobPull:
		p, err := newPuller(b, d, j)
		if err != nil {
			return nil, err
		}
		return p.pull(ctx)
	case jobArchive:
		id, err = b.archive(ctx, input, o)
	case jobLayout:
		id, err = b.layout(ctx, d.open, o)
	default:
		return nil, sandbar.Errorf(sandbar.Internal, "an unpacker does not know the job %q", j.Kind)
	}
	if err != nil {
		return nil, err
	}
	return b.result(id, ""), nil
}

// maxRequests is the number of an unpacker's requests that are answered at once.
const maxRequests = 16

// allowance is the number of messages that an unpacker may have sent after a time: ten times that
// of a correct one.
func allowance(since time.Time) int64 { return 10_000 + int64(100*time.Since(since).Seconds()) }

// valid reports whether the progress is possible for a correct unpacker.
func (p *Progress) valid(l Limits) bool {
	return (p.Step == "resolve" || p.Step == "fetch") && p.Layer >= 0 && p.Layer <= p.Layers && p.Layers <= l.Layers &&
		p.Bytes >= 0 && p.Total >= 0 && p.Total <= l.Bytes
}
