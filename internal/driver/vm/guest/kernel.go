package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbar-dev/sandbar"
)

// Kernel is a guest kernel on the host.
type Kernel struct {
	// Vmlinux is the path of the uncompressed kernel, an ELF file with a PVH entry point.
	Vmlinux string `json:"-"`
	// Release is the kernel's release, as uname -r prints it in the guest. "" if it is unknown.
	Release string `json:"release"`
	// Source is the package or file that the kernel came from.
	Source string `json:"source"`
	// Digest identifies the content of the kernel and its modules: 64 hexadecimal digits.
	Digest string `json:"digest"`
	// Modules are the paths of the kernel modules, uncompressed, in load order.
	Modules []string `json:"-"`
}

// Files of a kernel's directory.
const (
	kernelDir   = "kernel"
	vmlinuxName = "vmlinux"
	modulesName = "modules"
	kernelInfo  = "kernel.json"
)

// kernelFormat changes when Setup prepares kernels differently.
const kernelFormat = 1

// description is the content of kernelInfo.
type description struct {
	Kernel
	Format int      `json:"format"`
	Order  []string `json:"modules"` // names below modulesName
}

// OpenKernel returns the kernel that Setup has prepared in a directory, after comparing its files
// with their digest. NotFound: there is none. Internal: it is damaged.
func OpenKernel(dir string) (Kernel, error) {
	top := filepath.Join(dir, kernelDir)
	b, err := os.ReadFile(filepath.Join(top, kernelInfo))
	if errors.Is(err, fs.ErrNotExist) {
		return Kernel{}, &sandbar.Error{Code: sandbar.NotFound, Message: "no guest kernel is prepared in " + sandbar.Quote(dir, 200),
			Fix: "run `sandbar vm setup`"}
	}
	if err != nil {
		return Kernel{}, sandbar.Errorf(sandbar.Internal, "opening the guest kernel: %w", err)
	}
	damaged := func(err error) error {
		return &sandbar.Error{Code: sandbar.Internal, Message: "the guest kernel in " + sandbar.Quote(dir, 200) + " is damaged", Err: err,
			Fix: "run `sandbar vm setup --refresh`"}
	}
	var d description
	if err := json.Unmarshal(b, &d); err != nil {
		return Kernel{}, damaged(err)
	}
	if d.Format != kernelFormat {
		return Kernel{}, &sandbar.Error{Code: sandbar.NotFound, Message: "the guest kernel in " + sandbar.Quote(dir, 200) + " was prepared by another release",
			Fix: "run `sandbar vm setup`"}
	}
	k := d.Kernel
	k.Vmlinux = filepath.Join(top, vmlinuxName)
	for _, name := range d.Order {
		if name != filepath.Base(name) {
			return Kernel{}, damaged(errors.New("a module's name is not a file name"))
		}
		k.Modules = append(k.Modules, filepath.Join(top, modulesName, name))
	}
	sum, err := kernelDigest(k.Vmlinux, k.Modules)
	if err == nil && sum != k.Digest {
		err = errors.New("its files have another digest")
	}
	if err != nil {
		return Kernel{}, damaged(err)
	}
	return k, nil
}

// kernelDigest returns the digest of a kernel and its modules.
func kernelDigest(vmlinux string, modules []string) (string, error) {
	all := sha256.New()
	for _, path := range append([]string{vmlinux}, modules...) {
		sum, err := fileDigest(path)
		if err != nil {
			return "", err
		}
		io.WriteString(all, filepath.Base(path)+"\x00"+sum+"\n")
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// fileDigest returns the SHA-256 sum of a file.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digest returns the SHA-256 sum of b.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
