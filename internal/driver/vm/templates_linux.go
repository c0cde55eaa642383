package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/monitor"
	"github.com/sandbar-dev/sandbar/internal/linux/sandboxes"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
)

// kind is everything on which a snapshot depends. Its encoding names the snapshot.
type kind struct {
	Format     int    `json:"format"`
	Root       string `json:"root"` // digest
	Host       bool   `json:"host"` // of the image "host"
	Memory     int64  `json:"memory"`
	Processors int    `json:"processors"`
	Kernel     string `json:"kernel"`    // digest
	Initramfs  string `json:"initramfs"` // digest; the agent is in it
	// InitramfsSize is in bytes.
	InitramfsSize int64         `json:"initramfs_bytes"`
	Cmdline       string        `json:"cmdline"`
	Monitor       monitor.Facts `json:"monitor"`
	// Interpreter is what waits in the machine, nil for nothing.
	Interpreter *interpreter `json:"interpreter,omitempty"`

	rootPath string
	bounds   bounds // of the sandbox for which a snapshot is made
}

// snapshotFormat changes when snapshots are made or described differently.
const snapshotFormat = 5

// key names the snapshot of a kind.
func (k kind) key() string {
	k.Format = snapshotFormat
	b, err := json.Marshal(k)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// machineMemory is the memory of the machine, in bytes.
func (k kind) machineMemory() int64 {
	// A program that was built without an embedded agent is its own agent. It is in memory twice while
	// the kernel unpacks it, and once later: programs get that difference beyond their limit.
	larger := 2 * max(0, k.InitramfsSize-usualInitial)
	return k.Memory + reserve + (larger+1<<20-1)&^(1<<20-1)
}

// machine is the hardware of a machine of this kind.
func (k kind) machine(name string, root *os.File) monitor.Machine {
	return monitor.Machine{Name: name, Memory: k.machineMemory(), Processors: k.Processors, Root: root}
}

// Files of a snapshot's directory.
const (
	ramName   = "memory"
	stateName = "state"
	infoName  = "snapshot.json"
)

// snapshotInfo is the content of infoName.
type snapshotInfo struct {
	Kind   kind   `json:"kind"`
	Bounds bounds `json:"bounds"`
	// Carried is the process of Kind.Interpreter.
	Carried *client.Carried `json:"carried,omitempty"`
	RAM     string          `json:"memory"` // digest, see digestFile
	State   string          `json:"state"`  // digest
}

// unfinishedPrefix begins the names of directories of snapshots that are being written.
const unfinishedPrefix = ".new-"

// unusedFor is the time after which an unused snapshot is removed.
const unusedFor = 30 * 24 * time.Hour

// template is a snapshot whose files this process has compared with their digests.
type template struct {
	kind    kind            // with the bounds that the machine has when it is restored
	carried *client.Carried // the process of kind.Interpreter
	dir     string
	checked [2]unix.Stat_t // of RAM and state, at the comparison
}

// templates are the snapshots in the cache directory, and those that this process has compared.
type templates struct {
	d   *Driver
	dir string

	ctx     context.Context // of boots
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	open map[string]*opening // by key
}

// opening is a template, or the work to get it.
type opening struct {
	done chan struct{}
	t    *template
	err  error // valid after done is closed
}

func newTemplates(d *Driver) (*templates, error) {
	dir, err := cachedir.Open(filepath.Join(d.cache, "snapshots"))
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "the directory of snapshots cannot be used", Err: err,
			Fix: "set the driver's option cache to a directory of your own that no other user can write to"}
	}
	t := &templates{d: d, dir: dir, open: map[string]*opening{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// close cancels boots in progress.
func (ts *templates) close() {
	ts.mu.Lock()
	ts.cancel()
	ts.mu.Unlock()
	ts.running.Wait()
}

// get returns the template of a kind. It compares the snapshot with its digests or boots a
// machine, which goes on after the end of ctx. After an error the next call tries again.
func (ts *templates) get(ctx context.Context, k kind) (*template, error) {
	key := k.key()
	ts.mu.Lock()
	if ts.ctx.Err() != nil {
		ts.mu.Unlock()
		return nil, sandbar.Errorf(sandbar.Unavailable, "the driver has been closed")
	}
	o := ts.open[key]
	if o != nil && o.finished() && (o.err != nil || !o.t.intact()) {
		o = nil
	}
	if o == nil {
		o = &opening{done: make(chan struct{})}
		ts.open[key] = o
		ts.running.Go(func() {
			o.t, o.err = ts.checkOrBoot(ts.ctx, key, k)
			close(o.done)
		})
	}
	ts.mu.Unlock()
	select {
	case <-o.done:
		return o.t, o.err
	case <-ctx.Done():
		code := sandbar.Unavailable
		if ctx.Err() == context.Canceled {
			code = sandbar.Canceled
		}
		return nil, sandbar.Errorf(code, "the machine of the snapshot is still booting: %w", ctx.Err())
	}
}

func (o *opening) finished() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// checkOrBoot checks the snapshot, or boots a machine if there is none or it is damaged. One
// process boots at a time.
func (ts *templates) checkOrBoot(ctx context.Context, key string, k kind) (*template, error) {
	if t, err := checkTemplate(filepath.Join(ts.dir, key), k); err == nil {
		return t, nil
	}
	unlock, err := cachedir.Lock(ctx, ts.dir)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unavailable, "waiting for another boot: %w", err)
	}
	defer unlock()
	dir := filepath.Join(ts.dir, key)
	t, err := checkTemplate(dir, k)
	if err == nil {
		return t, nil // another process has booted it
	}
	if !errors.Is(err, os.ErrNotExist) {
		ts.d.Log.Warn("a snapshot is damaged and is made again", "directory", dir, "error", err)
	}
	_, _ = ts.leftovers(true) // it will be tried again
	if err := ts.boot(ctx, key, dir, k); err != nil {
		return nil, err
	}
	t, err = checkTemplate(dir, k)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "checking a new snapshot: %w", err)
	}
	return t, nil
}

