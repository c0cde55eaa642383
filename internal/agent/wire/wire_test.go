package wire

import (
	"bytes"
	"io"
	"strings"
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
		"started": {&Started{PID: 1 << 31, Tag: 1 << 62}, &Started{}},
		"kill":    {&Kill{Tag: 1<<64 - 2}, &Kill{}},
		"spawn": {&Spawn{Mode: "socket", UIDs: IDMap{Inside: 1000, Outside: 1 << 31, Size: 1}, GIDs: IDMap{Size: 1 << 16},
			Ranged: true, Caps: 41, Owner: 5, Enter: []string{"/a/tasks"}, Leave: []string{"/tasks"}}, &Spawn{}},
		"spawned": {&Spawned{PID: 1 << 22}, &Spawned{}},
		"exited":  {&Exited{Code: 3, Signal: 9, OutOfMemory: true, CPU: 1 << 40, MaxRSS: 1 << 41}, &Exited{}},
		"signal":  {&Signal{Number: 15}, &Signal{}},
		"lent":    {&AdoptAttrs{Resource: 10, Tag: 1 << 62, Rlimits: []Rlimit{{Resource: 7, Soft: 1, Hard: 1<<64 - 1}}}, &AdoptAttrs{}},
		"release": {&Release{Program: 7, Handle: 8, Bytes: []byte("x")}, &Release{}},
		"adopt":   {&Adopt{PID: 1 << 30, Tag: 5}, &Adopt{}},
		"launch": {&Launch{Args: []string{"python3"}, Env: []string{"A=b"}, Dir: "/tmp", Namespaces: 6, UID: 1, GID: 2,
			Rlimits: []Rlimit{{Resource: 4, Soft: 1, Hard: 1}}, Seccomp: []byte{1, 2}, Score: "600"}, &Launch{}},
		"clock":  {&Clock{Time: -1 << 40}, &Clock{}},
		"resume": {&Resume{FirstID: 1 << 30, Renew: Renew{Seed: [SeedSize]byte{1}, Time: 1, Hostname: "sandbox", MachineID: "0123456789abcdef0123456789abcdef"}}, &Resume{}},
		"renew": {&Renew{Seed: [SeedSize]byte{0: 1, SeedSize - 1: 2}, Time: 1 << 60, Hostname: "sandbox-1.Example",
			MachineID: "0123456789abcdef0123456789abcdef", Template: true}, &Renew{}},
		"watch": {&Watch{Path: "src", Recursive: true}, &Watch{}},
		"dial":  {&Dial{Port: 65535}, &Dial{}},
		"fs": {&FSRequest{Op: FSRename, Path: "a", To: "b", Mode: 0o644, Flags: FSParents, Handle: 4,
			Offset: 1 << 33, Size: 5, UID: 6, GID: Same, Bytes: []byte{0, 1}}, &FSRequest{}},
		"stage": {&Stage{Base: "/tmp", Mounts: []Mount{{Kind: MountProc, Target: "/proc", Size: -1}}, Config: []byte("{}"),
			Args: []string{"runc", "run"}, Env: []string{"A=b"}}, &Stage{}},
		"setup": {&Setup{Prebuilt: true, TagResource: 10, Hostname: "h", Remove: []string{"/dev/fuse"}, Root: "/tmp",
			Interface: Interface{Name: "eth0", Device: "/dev/net/tun", MTU: 1500, Addrs: []Addr{
				{IP: []byte{192, 0, 0, 2}, Bits: 29, Gateway: []byte{192, 0, 0, 1}}, {IP: make([]byte, 16), Bits: 64, Gateway: make([]byte, 16)}}},
			Mounts: []Mount{{Kind: MountTmpfs, Source: "s", Target: "/t", Flags: MountReadOnly, Size: 1 << 40,
				Inodes: 9, Mode: 0o755, UID: 1, GID: 2}},
			Sysctls: []Sysctl{{Name: "user/x", Value: "1"}},
			Rlimits: []Rlimit{{Resource: 7, Soft: 1, Hard: 1 << 63}}, Nice: 3, UID: 1000, GID: 1001,
			Landlock: Landlock{HandledFS: 5, Scoped: 3, Rules: []LandlockRule{{Path: "/usr", Access: 1 << 15}}},
			Seccomp:  []byte{1, 2, 3, 4, 5, 6, 7, 8}, ProgramSeccomp: []byte{8, 7, 6, 5, 4, 3, 2, 1}, Capabilities: 1 << 41, Env: []string{"PATH=/bin"}, OwnEnv: OwnEnv{Use: true, Below: []string{"A=1"}, Omit: []string{"B", "C*"}}, Dir: "/home/user",
			Watchdog: 1 << 30, PIDs: 9, WatchKernel: true, WatchDisks: []string{"/tmp"}}, &Setup{}},
	}
}

