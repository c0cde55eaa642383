package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
)

// A state is the files of a sandbox: an archive of the one tmpfs that has everything programs have
// written, and its description. The agent of the sandbox writes the archive, and the agent of
// another one reads it; the daemon stores it, and looks at nothing in it.

// The files of a state.
const (
	filesName = "files"      // the archive
	infoName  = "state.json" // stateInfo; it is written last
)

// stateFormat changes when states are written or described differently.
const stateFormat = 1

// stateInfo is the content of infoName.
type stateInfo struct {
	Format int    `json:"format"`
	Image  string `json:"image"` // driver.Image.ID; "" for the image "host"
	Size   int64  `json:"size"`  // of the archive, in bytes
	// Digest is the archive's SHA-256 sum. A state without one can be restored by Owner alone, the
	// process that wrote it.
	Digest string `json:"digest,omitempty"`
	Owner  string `json:"owner,omitempty"`
}

const (
	// quietTimeout bounds the wait for requests in progress before a save.
	quietTimeout = 30 * time.Second
	// freezeTimeout bounds the time until all programs stand still.
	freezeTimeout = 10 * time.Second
	// archiveTimeout bounds the time for which programs stand still while their files are read. It
	// is below the time that other calls into the sandbox wait.
	archiveTimeout = 90 * time.Second
	// entryBytes is the most that an entry takes in an archive besides its data: names, a link's
	// text and extended attributes of a usual size.
	entryBytes = 16 << 10
)

// savesFiles reports whether this driver can save sandboxes.
func (d *Driver) savesFiles() bool { return d.mode == agent.ModeSocket && d.Groups.CanFreeze() == nil }

// withAbilities returns the driver, as a driver.Restorer if it can save sandboxes.
func (d *Driver) withAbilities() driver.Driver {
	if d.savesFiles() {
		return restoring{d}
	}
	return d
}

// restoring is a Driver that saves sandboxes.
type restoring struct{ *Driver }

// savable is a sandbox that can be saved.
type savable struct {
	*client.Sandbox
	r       *resources
	limits  sandbar.Limits
	imageID string
	saving  chan struct{} // a lock
}

var (
	_ driver.Saver    = (*savable)(nil)
	_ driver.Restorer = restoring{}
)

// imageID returns what identifies the sandbox's image; "" for the image "host".
func (r *resources) imageID() string {
	if r.Image == nil {
		return ""
	}
	return r.Image.ID
}

// files returns what the plan does with the files that programs write.
func (r *resources) files() policy.Files {
	f := policy.Files{Kept: r.d.savesFiles(), Restored: r.saved != nil}
	if r.Image != nil && r.d.IDs.Ranged {
		f.Descriptor = 1 // the image's mount is 0
	}
	return f
}

// Save implements driver.Saver. Programs stand still while their files are read, and with o.Commit
// until that has returned.
func (s *savable) Save(ctx context.Context, dir string, o driver.SaveOptions) (size int64, err error) {
	size, err = s.save(ctx, dir, o)
	if err != nil {
		return size, sandboxes.SaveError(err, s.Dead())
	}
	return size, nil
}

func (s *savable) save(ctx context.Context, dir string, o driver.SaveOptions) (size int64, err error) {
	select {
	case s.saving <- struct{}{}:
		defer func() { <-s.saving }()
	case <-ctx.Done():
		return 0, sandbar.Errorf(sandbar.Canceled, "waiting for another save of the sandbox: %w", ctx.Err())
	}
	group, pid, err := s.r.running()
	if err != nil {
		return 0, err
	}
	w := archive{bound: o.MaxBytes}
	if disk := s.archiveBound(); w.bound <= 0 || disk > 0 && disk < w.bound {
		w.bound = disk
	}
	w.asked = o.MaxBytes > 0 && w.bound == o.MaxBytes
	if o.Commit != nil {
		w.digest = sha256.New()
	}
	if w.file, err = os.OpenFile(filepath.Join(dir, filesName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return 0, err
	}
	defer w.file.Close()
	quiet, cancel := context.WithTimeout(ctx, quietTimeout)
	release, err := s.Quiet(quiet)
	cancel()
	if err != nil {
		return 0, err
	}
	defer release()
	stopped := time.Now()
	freeze, cancel := context.WithTimeout(ctx, freezeTimeout)
	err = group.Freeze(freeze, pid)
	cancel()
	if err != nil {
		return 0, err
	}
	thaw := sync.OnceValue(func() error {
		err := group.Thaw()
		if err != nil {
			s.Refuse()
		}
		s.r.d.Log.Debug("a sandbox was saved", "sandbox", s.r.ID, "stopped", time.Since(stopped))
		return err
	})
	defer func() {
		if err == nil && o.Commit != nil {
			s.Refuse() // it stays still, and is destroyed
			return
		}
		err = errors.Join(err, thaw())
	}()
	if err := w.take(ctx, s.Sandbox); err != nil {
		return 0, err
	}
	if o.Commit == nil {
		if err := thaw(); err != nil {
			return 0, err
		}
	}
	return w.complete(dir, stateInfo{Format: stateFormat, Image: s.imageID, Size: w.size, Owner: s.r.d.Owner}, o.Commit)
}

// archiveBound returns the most that the archive can have with an honest agent, in bytes, 0 for no
// bound.
func (s *savable) archiveBound() int64 {
	if s.limits.Disk <= 0 || s.limits.Inodes <= 0 || s.limits.Inodes > 1<<40 || s.limits.Disk > 1<<60 {
		return 0
	}
	return s.limits.Disk + (s.limits.Inodes+1024)*entryBytes
}

// archive receives an archive.
type archive struct {
	file   *os.File
	digest hash.Hash // nil: none
	bound  int64     // bytes; 0: none
	asked  bool      // bound is the caller's
	size   int64
}

// take makes the agent write the archive.
func (w *archive) take(ctx context.Context, box *client.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	defer ours.Close()
	_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, 1<<20) // an ordinary user may have less
	copied := make(chan error, 1)
	go func() {
		err := w.copy(ours)
		ours.Close() // the agent's next write fails
		copied <- err
	}()
	err = box.SaveFiles(ctx, theirs)
	theirs.Close()
	if err != nil {
		ours.SetReadDeadline(time.Unix(1, 0)) // an agent that goes on would keep the pipe open
	}
	// The agent fails if the copy fails, so the copy's error is the cause.
	if cerr := <-copied; cerr != nil && !errors.Is(cerr, os.ErrDeadlineExceeded) {
		return cerr
	}
	return err
}

