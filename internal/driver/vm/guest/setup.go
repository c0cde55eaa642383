package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
)

// OpenCache opens or creates the directory of kernels, roots and initial file systems: dir, or
// sandbar/vm in the user's cache directory if dir is empty. Unsupported: it cannot be used, or
// another user can write to it.
func OpenCache(dir string) (string, error) {
	opened, err := cachedir.Open(dir, "sandbar", "vm")
	if err != nil {
		return "", &sandbar.Error{Code: sandbar.Unsupported, Message: "the directory for kernels and roots of machines cannot be used", Err: err,
			Fix: "set XDG_CACHE_HOME or the driver's option cache to a directory of your own that no other user can write to"}
	}
	return opened, nil
}

// Directories below the cache directory. Each has a lock of its own, so that building a root, which
// takes a minute, does not delay a process that needs only the others.
const (
	rootsDir     = "roots"
	initramfsDir = "initramfs"
)

// lockPart opens or creates a directory below the cache directory, locks it, and removes what
// killed processes have left in it.
func lockPart(ctx context.Context, cacheDir, name string) (dir string, unlock func(), err error) {
	if dir, err = cachedir.Open(filepath.Join(cacheDir, name)); err != nil {
		return "", nil, writeError("opening the cache directory", err)
	}
	if unlock, err = cachedir.Lock(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return "", nil, sandbar.Errorf(sandbar.Canceled, "waiting for the lock of %s: %w", dir, err)
		}
		return "", nil, writeError("locking the cache directory", err)
	}
	if err := removeUnfinished(dir); err != nil {
		unlock()
		return "", nil, writeError("removing unfinished files", err)
	}
	return dir, unlock, nil
}

// Progress is the progress of Setup or BuildRoot.
type Progress struct {
	// Step says what is being done: "fetching PACKAGE".
	Step string
	// Done and Total are bytes. Total is 0 if it is unknown.
	Done, Total int64
}

// SetupOptions are the options of Setup.
type SetupOptions struct {
	// Dir is the cache directory; see OpenCache.
	Dir string
	// Vmlinux is the path of the operator's kernel, a vmlinux or a bzImage for x86-64. "" means a
	// kernel of the distribution: a package that apt knows, otherwise an installed kernel.
	Vmlinux string
	// Modules is the directory of the modules of Vmlinux, /lib/modules/RELEASE. "" means that all
	// parts are built in.
	Modules string
	// Package is the name of the kernel package for apt. "" means the first known one of
	// kernelPackages.
	Package string
	// Refresh prepares a kernel even if the directory has one.
	Refresh bool
	// Progress, if not nil, is called with the progress, from one goroutine.
	Progress func(Progress)
}

func (o SetupOptions) report(p Progress) {
	if o.Progress != nil {
		o.Progress(p)
	}
}

// source is a kernel as it was found.
type source struct {
	name    string // of Kernel.Source
	image   []byte // vmlinux or bzImage
	modules moduleTree
	// builtin says that all parts are built in.
	builtin bool
}

// Setup prepares a kernel in the directory and returns it. Without Vmlinux, Package and Refresh it
// returns the kernel that the directory has. Unsupported: this host is not amd64, or no usable
// kernel could be found. Unavailable: the package could not be downloaded. Invalid: the operator's
// kernel cannot be used.
func Setup(ctx context.Context, o SetupOptions) (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, &sandbar.Error{Code: sandbar.Unsupported, Message: "machines of the vm driver run on amd64 only; this is " + runtime.GOARCH,
			Fix: "use another driver"}
	}
	_, unlock, err := lockPart(ctx, o.Dir, "")
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	if o.Vmlinux == "" && o.Package == "" && !o.Refresh {
		if k, err := OpenKernel(o.Dir); err == nil {
			return k, nil
		}
	}
	s, p, err := find(ctx, o)
	if err != nil {
		return Kernel{}, err
	}
	o.report(Progress{Step: "writing the kernel"})
	if err := writeKernel(o.Dir, s, p); err != nil {
		return Kernel{}, writeError("writing the kernel", err)
	}
	return OpenKernel(o.Dir)
}

// parts are the extracted parts of a kernel.
type parts struct {
	vmlinux []byte
	modules []module
}

// extractParts extracts the parts of a kernel.
func extractParts(s source) (p parts, err error) {
	if p.vmlinux, err = extract(s.image); err != nil || s.builtin {
		return p, err
	}
	p.modules, err = selectModules(s.modules)
	return p, err
}

