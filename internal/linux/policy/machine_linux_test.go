package policy

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMachineCapabilities(t *testing.T) {
	want := map[string]uint8{
		"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "FOWNER": unix.CAP_FOWNER, "FSETID": unix.CAP_FSETID,
		"KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID, "SETPCAP": unix.CAP_SETPCAP,
		"NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "NET_RAW": unix.CAP_NET_RAW, "SYS_CHROOT": unix.CAP_SYS_CHROOT,
		"AUDIT_WRITE": unix.CAP_AUDIT_WRITE, "SETFCAP": unix.CAP_SETFCAP,
	}
	var set uint64
	for _, c := range machineCapabilities() {
		if n, ok := want[c.name]; !ok || n != c.number || c.why == "" {
			t.Errorf("%s has number %d and reason %q, want %d and a reason", c.name, c.number, c.why, n)
		}
		set |= 1 << c.number
	}
	if len(machineCapabilities()) != len(want) || MachineCapabilities() != set {
		t.Errorf("the set is %#x of %d, want %d", MachineCapabilities(), len(machineCapabilities()), len(want))
	}
	for _, n := range []int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE, unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_SYS_PTRACE,
		unix.CAP_SYS_RAWIO, unix.CAP_SYS_TIME, unix.CAP_MKNOD, unix.CAP_DAC_READ_SEARCH, unix.CAP_BPF, unix.CAP_PERFMON} {
		if set>>n&1 != 0 {
			t.Errorf("capability %d reaches the kernel or the agent", n)
		}
	}
}
