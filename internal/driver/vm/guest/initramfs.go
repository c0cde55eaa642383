package guest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/boot"
	"github.com/sandbar-dev/sandbar/internal/linux/cpio"
)

// BuildInitramfs writes the initial file system for a kernel, with agent as its first program, and
// returns its path and the SHA-256 sum of its content. agent is the agent's executable; nil means
// the running binary, which must then call boot.Main first. If the cache directory has the file, it
// is compared and used. Files that no call has returned for a day are removed.
func BuildInitramfs(cacheDir string, k Kernel, agent []byte) (path, sum string, err error) {
	if agent == nil {
		self, err := os.Executable()
		if err == nil {
			agent, err = os.ReadFile(self)
		}
		if err != nil {
			return "", "", sandbar.Errorf(sandbar.Internal, "reading the running program: %w", err)
		}
	}
	content, err := initramfs(k, agent)
	if err != nil {
		return "", "", sandbar.Errorf(sandbar.Internal, "building the initial file system: %w", err)
	}
	dir, unlock, err := lockPart(context.Background(), cacheDir, initramfsDir)
	if err != nil {
		return "", "", err
	}
	defer unlock()
	sum = digest(content)
	path = filepath.Join(dir, initramfsPrefix+sum[:16])
	removeUnused(dir, path)
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, content) {
		now := time.Now()
		return path, sum, os.Chtimes(path, now, now)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", writeError("reading the initial file system", err)
	}
	if err := replaceFile(path, content); err != nil {
		return "", "", writeError("writing the initial file system", err)
	}
	return path, sum, nil
}

// initramfsPrefix begins the name of an initial file system.
const initramfsPrefix = "initramfs-"

// unusedFor is the time after which an initial file system is removed. Other processes, such as a
// daemon of another release, may be about to boot a machine with a younger one.
const unusedFor = 24 * time.Hour

// removeUnused removes the initial file systems that were not used for unusedFor, except one.
func removeUnused(dir, except string) {
	names, _ := filepath.Glob(filepath.Join(dir, initramfsPrefix+"*")) // the pattern is right
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && name != except && time.Since(info.ModTime()) > unusedFor {
			_ = os.Remove(name) // it is only a cached file
		}
	}
}

// initramfs returns the content of the initial file system. It is not compressed: decompression
// takes longer in an emulated machine than reading.
func initramfs(k Kernel, agent []byte) ([]byte, error) {
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, dir := range []string{"dev", "proc", "sys", "root", "lower", "bound", strings.TrimPrefix(boot.ModuleDir, "/")} {
		w.Dir(dir)
	}
	w.Device("dev/console", 5, 1)
	w.File(strings.TrimPrefix(boot.Init, "/"), agent)
	var order strings.Builder
	for _, path := range k.Modules {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		w.File(strings.TrimPrefix(boot.ModuleDir, "/")+"/"+filepath.Base(path), content)
		order.WriteString(filepath.Base(path) + "\n")
	}
	w.File(strings.TrimPrefix(boot.OrderFile, "/"), []byte(order.String()))
	err := w.Close()
	return b.Bytes(), err
}
