package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// Transfer copies files between this host and a sandbox of a daemon.
type Transfer struct {
	Client  *client.Client
	Sandbox string   // its id or name
	Stdin   *os.File // read by UploadFile for the name "-"
	Stdout  io.Writer
	Stderr  io.Writer // takes warnings, and the progress if it is a terminal
	Command string    // the path of the command, for cli.UsageError
}

// maxNesting is the maximum depth of directories for DownloadTree.
const maxNesting = 128

// progress is a progress bar on a terminal. Its zero value shows nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress starts a bar for size bytes, -1 if the size is unknown.
func (t *Transfer) newProgress(size int64, what string) progress {
	if !cli.OnTerminal(t.Stderr) {
		return progress{}
	}
	return progress{progressbar.NewOptions64(size, progressbar.OptionSetWriter(t.Stderr), progressbar.OptionSetDescription(cli.Printable(what)),
		progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionUseIECUnits(true), progressbar.OptionFullWidth(), progressbar.OptionSetElapsedTime(false))}
}

// reader returns r with the bar counting its bytes.
func (p progress) reader(r io.Reader) io.Reader {
	if p.bar == nil {
		return r
	}
	return io.TeeReader(r, p.bar)
}

func (p progress) finish() {
	if p.bar != nil {
		p.bar.Finish() // an error of the terminal does not fail the transfer
	}
}

// UploadFile sends the file local, or Stdin for "-", and returns how many bytes it sent. mode 0 is
// the sandbox's default. With parents, missing directories are made.
func (t *Transfer) UploadFile(ctx context.Context, local, to string, mode fs.FileMode, parents bool) (int64, error) {
	f, size := t.Stdin, int64(-1)
	if local != "-" {
		var err error
		if f, err = cli.OpenFile(local); err != nil {
			if info, serr := os.Stat(local); serr == nil && info.IsDir() {
				return 0, cli.Usagef(t.Command, "%s is a directory: use --recursive (-r)", cli.Printable(local))
			}
			return 0, cli.Usagef(t.Command, "%s", err)
		}
		defer f.Close()
		// Only a regular file has a known size.
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	p := t.newProgress(size, to)
	defer p.finish()
	counted := &counter{r: p.reader(f)}
	if err := t.Client.Upload(ctx, t.Sandbox, to, cli.Input{Reader: counted}, size, mode, parents); err != nil {
		return counted.n, inside(t.Sandbox, err)
	}
	return counted.n, nil
}

// counter is a reader that counts its bytes.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// UploadTree sends all directories and files below local, and returns how many bytes it sent. It
// opens local once: it reads no file outside of it, even if another process renames directories
// meanwhile.
func (t *Transfer) UploadTree(ctx context.Context, local, to string) (int64, error) {
	root, err := os.OpenRoot(local)
	if err != nil {
		return 0, cli.Usagef(t.Command, "%s cannot be read: %s (allowed: a directory)", cli.Printable(local), cli.Cause(err))
	}
	defer root.Close()
	p := t.newProgress(-1, to)
	defer p.finish()
	var sent int64
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return sandbar.Errorf(sandbar.Unavailable, "%s cannot be read: %w", cli.Printable(filepath.Join(local, name)), cli.Cause(err))
		}
		if err := cli.CheckUTF8(t.Command, []string{name}); err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return t.Client.MakeDir(ctx, t.Sandbox, path.Join(to, name))
		case !d.Type().IsRegular():
			cli.Warn(t.Stderr, "skipped %s: not a regular file (%s)", cli.Printable(filepath.Join(local, name)), d.Type())
			return nil
		}
		n, err := t.uploadBelow(ctx, root, name, path.Join(to, name), p)
		sent += n
		return err
	})
	return sent, err
}

