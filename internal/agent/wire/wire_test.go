package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// message is what every kind of payload can do.
type message interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// samples returns one message of each kind with every field set, and an empty
// one to decode into.
func samples() map[string][2]message {
	return map[string][2]message{
		"hello":   {&Hello{Generation: 7}, &Hello{}},
		"reply":   {&Reply{Failure: FailExec, Errno: 13, Text: "step", Data: []byte("data")}, &Reply{}},
		"start":   {&Start{Args: []string{"sh", "-c", ""}, Env: []string{"A=b"}, Dir: "/tmp"}, &Start{}},
		"started": {&Started{PID: 1 << 31, Mark: 1 << 62}, &Started{}},
		"kill":    {&Kill{Mark: 1<<64 - 2}, &Kill{}},
		"exited":  {&Exited{Code: 3, Signal: 9, Watchdog: true, CPU: 1 << 40, MaxRSS: 1 << 41}, &Exited{}},
		"signal":  {&Signal{Number: 15}, &Signal{}},
		"dial":    {&Dial{Port: 65535}, &Dial{}},
		"fs": {&FSRequest{Op: FSRename, Path: "a", To: "b", Mode: 0o644, Flags: FSParents, Handle: 4,
			Offset: 1 << 33, Size: 5, Bytes: []byte{0, 1}}, &FSRequest{}},
		"setup": {&Setup{Hostname: "h", Root: "/tmp",
			Interface: Interface{Name: "eth0", Device: "/dev/net/tun", MTU: 1500, Addrs: []Addr{
				{IP: []byte{192, 0, 0, 2}, Bits: 29, Gateway: []byte{192, 0, 0, 1}}, {IP: make([]byte, 16), Bits: 64, Gateway: make([]byte, 16)}}},
			Mounts: []Mount{{Kind: MountTmpfs, Source: "s", Target: "/t", Flags: MountReadOnly, Size: 1 << 40,
				Inodes: 9, Mode: 0o755, UID: 1, GID: 2}},
			Sysctls: []Sysctl{{Name: "user/x", Value: "1"}},
			Rlimits: []Rlimit{{Resource: 7, Soft: 1, Hard: 1 << 63}}, Nice: 3, UID: 1000, GID: 1001,
			Landlock: Landlock{HandledFS: 5, Scoped: 3, Rules: []LandlockRule{{Path: "/usr", Access: 1 << 15}}},
			Seccomp:  []byte{1, 2, 3, 4, 5, 6, 7, 8}, Programs: []byte{8, 7, 6, 5, 4, 3, 2, 1}, Env: []string{"PATH=/bin"}, Dir: "/home/user",
			Watchdog: 1 << 30, WatchDisks: []string{"/tmp"}}, &Setup{}},
	}
}

func TestRoundTrip(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			b := s[0].Append(nil)
			if err := s[1].Decode(b); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(s[0], s[1]); d != "" {
				t.Error(d)
			}
		})
	}
}

// Every message cut short, at every place, and with a byte too many is refused.
func TestDamaged(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			b := s[0].Append(nil)
			for i := range b {
				if s[1].Decode(b[:i]) == nil {
					t.Errorf("accepted with %d of %d bytes", i, len(b))
				}
			}
			if s[1].Decode(append(b, 0)) == nil {
				t.Error("accepted with a byte too many")
			}
		})
	}
}

func TestFileInfos(t *testing.T) {
	want := []FileInfo{{Name: "a", Target: "b", Size: 1 << 40, Mode: 0o120777, UID: 1000, GID: 5, MTime: -3}, {Name: "é"}}
	got, err := DecodeFileInfos(AppendFileInfos(nil, want))
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := DecodeFileInfos([]byte{255, 255, 255, 255}); err == nil {
		t.Error("a count without entries was accepted")
	}
}

func TestHeader(t *testing.T) {
	good := Header{Length: MaxPayload, Type: TypeKill, FDs: MaxFDs, ID: 1 << 31}
	if h, err := ParseHeader(AppendHeader(nil, good)); err != nil || h != good {
		t.Errorf("got %v, %v", h, err)
	}
	for name, h := range map[string]Header{
		"too long":     {Length: MaxPayload + 1, Type: TypeHello},
		"no type":      {},
		"unknown type": {Type: TypeKill + 1},
		"too many fds": {Type: TypeStart, FDs: MaxFDs + 1},
	} {
		if _, err := ParseHeader(AppendHeader(nil, h)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := ParseHeader(make([]byte, HeaderSize-1)); err == nil {
		t.Error("a short header was accepted")
	}
}

// FuzzDecode feeds arbitrary bytes to every decoder. What is accepted must
// encode to the same bytes: there is one encoding of each message.
func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(s[0].Append(nil))
	}
	f.Add(AppendFileInfos(nil, []FileInfo{{Name: "a"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, s := range samples() {
			m := s[1]
			if m.Decode(b) != nil {
				continue
			}
			// Booleans accept any byte but 0; all else is exact.
			if got := m.Append(nil); name != "exited" && !bytes.Equal(got, b) {
				t.Errorf("%s: %x decodes and encodes to %x", name, b, got)
			}
		}
		if infos, err := DecodeFileInfos(b); err == nil && !bytes.Equal(AppendFileInfos(nil, infos), b) {
			t.Errorf("file infos: %x is not what they encode to", b)
		}
		ParseHeader(b)
		if _, rest, err := DecodeChannel(b); err == nil {
			DecodeCredit(rest)
		}
		DecodeHandle(b)
	})
}
