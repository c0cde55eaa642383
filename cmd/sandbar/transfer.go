package main

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
	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// maxNesting is how deep directories are followed.
const maxNesting = 128

const transferHelp = `
A file appears at its place in one step, when all of it has arrived. With
--recursive a directory is copied with all files and directories in it; links
are not followed and, like devices and sockets, left out with a warning.

On a terminal the progress is shown.
` + remoteHelp

func (a *app) uploadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upload ID LOCAL REMOTE",
		Short: "Copy a file into a sandbox",
		Long: `Copy the file LOCAL, or with - standard input, to REMOTE in a sandbox of a
daemon. ID is the sandbox's id or name. A REMOTE that ends with / is a directory
for it.
` + transferHelp,
		Example: `  sandbar upload $id main.py /home/user/main.py
  tar c src | sandbar upload $id - /tmp/src.tar
  sandbar upload -r $id src /home/user/src`,
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().String("mode", "", "`permissions` of the file, octal (default 0644; with --recursive those of each file)")
	cmd.Flags().BoolP("parents", "p", false, "make missing directories above it")
	cmd.Flags().BoolP("recursive", "r", false, "copy a directory")
	return a.remoteCommand(cmd, (*remote).upload)
}

func (a *app) downloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "download ID REMOTE LOCAL",
		Short: "Copy a file out of a sandbox",
		Long: `Copy the file REMOTE of a sandbox of a daemon to the file LOCAL, or with - to
standard output. ID is the sandbox's id or name. If LOCAL is a directory, the
file goes into it.

What a sandbox calls its files is not trusted: nothing is ever written outside
of LOCAL, nor through a link.
` + transferHelp,
		Example: `  sandbar download $id /home/user/result.json .
  sandbar download $id /tmp/src.tar - | tar x
  sandbar download -r $id /home/user/src src`,
		ValidArgsFunction: a.sandboxIDs,
	}
	cmd.Flags().BoolP("recursive", "r", false, "copy a directory")
	return a.remoteCommand(cmd, (*remote).download)
}

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress begins a bar for so many bytes, or -1 if that is not known.
func (r *remote) newProgress(size int64, what string) progress {
	if !cli.OnTerminal(r.app.stderr) {
		return progress{}
	}
	return progress{progressbar.NewOptions64(size, progressbar.OptionSetWriter(r.app.stderr), progressbar.OptionSetDescription(cli.Printable(what)),
		progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionUseIECUnits(true), progressbar.OptionFullWidth(), progressbar.OptionSetElapsedTime(false))}
}

// reader counts what is read.
func (p progress) reader(r io.Reader) io.Reader {
	if p.bar == nil {
		return r
	}
	return io.TeeReader(r, p.bar)
}

func (p progress) finish() {
	if p.bar != nil {
		p.bar.Finish() // the terminal's trouble is not the transfer's
	}
}

func (r *remote) upload(args []string) error {
	if err := needArgs(r.cmd, args, 3, "ID", "LOCAL", "REMOTE"); err != nil {
		return err
	}
	if err := checkUTF8(r.cmd, args[2:]); err != nil {
		return err
	}
	id, local, to := args[0], args[1], args[2]
	mode, err := r.mode()
	if err != nil {
		return err
	}
	parents, _ := r.cmd.Flags().GetBool("parents")
	recursive, _ := r.cmd.Flags().GetBool("recursive")
	if strings.HasSuffix(to, "/") && local != "-" && !recursive {
		to += filepath.Base(local)
	}
	var sent int64
	if recursive {
		if local == "-" || mode != 0 {
			return usagef(r.cmd, "--recursive goes neither with - nor with --mode")
		}
		sent, err = r.uploadTree(id, local, to)
	} else {
		sent, err = r.uploadFile(id, local, to, mode, parents)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.app.stdout, "uploaded %d bytes to %s:%s\n", sent, cli.Printable(id), cli.Printable(to))
	return err
}

func (r *remote) mode() (fs.FileMode, error) {
	flag := r.cmd.Flags().Lookup("mode")
	if !flag.Changed {
		return 0, nil
	}
	n, err := strconv.ParseUint(flag.Value.String(), 8, 16)
	if err != nil || n == 0 || n > 0o777 {
		return 0, usagef(r.cmd, "--mode: %s is no permissions (allowed: octal from 1 to 777)", cli.Quote(flag.Value.String()))
	}
	return fs.FileMode(n), nil
}