// boot boots a machine and writes its snapshot to dir. The caller has the lock.
func (ts *templates) boot(ctx context.Context, key, dir string, k kind) (err error) {
	began := time.Now()
	done := ts.d.host.Wait("booting a virtual machine, whose snapshot later sandboxes start from")
	defer done()
	tmp, err := os.MkdirTemp(ts.dir, unfinishedPrefix)
	if err != nil {
		return writeError(err)
	}
	defer os.RemoveAll(tmp)
	s, err := newSnapshot(tmp, k)
	defer closeSnapshot(s)
	if err != nil {
		return writeError(err)
	}
	r := newResources(ts.d, sandbar.ID("sb_boot_"+key[:16]))
	var carried *client.Carried
	err = ts.d.Build(ctx, &r.Resources, func() (err error) {
		carried, err = r.boot(ctx, k, s)
		return err
	})
	if err != nil {
		return err
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxes.UndoTimeout)
	defer cancel()
	if err := r.Destroy(clean); err != nil {
		return err
	}
	if err := describe(tmp, snapshotInfo{Kind: k, Bounds: k.bounds, Carried: carried}, s); err != nil {
		return writeError(err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir)); err != nil {
		return writeError(err)
	}
	ts.d.Log.Info("a virtual machine has booted", "snapshot", key, "duration", time.Since(began).Round(time.Millisecond))
	return nil
}