func TestAppendReply(t *testing.T) {
	want := (&Reply{Data: []byte("data")}).Append([]byte("before"))
	got := AppendReply([]byte("before"), func(b []byte) []byte { return append(b, "data"...) })
	if !bytes.Equal(want, got) {
		t.Errorf("%x, want %x", got, want)
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

// A Renew whose names could change more than one line of a file is refused.
func TestRenewForm(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for _, m := range []Renew{
		{MachineID: id}, {Hostname: strings.Repeat("a", 65), MachineID: id}, {Hostname: "a b", MachineID: id},
		{Hostname: "a\n", MachineID: id}, {Hostname: "é", MachineID: id}, {Hostname: "a"}, {Hostname: "a", MachineID: id + "0"},
		{Hostname: "a", MachineID: strings.ToUpper(id)}, {Hostname: "a", MachineID: id[:31] + "\n"},
	} {
		if m.Valid() || new(Renew).Decode(m.Append(nil)) == nil {
			t.Errorf("host name %q and machine id %q are accepted", m.Hostname, m.MachineID)
		}
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

func TestFileEvents(t *testing.T) {
	want := []FileEvent{{FileCreated, "a/é"}, {FileEventsLost, ""}, {FileChmod, strings.Repeat("x", MaxEventPath)}}
	var b []byte
	for _, e := range want {
		b = AppendFileEvent(b, e)
	}
	r := bytes.NewReader(b)
	for _, e := range want {
		if got, err := ReadFileEvent(r); err != nil || got != e {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, err := ReadFileEvent(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for i := range len(AppendFileEvent(nil, want[0])) {
		if _, err := ReadFileEvent(bytes.NewReader(b[:i])); err == nil || (err == io.EOF) != (i == 0) {
			t.Errorf("%d bytes of an event: %v", i, err)
		}
	}
	for _, bad := range []FileEvent{{0, ""}, {FileEventsLost + 1, ""}, {FileCreated, strings.Repeat("x", MaxEventPath+1)}} {
		if _, err := ReadFileEvent(bytes.NewReader(AppendFileEvent(nil, bad))); err == nil {
			t.Errorf("accepted: %d, %d bytes", bad.Op, len(bad.Path))
		}
	}
}

func TestHeader(t *testing.T) {
	good := Header{Length: MaxPayload, Type: TypeAdopt, FDs: MaxFDs, ID: 1 << 31}
	if h, err := ParseHeader(AppendHeader(nil, good)); err != nil || h != good {
		t.Errorf("got %v, %v", h, err)
	}
	for name, h := range map[string]Header{
		"too long":     {Length: MaxPayload + 1, Type: TypeHello},
		"no type":      {},
		"unknown type": {Type: TypeSaveFiles + 1},
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
	f.Add(AppendListing(nil, true, []FileInfo{{Name: "a"}}))
	f.Add(AppendPaths(nil, []string{"a", ""}))
	f.Add(contents(someContents))
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
		if whole, infos, err := DecodeListing(b); err == nil && !bytes.Equal(AppendListing(nil, whole, infos), b) {
			t.Errorf("listing: %x is not what it encodes to", b)
		}
		if paths, err := DecodePaths(b); err == nil && !bytes.Equal(AppendPaths(nil, paths), b) {
			t.Errorf("paths: %x is not what they encode to", b)
		}
		if all, err := DecodeFileContents(b); err == nil && !bytes.Equal(contents(all), b) {
			t.Errorf("file contents: %x is not what they encode to", b)
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

var someContents = []FileContent{{Complete: true, Bytes: []byte("all")}, {Errno: 2, Bytes: []byte{}}, {Bytes: []byte("a part")}}

func contents(all []FileContent) (b []byte) {
	for _, c := range all {
		b = AppendFileContent(b, c)
	}
	return b
}

// A Reply for several files decodes to the encoded value, and is refused if it is truncated at any
// place.
func TestMany(t *testing.T) {
	infos := []FileInfo{{Name: "a", Size: 1, MTime: -1}, {Name: "b", Target: "c"}}
	paths := []string{"/a", "", "c"}
	listing, names, files := AppendListing(nil, true, infos), AppendPaths(nil, paths), contents(someContents)
	whole, gotInfos, err := DecodeListing(listing)
	if d := cmp.Diff(infos, gotInfos); d != "" || err != nil || !whole {
		t.Errorf("%v, %v: %s", whole, err, d)
	}
	gotPaths, err := DecodePaths(names)
	if d := cmp.Diff(paths, gotPaths); d != "" || err != nil {
		t.Errorf("%v: %s", err, d)
	}
	gotFiles, err := DecodeFileContents(files)
	if d := cmp.Diff(someContents, gotFiles); d != "" || err != nil {
		t.Errorf("%v: %s", err, d)
	}
	for i := range listing {
		if _, _, err := DecodeListing(listing[:i]); err == nil {
			t.Errorf("a listing was accepted with %d of %d bytes", i, len(listing))
		}
	}
	for i := range names {
		if _, err := DecodePaths(names[:i]); err == nil {
			t.Errorf("paths were accepted with %d of %d bytes", i, len(names))
		}
	}
	if _, _, err := DecodeListing(append([]byte{2}, listing[1:]...)); err == nil {
		t.Error("a listing that is neither whole nor not was accepted")
	}
	for _, i := range []int{1, len(files) - 1} {
		if _, err := DecodeFileContents(files[:i]); err == nil {
			t.Errorf("file contents were accepted with %d of %d bytes", i, len(files))
		}
	}
}