// uploadFile sends one file, or standard input.
func (r *remote) uploadFile(id, local, to string, mode fs.FileMode, parents bool) (int64, error) {
	f, size := r.app.stdin, int64(-1)
	if local != "-" {
		var err error
		if f, err = cli.OpenFile(local); err != nil {
			if info, serr := os.Stat(local); serr == nil && info.IsDir() {
				return 0, usagef(r.cmd, "%s is a directory: use --recursive (-r)", cli.Printable(local))
			}
			return 0, usagef(r.cmd, "%s", err)
		}
		defer f.Close()
		// Of anything but a file the size is not known before its end.
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	p := r.newProgress(size, to)
	defer p.finish()
	counted := &counter{r: p.reader(f)}
	if err := r.Upload(r.ctx, id, to, cli.Input{Reader: counted}, size, mode, parents); err != nil {
		return counted.n, inside(id, err)
	}
	return counted.n, nil
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// uploadTree sends a directory. It is opened once, and nothing outside of it is
// read, whatever becomes of it meanwhile.
func (r *remote) uploadTree(id, local, to string) (int64, error) {
	root, err := os.OpenRoot(local)
	if err != nil {
		return 0, usagef(r.cmd, "%s cannot be read: %s (allowed: a directory)", cli.Printable(local), cli.Cause(err))
	}
	defer root.Close()
	p := r.newProgress(-1, to)
	defer p.finish()
	var sent int64
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return sandbar.Errorf(sandbar.Unavailable, "%s cannot be read: %w", cli.Printable(filepath.Join(local, name)), cli.Cause(err))
		}
		if err := checkUTF8(r.cmd, []string{name}); err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return r.MakeDir(r.ctx, id, path.Join(to, name))
		case !d.Type().IsRegular():
			r.app.warn("%s is left out: it is no file (%s)", cli.Printable(filepath.Join(local, name)), d.Type())
			return nil
		}
		n, err := r.uploadBelow(id, root, name, path.Join(to, name), p)
		sent += n
		return err
	})
	return sent, err
}

// uploadBelow sends one file of a directory.
func (r *remote) uploadBelow(id string, root *os.Root, name, to string, p progress) (int64, error) {
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
	err = r.Upload(r.ctx, id, to, counted, info.Size(), max(info.Mode().Perm(), 0o400), false)
	return counted.n, err
}

// inside says of an error about a file that the file is the sandbox's, and how a
// directory is copied.
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

func (r *remote) download(args []string) error {
	if err := needArgs(r.cmd, args, 3, "ID", "REMOTE", "LOCAL"); err != nil {
		return err
	}
	id, from, local := args[0], args[1], args[2]
	if err := checkUTF8(r.cmd, []string{from}); err != nil {
		return err
	}
	recursive, _ := r.cmd.Flags().GetBool("recursive")
	switch {
	case recursive && local == "-":
		return usagef(r.cmd, "--recursive does not go with -")
	case local == "-":
		return r.downloadTo(id, from, r.app.stdout)
	case recursive:
		return r.downloadTree(id, from, local)
	}
	return r.downloadFile(id, from, local)
}

// downloadTo writes a file to standard output.
func (r *remote) downloadTo(id, from string, w io.Writer) error {
	d, err := r.Download(r.ctx, id, from)
	if err != nil {
		return inside(id, err)
	}
	defer d.Close()
	out := &writer{w: w}
	if _, err := r.copy(out, d, from); out.err != nil {
		return cli.OutputError(out.err)
	} else {
		return err
	}
}

// writer remembers why it could not write.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// copy takes a whole file.
func (r *remote) copy(w io.Writer, d *client.Download, name string) (int64, error) {
	p := r.newProgress(d.Size, name)
	defer p.finish()
	n, err := io.Copy(w, p.reader(d))
	if err == nil && n != d.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && r.ctx.Err() != nil {
		return n, sandbar.Errorf(sandbar.Canceled, "cancelled: %w", context.Cause(r.ctx))
	}
	if err != nil {
		return n, sandbar.Errorf(sandbar.Unavailable, "%s did not arrive whole: %w", cli.Printable(name), err)
	}
	return n, nil
}

