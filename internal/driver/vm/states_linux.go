package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
)

// A state is a saved sandbox: a directory with the whole memory, the state of the devices, a second
// link to the root if it is on the same file system, and a description. It does not depend on the
// template of the sandbox.

// rootName is the link to the root in a state's directory. The other names are those of a snapshot.
const rootName = "root"

// stateFormat changes when states are written or described differently.
const stateFormat = 1

// stateInfo is the content of infoName.
type stateInfo struct {
	Format     int    `json:"format"`
	Generation uint32 `json:"generation"` // of the agent's protocol
	Kind       kind   `json:"kind"`
	// Owner is the process that can restore a state without digests; "" for a state with digests.
	Owner   string `json:"owner,omitempty"`
	Memory  string `json:"memory,omitempty"`  // digest, see digestFile
	Devices string `json:"devices,omitempty"` // digest
	// RootPath is the path of the root, Linked: the directory has a link to it.
	RootPath  string `json:"root_path"`
	Linked    bool   `json:"linked"`
	RootSize  int64  `json:"root_size"`
	FirstID   uint32 `json:"first_id"` // see client.Options
	MachineID string `json:"machine_id"`
}

// savable is what Save needs of a machine.
type savable struct {
	kind      kind
	machineID string
	base      *os.File      // the file that the machine's memory maps
	root      *os.File      // the disk
	devices   *os.File      // in memory; the monitor writes into it
	busy      chan struct{} // a lock
	stopped   time.Duration // of the last save after which the machine went on; guarded by busy
}

func newSavable(k kind, ram, root *os.File) (s *savable, err error) {
	s = &savable{kind: k, busy: make(chan struct{}, 1)}
	if s.base, err = duplicate(ram); err == nil {
		s.root, err = duplicate(root)
	}
	if err == nil {
		var fd int
		if fd, err = unix.MemfdCreate("sandbar-devices", unix.MFD_CLOEXEC); err == nil {
			s.devices = os.NewFile(uintptr(fd), "devices")
		}
	}
	if err != nil {
		s.close()
		return nil, sandbar.Errorf(sandbar.Exhausted, "opening files of a machine: %w", err)
	}
	return s, nil
}

// duplicate returns a second descriptor of a file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (s *savable) close() {
	if s == nil {
		return
	}
	for _, f := range []*os.File{s.base, s.root, s.devices} {
		if f != nil {
			f.Close()
		}
	}
}

var (
	_ driver.Saver    = (*sandbox)(nil)
	_ driver.Restorer = (*Driver)(nil)
)

// suspendTimeout bounds the wait for the agent before a machine is saved. Other calls wait
// meanwhile.
const suspendTimeout = 30 * time.Second

// continueTimeout bounds the call that lets a stopped machine run again.
const continueTimeout = 30 * time.Second

// Save implements driver.Saver. The machine stands still while its written pages are copied, and
// with o.Commit until that has returned.
func (s *sandbox) Save(ctx context.Context, dir string, o driver.SaveOptions) (size int64, err error) {
	size, err = s.save(ctx, dir, o)
	if err != nil {
		return size, sandboxes.SaveError(err, s.Dead())
	}
	return size, nil
}

func (s *sandbox) save(ctx context.Context, dir string, o driver.SaveOptions) (size int64, err error) {
	if s.r.link != nil {
		// Suspend does not stop the packets that are on the way.
		return 0, &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "a virtual machine with the network \"outbound\" cannot be saved",
			Fix: "create the sandbox without a network"}
	}
	own := s.r.saves
	select {
	case own.busy <- struct{}{}:
		defer func() { <-own.busy }()
	case <-ctx.Done():
		return 0, sandbar.Errorf(sandbar.Canceled, "waiting for another save of the sandbox: %w", ctx.Err())
	}
	w := stateWriter{dir: dir, owner: s.r.d.Owner, o: o, info: stateInfo{Format: stateFormat, Generation: wire.Generation, Kind: own.kind, MachineID: own.machineID}}
	defer w.close()
	if err := w.begin(own); err != nil {
		return 0, err
	}
	stopped := time.Now()
	answer, cancel := context.WithTimeout(ctx, suspendTimeout)
	defer cancel()
	if w.info.FirstID, err = s.Suspend(answer); err != nil {
		return 0, err
	}
	size, err = s.saveStopped(ctx, &w)
	if err == nil && o.Commit != nil {
		s.Release()
		return size, nil
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), continueTimeout)
	defer cancel()
	if cerr := errors.Join(s.r.vm.Continue(clean), s.Continue()); cerr != nil {
		s.r.vm.Agent().Close() // the sandbox counts as dead, and is removed
		return 0, sandbar.Errorf(sandbar.Gone, "the sandbox did not go on after it was saved: %w", errors.Join(cerr, err))
	}
	own.stopped = time.Since(stopped)
	s.r.d.Log.Debug("a sandbox was saved", "sandbox", s.r.ID, "stopped", own.stopped)
	if err != nil {
		return 0, err
	}
	if err := w.describe(); err != nil {
		return 0, err
	}
	return size, nil
}

