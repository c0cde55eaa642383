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

// Name is the argv[0] of an unpacker: the process that reads what registries and
// the makers of images wrote.
const Name = "sandbar-image-unpacker"

// operation is a job for an unpacker, and what the daemon does for it meanwhile.
type operation struct {
	job job
	// input writes the archive of a jobArchive. Its error is one of the source's;
	// what cannot be written is the unpacker's affair.
	input func(context.Context, io.Writer) error
	// dial answers kindDial, files kindOpen. nil: there are none.
	dial  dialer
	files opener
	// known reports whether the store has an image already: the job is then done.
	known func(id, manifest string) bool
	// progress, if not nil, is told how far the job is.
	progress func(Progress)
}

// daemon is what an unpacker may ask of the process that started it.
type daemon interface {
	dial(ctx context.Context, addr string) (net.Conn, error)
	open(name string) (*os.File, error)
	known(id, manifest string) error
	progress(p Progress)
}

// maxMemory bounds an unpacker's own memory, in bytes: it holds one window of
// decompression, a few documents and what layers remove.
const maxMemory = 1 << 30

// environment is an unpacker's. The files of TLS are the operator's; the number
// of processors is not looked at again and again.
func environment() []string {
	env := []string{"GOMAXPROCS=2", "GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOTRACEBACK=none"}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Main does the work of an unpacker in a process that was started as one, and
// then does not return. A program that pulls or imports images calls it first in
// main: unpackers are further processes of it. Without it Pull and Import are
// refused.
func Main() {
	if len(os.Args) == 1 && os.Args[0] == Name {
		os.Exit(serve(work))
	}
	child.Claim(Name)
}

// work does a job: it is what an unpacker is for, and knows nothing of how it is
// confined. input is the archive, if there is one.
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

// maxRequests is how many requests of an unpacker are answered at once.
const maxRequests = 16

// allowance is how many messages an unpacker may have sent after so long: ten
// times what one in good order sends.
func allowance(since time.Time) int64 { return 10_000 + int64(100*time.Since(since).Seconds()) }

// valid reports whether an unpacker in good order can be that far.
func (p *Progress) valid(l Limits) bool {
	return (p.Step == "resolve" || p.Step == "fetch") && p.Layer >= 0 && p.Layer <= p.Layers && p.Layers <= l.Layers &&
		p.Bytes >= 0 && p.Total >= 0 && p.Total <= l.Bytes
}