// downloadFile writes one file.
func (r *remote) downloadFile(id, from, local string) error {
	info, err := os.Stat(local)
	switch {
	case err != nil || info.Mode().IsRegular():
	case info.IsDir():
		name := path.Base(from)
		if !isName(name) {
			return usagef(r.cmd, "%s has no name for a file in %s", cli.Quote(from), cli.Printable(local))
		}
		local = filepath.Join(local, name)
	default: // a device or FIFO, which is to be written to, not replaced
		return r.downloadInto(id, from, local)
	}
	root, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return usagef(r.cmd, "%s cannot be written: %s", cli.Printable(local), cli.Cause(err))
	}
	defer root.Close()
	n, err := r.downloadBelow(id, from, root, filepath.Base(local), 0o666)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.app.stdout, "downloaded %d bytes to %s\n", n, cli.Printable(local))
	return err
}

// downloadInto writes to what is there already and is no file.
func (r *remote) downloadInto(id, from, local string) error {
	f, err := os.OpenFile(local, os.O_WRONLY, 0)
	if err != nil {
		return usagef(r.cmd, "%s cannot be written: %s", cli.Printable(local), cli.Cause(err))
	}
	return errors.Join(r.downloadTo(id, from, f), f.Close())
}

// downloadBelow writes one file into a directory: first under another name, so
// that it appears whole, and a link in its place is replaced and not followed.
func (r *remote) downloadBelow(id, from string, root *os.Root, name string, mode fs.FileMode) (int64, error) {
	d, err := r.Download(r.ctx, id, from)
	if err != nil {
		return 0, inside(id, err)
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
	n, err := r.copy(out, d, from)
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

// downloadTree writes a directory, whose names come from the sandbox.
func (r *remote) downloadTree(id, from, local string) error {
	entries, err := r.Dir(r.ctx, id, from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(local, 0o777); err != nil {
		return usagef(r.cmd, "%s cannot be made: %s", cli.Printable(local), cli.Cause(err))
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return usagef(r.cmd, "%s cannot be written: %s", cli.Printable(local), cli.Cause(err))
	}
	defer root.Close()
	n, err := r.downloadEntries(id, from, root, ".", entries, maxNesting)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.app.stdout, "downloaded %d bytes to %s\n", n, cli.Printable(local))
	return err
}

func (r *remote) downloadEntries(id, from string, root *os.Root, below string, entries []wire.Entry, depth int) (n int64, err error) {
	if depth == 0 {
		return 0, sandbar.Errorf(sandbar.TooLarge, "%s has directories nested deeper than %d", cli.Printable(from), maxNesting)
	}
	for _, e := range entries {
		remote, local := path.Join(from, e.Name), filepath.Join(below, e.Name)
		var m int64
		switch {
		case !isName(e.Name):
			return n, sandbar.Errorf(sandbar.Denied, "a file in %s is called %s, which is no name here", cli.Printable(from), cli.Quote(e.Name))
		case e.Type == wire.TypeDir:
			m, err = r.downloadDir(id, remote, root, local, depth)
		case e.Type == wire.TypeFile:
			m, err = r.downloadBelow(id, remote, root, local, permissions(e.Mode))
		default:
			r.app.warn("%s is left out: it is no file (%s)", cli.Printable(remote), cli.Printable(e.Type))
		}
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (r *remote) downloadDir(id, from string, root *os.Root, local string, depth int) (int64, error) {
	entries, err := r.Dir(r.ctx, id, from)
	if err != nil {
		return 0, err
	}
	if err := root.Mkdir(local, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, sandbar.Errorf(sandbar.Unavailable, "%s cannot be made: %w", cli.Printable(local), cli.Cause(err))
	}
	if info, err := root.Lstat(local); err != nil || !info.IsDir() {
		return 0, sandbar.Errorf(sandbar.Conflict, "%s is there already and no directory", cli.Printable(local))
	}
	return r.downloadEntries(id, from, root, local, entries, depth-1)
}

// isName reports whether a name from a sandbox is one name of a file here.
func isName(s string) bool {
	return filepath.IsLocal(s) && s != "." && !strings.ContainsAny(s, "/\x00") && filepath.Base(s) == s
}

// permissions are those of a file of the sandbox, as far as its owner here may
// have them; the umask applies.
func permissions(octal string) fs.FileMode {
	n, err := strconv.ParseUint(octal, 8, 16)
	if err != nil {
		return 0o666
	}
	return fs.FileMode(n)&0o777 | 0o600
}