// uploadBelow sends one file of a directory.
func (t *Transfer) uploadBelow(ctx context.Context, root *os.Root, name, to string, p progress) (int64, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return 0, sandbar.Errorf(sandbar.Unavailable, "%s cannot be read: %w", cli.Printable(name), cli.Cause(err))
	}
	f, err := root.Open(name)
	if err != nil {
		return 0, sandbar.Errorf(sandbar.Unavailable, "%s cannot be read: %w", cli.Printable(name), cli.Cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !os.SameFile(before, info) || !info.Mode().IsRegular() {
		return 0, sandbar.Errorf(sandbar.Conflict, "%s was replaced while it was read", cli.Printable(name))
	}
	counted := &counter{r: p.reader(io.LimitReader(f, info.Size()))}
	err = t.Client.Upload(ctx, t.Sandbox, to, counted, info.Size(), max(info.Mode().Perm(), 0o400), false)
	return counted.n, err
}

// inside adds to an error about a file that the file is in the sandbox, and how to copy a
// directory.
func inside(id string, err error) error {
	e := *sandbar.AsError(err)
	switch e.Code {
	case sandbar.Unauthenticated, sandbar.Unavailable, sandbar.Internal, sandbar.Canceled, sandbar.Gone:
		return err
	}
	if strings.HasSuffix(e.Message, syscall.EISDIR.Error()) {
		e.Fix = "use --recursive (-r) for a directory"
	}
	e.Message = "in " + cli.Printable(id) + ": " + e.Message
	return &e
}

// DownloadTo writes a file of the sandbox to w.
func (t *Transfer) DownloadTo(ctx context.Context, from string, w io.Writer) error {
	d, err := t.Client.Download(ctx, t.Sandbox, from)
	if err != nil {
		return inside(t.Sandbox, err)
	}
	defer d.Close()
	out := &writer{w: w}
	if _, err := t.copy(ctx, out, d, from); out.err != nil {
		return cli.OutputError(out.err)
	} else {
		return err
	}
}

// writer is a writer that keeps its error.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// copy copies a whole file.
func (t *Transfer) copy(ctx context.Context, w io.Writer, d *client.Download, name string) (int64, error) {
	p := t.newProgress(d.Size, name)
	defer p.finish()
	n, err := io.Copy(w, p.reader(d))
	if err == nil && n != d.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && ctx.Err() != nil {
		return n, sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(ctx))
	}
	if err != nil {
		return n, sandbar.Errorf(sandbar.Unavailable, "the transfer of %s was incomplete: %w", cli.Printable(name), err)
	}
	return n, nil
}

// DownloadFile copies a file of the sandbox to the file local, or into the directory local, and
// tells Stdout how many bytes it copied.
func (t *Transfer) DownloadFile(ctx context.Context, from, local string) error {
	info, err := os.Stat(local)
	switch {
	case err != nil || info.Mode().IsRegular():
	case info.IsDir():
		name := path.Base(from)
		if !isName(name) {
			return cli.Usagef(t.Command, "%s has no name for a file in %s", cli.Quote(from), cli.Printable(local))
		}
		local = filepath.Join(local, name)
	default: // a device or FIFO: write to it, do not replace it
		return t.downloadInto(ctx, from, local)
	}
	root, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return cli.Usagef(t.Command, "%s cannot be written: %s", cli.Printable(local), cli.Cause(err))
	}
	defer root.Close()
	n, err := t.downloadBelow(ctx, from, root, filepath.Base(local), 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.Stdout, "downloaded %d bytes to %s\n", n, cli.Printable(local))
	return err
}

// downloadInto writes to an existing device or FIFO.
func (t *Transfer) downloadInto(ctx context.Context, from, local string) error {
	f, err := os.OpenFile(local, os.O_WRONLY, 0)
	if err != nil {
		return cli.Usagef(t.Command, "%s cannot be written: %s", cli.Printable(local), cli.Cause(err))
	}
	return errors.Join(t.DownloadTo(ctx, from, f), f.Close())
}

