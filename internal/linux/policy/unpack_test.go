package policy

import "testing"

// The rules for the unpacker of images compile on both architectures, and none allows starting a
// program or creating a socket.
func TestUnpackRules(t *testing.T) {
	never := []string{"execve", "execveat", "fork", "vfork", "clone3", "socket", "socketpair", "connect", "bind", "sendto", "sendmsg",
		"ptrace", "mount", "unshare", "setns", "mknodat", "fchmodat", "fchmodat2", "fchownat", "truncate", "fsetxattr", "prlimit64", "setrlimit", "kill", "prctl", "io_uring_setup", "bpf"}
	for _, arch := range []string{"amd64", "arm64"} {
		if p, err := Compile(arch, UnpackRules(7)); err != nil || len(p) == 0 {
			t.Errorf("%s: %d bytes, %v", arch, len(p), err)
		}
	}
	for _, r := range UnpackRules(7) {
		if r.Why == "" {
			t.Errorf("%v has no reason", r.Names)
		}
		for _, name := range r.Names {
			for _, n := range never {
				if name == n && r.Action == Allow {
					t.Errorf("%s is allowed", name)
				}
			}
		}
	}
}