// copy writes everything from the pipe to the file.
func (w *archive) copy(pipe *os.File) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := pipe.Read(buf)
		if n > 0 {
			if w.bound > 0 && w.size+int64(n) > w.bound {
				return w.tooLarge()
			}
			if _, err := w.file.Write(buf[:n]); err != nil {
				return err
			}
			if w.digest != nil {
				w.digest.Write(buf[:n])
			}
			w.size += int64(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *archive) tooLarge() error {
	if !w.asked {
		return sandbar.Errorf(sandbar.Internal, "the sandbox's files have more than %d bytes, which its limits do not allow", w.bound)
	}
	return sandboxes.StateTooLarge()
}

// complete describes the archive and calls commit, if it is set, when everything is on disk.
func (w *archive) complete(dir string, info stateInfo, commit func(size int64) error) (size int64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.file.Fd()), &st); err != nil {
		return 0, err
	}
	size = max(st.Blocks*512, w.size)
	if commit != nil {
		info.Owner, info.Digest = "", hex.EncodeToString(w.digest.Sum(nil))
		if err := w.file.Sync(); err != nil {
			return 0, err
		}
	}
	if err := sandboxes.DescribeState(filepath.Join(dir, infoName), info, commit != nil); err != nil {
		return 0, err
	}
	if commit == nil {
		return size, nil
	}
	return size, commit(size)
}

// running returns the control group and the agent's process id of a sandbox that is not destroyed.
func (r *resources) running() (*cgroup.Group, int, error) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Group == nil || r.Init == nil {
		return nil, 0, sandbar.Errorf(sandbar.Gone, "the sandbox has ended")
	}
	return r.Group, r.Init.PID(), nil
}

// state is a state to restore.
type state struct {
	info  stateInfo
	files *os.File
}

// openState opens a state and checks that it is whole. The caller closes files.
func (d *Driver) openState(dir string) (s *state, err error) {
	s = &state{}
	if err := sandboxes.ReadState(filepath.Join(dir, infoName), &s.info); err != nil {
		return nil, err
	}
	if s.info.Format != stateFormat {
		return nil, sandboxes.StateUnusable("another version of Sandbar has saved it", "resume it with that version")
	}
	if s.files, err = os.OpenFile(filepath.Join(dir, filesName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err != nil {
		return nil, sandboxes.StateDamaged(err)
	}
	if err := s.check(d.Owner); err != nil {
		s.files.Close()
		return nil, sandboxes.StateDamaged(err)
	}
	return s, nil
}

// check compares the archive with its description, and leaves it at its beginning. A state without
// a digest is valid in the process that wrote it.
func (s *state) check(owner string) error {
	info, err := s.files.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New(filesName + " is not a file")
	case info.Size() != s.info.Size:
		return errors.New(filesName + " has another size")
	case s.info.Digest == "" && s.info.Owner == owner && owner != "":
		return nil
	case s.info.Digest == "":
		return errors.New("it was saved for another process, without a digest")
	}
	h := sha256.New()
	if _, err := io.Copy(h, s.files); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != s.info.Digest {
		return errors.New(filesName + " has another digest")
	}
	_, err = s.files.Seek(0, io.SeekStart)
	return err
}

// fits returns Unsupported if the state's files are not above this image.
func (s *state) fits(imageID string) error {
	if s.info.Image == imageID {
		return nil
	}
	return sandboxes.StateUnusable("its files belong to another image, or to an earlier content of this one", "install that image again")
}

// Restore implements driver.Restorer. The sandbox is new, except its files.
func (d restoring) Restore(ctx context.Context, id sandbar.ID, s sandbar.Spec, dir string) (driver.Sandbox, error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	st, err := d.openState(dir)
	if err != nil {
		return nil, err
	}
	defer st.files.Close()
	box, err := d.createFrom(ctx, id, s, st)
	switch {
	case errors.Is(err, syscall.EBADMSG):
		return nil, sandboxes.StateDamaged(err)
	case errors.Is(err, syscall.ENOSPC):
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "limits.disk", Message: "the saved files exceed the sandbox's limits of disk or inodes", Err: err}
	}
	return box, err
}