// find returns the kernel that the options select.
func find(ctx context.Context, o SetupOptions) (source, parts, error) {
	if o.Vmlinux != "" {
		s, err := localKernel(o.Vmlinux, o.Modules)
		if err != nil {
			return source{}, parts{}, &sandbar.Error{Code: sandbar.Invalid, Field: "kernel", Message: "the kernel cannot be read", Err: err, Fix: "name a readable vmlinux or vmlinuz"}
		}
		o.report(Progress{Step: "extracting " + s.name})
		p, err := extractParts(s)
		if err != nil {
			return source{}, parts{}, &sandbar.Error{Code: sandbar.Invalid, Field: "kernel", Message: "the kernel " + sandbar.Quote(o.Vmlinux, 200) + " cannot be used", Err: err,
				Fix: "name a kernel for x86-64 with CONFIG_PVH, compressed with zstd or gzip or not at all, and the directory of its modules (--modules /lib/modules/RELEASE)"}
		}
		return s, p, nil
	}
	var errs []error
	s, err := aptKernel(ctx, o)
	if err == nil {
		o.report(Progress{Step: "extracting " + s.name})
		p, perr := extractParts(s)
		if perr == nil {
			return s, p, nil
		}
		err = errors.New(s.name + ": " + perr.Error())
	}
	if ctx.Err() != nil {
		return source{}, parts{}, sandbar.Errorf(sandbar.Canceled, "preparing a guest kernel: %w", ctx.Err())
	}
	errs = append(errs, err)
	if o.Package == "" {
		for _, c := range installedKernels() {
			s, err := localKernel(c.image, c.modules)
			if err == nil {
				var p parts
				o.report(Progress{Step: "extracting " + s.name})
				if p, err = extractParts(s); err == nil {
					return s, p, nil
				}
			}
			errs = append(errs, errors.New(c.image+": "+err.Error()))
		}
	}
	const other = "name a kernel with `sandbar vm setup --kernel FILE --modules DIR`"
	if e, ok := errors.AsType[*sandbar.Error](errs[0]); ok && len(errs) == 1 {
		return source{}, parts{}, &sandbar.Error{Code: e.Code, Message: "no guest kernel could be prepared: " + e.Message, Err: e.Err, Fix: e.Fix + "; or " + other}
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return source{}, parts{}, &sandbar.Error{Code: sandbar.Unsupported, Message: "no guest kernel could be prepared: " + strings.Join(texts, "; "),
		Fix: "install a newer kernel package (Debian 12: linux-image-6.12-cloud-amd64; Debian 13: linux-image-cloud-amd64; Fedora: kernel-core), or " + other}
}

// localKernel reads a kernel from files.
func localKernel(image, modules string) (source, error) {
	b, err := os.ReadFile(image)
	if err != nil {
		return source{}, err
	}
	s := source{name: image, image: b, builtin: modules == ""}
	if s.builtin {
		return s, nil
	}
	// A distribution's modules are below the directory kernel; build and source are links out of it.
	err = filepath.WalkDir(modules, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			s.modules.files = append(s.modules.files, path)
		}
		return err
	})
	s.modules.read = os.ReadFile
	return s, err
}

// installed is an installed kernel.
type installed struct {
	image, modules string
	changed        time.Time
}

// installedKernels returns the readable kernels of this host with their modules, newest first.
func installedKernels() []installed {
	var all []installed
	dirs, _ := filepath.Glob("/lib/modules/*") // the pattern is right
	for _, dir := range dirs {
		for _, image := range []string{filepath.Join(dir, "vmlinuz"), "/boot/vmlinuz-" + filepath.Base(dir)} {
			f, err := os.Open(image)
			if err != nil {
				continue
			}
			info, err := f.Stat()
			f.Close()
			if err == nil {
				all = append(all, installed{image, dir, info.ModTime()})
				break
			}
		}
	}
	slices.SortFunc(all, func(a, b installed) int { return b.changed.Compare(a.changed) })
	return all
}

// unfinishedPrefix begins the names of files and directories that are being written.
const unfinishedPrefix = ".new-"

// removeUnfinished removes what killed processes have left. The caller has the directory's lock.
func removeUnfinished(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, unfinishedPrefix+"*"))
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}

// writeKernel writes the directory of a kernel and replaces the previous one.
func writeKernel(dir string, s source, p parts) error {
	tmp, err := os.MkdirTemp(dir, unfinishedPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	top := filepath.Join(tmp, kernelDir)
	if err := os.MkdirAll(filepath.Join(top, modulesName), 0o755); err != nil {
		return err
	}
	d := description{Kernel: Kernel{Release: release(p.vmlinux), Source: s.name}, Format: kernelFormat}
	vmlinux := filepath.Join(top, vmlinuxName)
	if err := writeFile(vmlinux, p.vmlinux); err != nil {
		return err
	}
	var modules []string
	for _, m := range p.modules {
		path := filepath.Join(top, modulesName, m.file)
		if err := writeFile(path, m.content); err != nil {
			return err
		}
		modules = append(modules, path)
		d.Order = append(d.Order, m.file)
	}
	if d.Digest, err = kernelDigest(vmlinux, modules); err != nil {
		return err
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(top, kernelInfo), append(b, '\n')); err != nil {
		return err
	}
	target := filepath.Join(dir, kernelDir)
	if err := os.Rename(target, filepath.Join(tmp, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(top, target)
}

// writeFile writes a file and waits until it is on the disk.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceFile writes a file atomically: others see the old content or the new.
func replaceFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), unfinishedPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