// downloadBelow writes one file into a directory. It writes to a temporary name and renames it, so
// that the file appears complete, and a symbolic link of that name is replaced and not followed.
func (t *Transfer) downloadBelow(ctx context.Context, from string, root *os.Root, name string, mode fs.FileMode) (int64, error) {
	d, err := t.Client.Download(ctx, t.Sandbox, from)
	if err != nil {
		return 0, inside(t.Sandbox, err)
	}
	defer d.Close()
	unwritable := func(err error) error {
		return sandbar.Errorf(sandbar.Unavailable, "%s cannot be written: %w", cli.Printable(filepath.Join(root.Name(), name)), cli.Cause(err))
	}
	temporary := filepath.Join(filepath.Dir(name), ".sandbar-"+rand.Text())
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, unwritable(err)
	}
	out := &writer{w: f}
	n, err := t.copy(ctx, out, d, from)
	if out.err != nil {
		err = unwritable(out.err)
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = unwritable(cerr)
	}
	if err == nil {
		if err = root.Rename(temporary, name); err != nil {
			err = unwritable(err)
		}
	}
	if err != nil {
		root.Remove(temporary)
	}
	return n, err
}

// DownloadTree copies a directory of the sandbox to local, and tells Stdout how many bytes it
// copied. The names in it come from the sandbox: Denied for one that would lead out of local.
func (t *Transfer) DownloadTree(ctx context.Context, from, local string) error {
	entries, err := t.Client.Dir(ctx, t.Sandbox, from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(local, 0o777); err != nil {
		return cli.Usagef(t.Command, "%s cannot be created: %s", cli.Printable(local), cli.Cause(err))
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return cli.Usagef(t.Command, "%s cannot be written: %s", cli.Printable(local), cli.Cause(err))
	}
	defer root.Close()
	n, err := t.downloadEntries(ctx, from, root, ".", entries, maxNesting)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.Stdout, "downloaded %d bytes to %s\n", n, cli.Printable(local))
	return err
}

func (t *Transfer) downloadEntries(ctx context.Context, from string, root *os.Root, below string, entries []wire.Entry, depth int) (n int64, err error) {
	if depth == 0 {
		return 0, sandbar.Errorf(sandbar.TooLarge, "%s has directories nested deeper than %d", cli.Printable(from), maxNesting)
	}
	for _, e := range entries {
		remote, local := path.Join(from, e.Name), filepath.Join(below, e.Name)
		var m int64
		switch {
		case !isName(e.Name):
			return n, sandbar.Errorf(sandbar.Denied, "a file in %s has the name %s, which is not a valid file name on this host", cli.Printable(from), cli.Quote(e.Name))
		case e.Type == wire.TypeDir:
			m, err = t.downloadDir(ctx, remote, root, local, depth)
		case e.Type == wire.TypeFile:
			m, err = t.downloadBelow(ctx, remote, root, local, permissions(e.Mode))
		default:
			cli.Warn(t.Stderr, "skipped %s: not a regular file (%s)", cli.Printable(remote), cli.Printable(e.Type))
		}
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (t *Transfer) downloadDir(ctx context.Context, from string, root *os.Root, local string, depth int) (int64, error) {
	entries, err := t.Client.Dir(ctx, t.Sandbox, from)
	if err != nil {
		return 0, err
	}
	if err := root.Mkdir(local, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, sandbar.Errorf(sandbar.Unavailable, "%s cannot be created: %w", cli.Printable(local), cli.Cause(err))
	}
	if info, err := root.Lstat(local); err != nil || !info.IsDir() {
		return 0, sandbar.Errorf(sandbar.Conflict, "%s exists and is not a directory", cli.Printable(local))
	}
	return t.downloadEntries(ctx, from, root, local, entries, depth-1)
}

// isName reports whether a name from a sandbox is a plain file name on this host.
func isName(s string) bool {
	return filepath.IsLocal(s) && s != "." && !strings.ContainsAny(s, "/\x00") && filepath.Base(s) == s
}

// permissions returns the mode of a local file: the permission bits of the sandbox's file, and read
// and write for the owner. The umask applies. A mode that cannot be parsed is 0666.
func permissions(octal string) fs.FileMode {
	n, err := strconv.ParseUint(octal, 8, 16)
	if err != nil {
		return 0o666
	}
	return fs.FileMode(n)&0o777 | 0o600
}
