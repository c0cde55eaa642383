package agent

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMitigations: the agent requests every mitigation of the kernel, and any error except the
// known ones is a failure. Few machines have the switches, so the kernel is a table here;
// TestMitigated of package native uses the real kernel.
func TestMitigations(t *testing.T) {
	for _, answer := range []error{nil, unix.ENODEV, unix.ENXIO, unix.EPERM, unix.EINVAL, unix.ERANGE, unix.ENOMEM} {
		var asked [][4]uintptr
		p := prctl(func(option int, a, b, c, d uintptr) error {
			asked = append(asked, [4]uintptr{uintptr(option), a, b, c})
			return answer
		})
		err := p.disableSpeculation()
		if fails := answer == unix.ERANGE || answer == unix.ENOMEM; fails != (err != nil) {
			t.Errorf("speculation control answers %v: %v", answer, err)
		} else if want := [][4]uintptr{{53, 0, 8, 0}, {53, 1, 8, 0}}; !fails && !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
		asked = nil
		err = p.createCoreCookie()
		if fails := answer != nil && answer != unix.ENODEV && answer != unix.EINVAL; fails != (err != nil) {
			t.Errorf("core scheduling answers %v: %v", answer, err)
		}
		if want := [][4]uintptr{{62, 1, 0, 1}}; !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
	}
}