// newSnapshot creates the files of a snapshot, which the caller closes also after an error. The
// monitor is another user, and opens the files by their descriptors. No other process can reach
// them in this directory, whose mode is 0700.
func newSnapshot(dir string, k kind) (s monitor.Snapshot, err error) {
	for _, f := range []struct {
		name string
		file **os.File
		size int64
	}{{ramName, &s.RAM, k.machineMemory()}, {stateName, &s.State, 0}} {
		if *f.file, err = os.OpenFile(filepath.Join(dir, f.name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return s, err
		}
		if err := errors.Join((*f.file).Chmod(0o666), (*f.file).Truncate(f.size)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// describe completes the directory of a snapshot. It sets the digests of info.
func describe(dir string, info snapshotInfo, s monitor.Snapshot) error {
	for _, f := range []struct {
		file *os.File
		sum  *string
	}{{s.RAM, &info.RAM}, {s.State, &info.State}} {
		if err := errors.Join(f.file.Chmod(0o444), f.file.Sync()); err != nil {
			return err
		}
		var err error
		if *f.sum, err = digestFile(f.file); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, infoName), append(b, '\n'), 0o444)
}

// checkTemplate compares the files of a snapshot with their digests. An error that is not
// os.ErrNotExist means that the snapshot is damaged or of another kind.
func checkTemplate(dir string, k kind) (*template, error) {
	b, err := os.ReadFile(filepath.Join(dir, infoName))
	if err != nil {
		return nil, err
	}
	var info snapshotInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return nil, err
	}
	if info.Kind.key() != k.key() {
		return nil, errors.New("the snapshot is of another kind of machine")
	}
	k.bounds = info.Bounds
	if (info.Carried == nil) != (k.Interpreter == nil) {
		return nil, errors.New("the snapshot does not describe its interpreter")
	}
	t := &template{kind: k, carried: info.Carried, dir: dir}
	s, err := t.openFiles()
	if err != nil {
		return nil, errors.New(err.Error()) // not os.ErrNotExist: the description exists
	}
	defer closeSnapshot(s)
	for i, f := range []struct {
		file *os.File
		sum  string
	}{{s.RAM, info.RAM}, {s.State, info.State}} {
		if err := unix.Fstat(int(f.file.Fd()), &t.checked[i]); err != nil {
			return nil, err
		}
		sum, err := digestFile(f.file)
		if err != nil {
			return nil, err
		}
		if sum != f.sum {
			return nil, fmt.Errorf("%s has another digest", filepath.Base(f.file.Name()))
		}
	}
	if t.checked[0].Size != k.machineMemory() {
		return nil, errors.New("the memory has another size")
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // for collect
	return t, nil
}

// openFiles opens the files of a snapshot for reading.
func (t *template) openFiles() (s monitor.Snapshot, err error) {
	if s.RAM, err = os.OpenFile(filepath.Join(t.dir, ramName), os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
		return s, err
	}
	if s.State, err = os.OpenFile(filepath.Join(t.dir, stateName), os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
		s.RAM.Close()
	}
	return s, err
}

func closeSnapshot(s monitor.Snapshot) {
	s.RAM.Close()
	s.State.Close()
}

// open opens the snapshot, if its files are those that were compared.
func (t *template) open() (monitor.Snapshot, error) {
	s, err := t.openFiles()
	if err != nil {
		return s, err
	}
	for i, f := range []*os.File{s.RAM, s.State} {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != t.checked[i].Ino || st.Size != t.checked[i].Size || st.Ctim != t.checked[i].Ctim {
			closeSnapshot(s)
			return s, errors.New("the snapshot has changed")
		}
	}
	return s, nil
}

// intact reports whether the files are those that were compared.
func (t *template) intact() bool {
	s, err := t.open()
	if err == nil {
		closeSnapshot(s)
	}
	return err == nil
}

// digestBlock is the unit in which digestFile reads, in bytes.
const digestBlock = 64 << 10

// digestFile returns a SHA-256 sum of a file's size and of its blocks that are not zero, with their
// positions. It does not read holes.
func digestFile(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, info.Size())
	for at := int64(0); at < info.Size(); {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // only a hole follows
		}
		if err != nil {
			return "", err
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return "", err
		}
		// Whole blocks, so that the sum does not depend on where the holes are.
		at = data &^ (digestBlock - 1)
		end := (hole + digestBlock - 1) &^ (digestBlock - 1)
		if err := digestBlocks(h, f, at, end); err != nil {
			return "", err
		}
		at = end
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digestBlocks adds the blocks from at to end that are not zero.
func digestBlocks(h hash.Hash, f *os.File, at, end int64) error {
	var zero, block [digestBlock]byte
	for ; at < end; at += digestBlock {
		n, err := f.ReadAt(block[:], at)
		if err != nil && err != io.EOF {
			return err
		}
		if string(block[:n]) != string(zero[:n]) {
			fmt.Fprintln(h, at, n)
			h.Write(block[:n])
		}
	}
	return nil
}

// writeError returns the error of a failed write to the directory of snapshots.
func writeError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &sandbar.Error{Code: sandbar.Exhausted, Message: "writing a snapshot: the disk of the cache directory is full", Err: err,
			Fix: "free space, or set the driver's option cache to a directory on another disk"}
	}
	return sandbar.Errorf(sandbar.Internal, "writing a snapshot: %w", err)
}

// collect lists, and with remove removes, unfinished and unused snapshots.
func (ts *templates) collect(remove bool) ([]driver.Leftover, error) {
	// If another process has the lock, its boot is in progress and there is nothing to collect.
	now, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := cachedir.Lock(now, ts.dir)
	if errors.Is(err, context.Canceled) {
		return nil, nil
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "searching for leftovers: %w", err)
	}
	defer unlock()
	return ts.leftovers(remove)
}

// leftovers is collect for a caller that has the lock.
func (ts *templates) leftovers(remove bool) (found []driver.Leftover, err error) {
	entries, err := os.ReadDir(ts.dir)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "searching for leftovers: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), unfinishedPrefix) && time.Since(info.ModTime()) < unusedFor {
			continue
		}
		l := driver.Leftover{Kind: "directory", Name: filepath.Join(ts.dir, e.Name())}
		if remove {
			l.Err = os.RemoveAll(l.Name)
		}
		found = append(found, l)
	}
	return found, nil
}