// saveStopped stops the suspended machine and completes its state.
func (s *sandbox) saveStopped(ctx context.Context, w *stateWriter) (size int64, err error) {
	if err := s.r.vm.Stop(ctx); err != nil {
		return 0, err
	}
	if err := s.r.vm.SaveDevices(ctx); err != nil {
		return 0, err
	}
	if info, err := s.r.saves.devices.Stat(); err != nil || info.Size() > maxDevices {
		return 0, errors.Join(err, errors.New("the monitor wrote a state of the devices of more than 64 MiB"))
	}
	if w.devices, err = copyFile(s.r.saves.devices, w.dir, stateName); err != nil {
		return 0, err
	}
	if err := copyWritten(s.r.Init, s.r.saves.base, w.ram); err != nil {
		return 0, err
	}
	if size, err = w.size(); err != nil || w.o.Commit == nil {
		return size, err
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	return size, w.o.Commit(size)
}

// maxDevices bounds the state of the devices, in bytes. It has about 100 kB.
const maxDevices = 64 << 20

// stateWriter writes one state.
type stateWriter struct {
	dir, owner   string
	o            driver.SaveOptions
	info         stateInfo
	ram, devices *os.File
}

func (w *stateWriter) close() {
	for _, f := range []*os.File{w.ram, w.devices} {
		if f != nil {
			f.Close()
		}
	}
}

// begin writes what does not change while the machine runs.
func (w *stateWriter) begin(s *savable) (err error) {
	if w.ram, err = copyFile(s.base, w.dir, ramName); err != nil {
		return err
	}
	if _, err := w.size(); err != nil {
		return err
	}
	info, err := s.root.Stat()
	if err != nil {
		return err
	}
	w.info.RootSize, w.info.RootPath = info.Size(), s.kind.rootPath
	path := "/proc/self/fd/" + strconv.Itoa(int(s.root.Fd()))
	err = unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, filepath.Join(w.dir, rootName), unix.AT_SYMLINK_FOLLOW)
	if w.info.Linked = err == nil; err != nil { // another file system, or the file of another user
		_, err = os.Stat(s.kind.rootPath)
	}
	return err
}

// size returns the state's size on disk, or Exhausted.
func (w *stateWriter) size() (n int64, err error) {
	for _, f := range []*os.File{w.ram, w.devices} {
		if f == nil {
			continue
		}
		size, err := diskSize(f)
		if err != nil {
			return 0, err
		}
		n += size
	}
	if w.o.MaxBytes > 0 && n > w.o.MaxBytes {
		return 0, sandboxes.StateTooLarge()
	}
	return n, nil
}

// flush brings the files to disk and describes them, with digests.
func (w *stateWriter) flush() (err error) {
	for _, f := range []struct {
		file *os.File
		sum  *string
	}{{w.ram, &w.info.Memory}, {w.devices, &w.info.Devices}} {
		if *f.sum, err = digestFile(f.file); err == nil {
			err = f.file.Sync()
		}
		if err != nil {
			return err
		}
	}
	return w.describe()
}

// describe writes the description, and brings it to disk if the state has digests.
func (w *stateWriter) describe() error {
	if w.info.Memory == "" {
		w.info.Owner = w.owner
	}
	return sandboxes.DescribeState(filepath.Join(w.dir, infoName), w.info, w.info.Memory != "")
}

// state is a state to restore.
type state struct {
	info stateInfo
	dir  string
	monitor.Snapshot
	root *os.File
}

func (s *state) close() {
	for _, f := range []*os.File{s.RAM, s.State, s.root} {
		if f != nil {
			f.Close()
		}
	}
}

