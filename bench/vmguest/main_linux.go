// Command vmguest is the only program of the minimal machine with which bench compares the vm
// driver: it sends back what it receives at its port.
package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/boot"
)

func main() {
	port, err := open()
	if err != nil {
		os.Stderr.WriteString("vmguest: " + err.Error() + "\n")
		time.Sleep(time.Second)
		os.Exit(1) // the kernel panics and ends the machine
	}
	b := []byte("ready\n")
	for n := len(b); ; {
		if _, err := unix.Write(port, b[:n]); err != nil {
			os.Exit(1)
		}
		b = b[:cap(b)]
		if n, err = unix.Read(port, b); err != nil || n == 0 {
			os.Exit(1)
		}
	}
}

// open opens the port.
func open() (int, error) {
	for dir, kind := range map[string]string{"/dev": "devtmpfs", "/sys": "sysfs"} {
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil && err != unix.EBUSY {
			return -1, &os.PathError{Op: "mount", Path: dir, Err: err}
		}
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // the pattern is right
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == boot.Port {
				return unix.Open("/dev/"+filepath.Base(filepath.Dir(name)), unix.O_RDWR, 0)
			}
		}
	}
	return -1, unix.ENODEV
}
