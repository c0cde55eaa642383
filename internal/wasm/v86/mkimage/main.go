// Command mkimage builds an image for the v86 driver: a bundle of a kernel, an initial file system
// with busybox and Sandbar's guest program, and the kernel's command line. scripts/v86-image.sh
// downloads its inputs.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/sandbar-dev/sandbar/internal/linux/cpio"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/image"
)

// commandLine is the kernel's command line.
const commandLine = image.DefaultCommandLine

func main() {
	kernel := flag.String("kernel", "", "`file` of the kernel, a bzImage")
	busybox := flag.String("busybox", "", "`file` of a static busybox for i386")
	guest := flag.String("guest", "", "`file` of cmd/sandbar-guest, built for linux/386")
	out := flag.String("o", "", "`file` of the image")
	flag.Parse()
	if err := run(*kernel, *busybox, *guest, *out); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(kernel, busybox, guest, out string) error {
	k, err := os.ReadFile(kernel)
	if err != nil {
		return err
	}
	files, err := initialFiles(busybox, guest)
	if err != nil {
		return err
	}
	image, err := bundle(k, files)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out+".new", image, 0o644); err != nil {
		return err
	}
	return os.Rename(out+".new", out)
}

// initialFiles returns the initial file system. It is not compressed, because the slow guest would
// have to decompress it.
func initialFiles(busybox, guest string) ([]byte, error) {
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	first, err := os.ReadFile(guest)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	a := cpio.NewWriter(&b)
	for _, dir := range []string{"bin", "sbin", "dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "var", "var/tmp"} {
		a.Dir(dir)
	}
	a.Device("dev/console", 5, 1)
	a.Device("dev/null", 1, 3)
	a.File("bin/busybox", shell)
	a.File("init", first)
	a.File("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.File("etc/group", []byte("root:x:0:\n"))
	a.File("etc/hosts", []byte("127.0.0.1 localhost sandbar\n"))
	err = a.Close()
	return b.Bytes(), err
}

// bundle returns a tar archive of the three parts.
func bundle(kernel, files []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{{"vmlinuz", kernel}, {"initrd", files}, {"cmdline", []byte(commandLine + "\n")}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