// openState opens a state and checks that this driver can restore it. The caller closes it, also
// after an error.
func (d *Driver) openState(dir string) (*state, error) {
	s := &state{dir: dir}
	if err := sandboxes.ReadState(filepath.Join(dir, infoName), &s.info); err != nil {
		return s, err
	}
	if s.info.Format != stateFormat || s.info.Generation != wire.Generation {
		return s, sandboxes.StateUnusable("another version of Sandbar has saved it", "resume it with that version")
	}
	if have := d.monitor.Facts(); s.info.Kind.Monitor != have {
		was := s.info.Kind.Monitor
		return s, sandboxes.StateUnusable(strings.Join([]string{"it was saved by", sandbar.Quote(was.Build, 80), "with", sandbar.Quote(was.Accelerator, 20), "and processor", sandbar.Quote(was.CPU, 80) + ",",
			"and this driver has", have.Build, "with", have.Accelerator, "and processor", have.CPU}, " "), "give the driver the same qemu and accelerator")
	}
	if err := s.open(); err != nil {
		return s, sandboxes.StateDamaged(err)
	}
	if err := s.openRoot(); err != nil {
		return s, sandboxes.StateUnusable("the root of its image is no longer there: "+err.Error(), "restore the file")
	}
	return s, s.check(d.Owner)
}

// open opens memory and devices. The monitor is another user, and opens them by its descriptors; no
// other user can reach them by name, in a directory that only this user can enter.
func (s *state) open() (err error) {
	for _, f := range []struct {
		name string
		file **os.File
	}{{ramName, &s.RAM}, {stateName, &s.State}} {
		if *f.file, err = os.OpenFile(filepath.Join(s.dir, f.name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		info, err := (*f.file).Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New(f.name + " is not a file")
		}
		if err == nil {
			err = (*f.file).Chmod(0o444)
		}
		if err != nil {
			return err
		}
	}
	s.OfDevices = true
	return nil
}

func (s *state) openRoot() (err error) {
	path := s.info.RootPath
	if s.info.Linked {
		path = filepath.Join(s.dir, rootName)
	}
	if s.root, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return err
	}
	s.info.Kind.rootPath = s.info.RootPath
	info, err := s.root.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != s.info.RootSize) {
		err = errors.New("the file has another size")
	}
	return err
}

// check compares the files with their digests. A state without digests is valid in the process that
// wrote it.
func (s *state) check(owner string) error {
	info, err := s.RAM.Stat()
	if err == nil && info.Size() != s.info.Kind.machineMemory() {
		err = errors.New("the memory has another size")
	}
	if err != nil {
		return sandboxes.StateDamaged(err)
	}
	if s.info.Owner != "" {
		if s.info.Owner != owner {
			return sandboxes.StateDamaged(errors.New("it was saved for another process, without digests"))
		}
		return nil
	}
	for _, f := range []struct {
		file *os.File
		want string
	}{{s.RAM, s.info.Memory}, {s.State, s.info.Devices}} {
		sum, err := digestFile(f.file)
		if err == nil && sum != f.want {
			err = errors.New(filepath.Base(f.file.Name()) + " has another digest")
		}
		if err != nil {
			return sandboxes.StateDamaged(err)
		}
	}
	return nil
}

// Restore implements driver.Restorer. A machine without Commit gets another machine id.
func (d *Driver) Restore(ctx context.Context, id sandbar.ID, s sandbar.Spec, dir string) (driver.Sandbox, error) {
	if err := d.refuse(s); err != nil {
		return nil, err
	}
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	st, err := d.openState(dir)
	defer st.close()
	if err != nil {
		return nil, err
	}
	if st.info.Kind.Memory != kindMemory(s.Limits) {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "limits.memory", Message: "the saved sandbox has another memory limit"}
	}
	r := newResources(d, id)
	var sb driver.Sandbox
	err = d.Build(ctx, &r.Resources, func() (err error) {
		sb, err = r.resume(ctx, st, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// resume makes a sandbox from a state.
func (r *resources) resume(ctx context.Context, st *state, s sandbar.Spec) (driver.Sandbox, error) {
	box, err := r.start(ctx, st.info.Kind, st.root, st.Snapshot, s, client.Options{FirstID: st.info.FirstID})
	if err != nil {
		return nil, err
	}
	r.saves.machineID = st.info.MachineID
	if st.info.Owner != "" {
		r.saves.machineID = hostenv.NewMachineID()
	}
	own, err := renewal(r.saves.machineID)
	if err == nil {
		err = box.Resume(ctx, own)
	}
	if err != nil {
		return nil, r.ended("a restored machine does not answer", err)
	}
	return &sandbox{Sandbox: box, r: r}, nil
}
