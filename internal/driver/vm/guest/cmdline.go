package guest

import (
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/agent/boot"
)

// Port is the name of the virtio port of the agent's connection (virtserialport, name=…).
const Port = boot.Port

// NetworkPort is the name of the virtio port for packets.
const NetworkPort = boot.NetworkPort

// FailurePrefix begins the line that a machine writes to the port, in place of the agent's first
// frame, or to the console, if it cannot boot.
const FailurePrefix = boot.FailurePrefix

// Boot are the parameters of one boot.
type Boot struct {
	// Disk bounds in bytes, and Inodes in number, everything that programs write. 0 means the
	// kernel's defaults for a tmpfs: half of the memory.
	Disk, Inodes int64
	// Console makes the kernel report on the first serial port. Otherwise it is silent.
	Console bool
}

// Cmdline returns the kernel's command line. The kernel reboots if it panics, so that the monitor
// exits with -no-reboot. It grants every allocation, as a host with much memory does: a program
// that uses more than there is is killed. psi makes the kernel measure the wait for memory, on
// which the agent acts. no_timer_check leaves out a test of the timer's interrupts, which fails if
// they come late (check_timer in arch/x86/kernel/apic/io_apic.c). With the test, of 8 emulated
// machines on a tenth of a processor each 6 failed it once, and of 8 on a twentieth 6 failed it
// once and one panicked; without it none failed. On KVM the kernel leaves it out by itself.
func Cmdline(b Boot) string {
	words := []string{"panic=-1", "reboot=t", "cryptomgr.notests", "mitigations=off", "tsc=reliable", "sysctl.vm.overcommit_memory=1", "psi=1", "no_timer_check"}
	if b.Console {
		words = append(words, "console=ttyS0", "loglevel=5")
	} else {
		words = append(words, "quiet", "loglevel=0", "8250.nr_uarts=0")
	}
	for _, p := range []struct {
		name  string
		value int64
	}{{boot.DiskParameter, b.Disk}, {boot.InodesParameter, b.Inodes}} {
		if p.value > 0 {
			words = append(words, p.name+"="+strconv.FormatInt(p.value, 10))
		}
	}
	return strings.Join(words, " ")
}
