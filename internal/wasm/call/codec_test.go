package call

import (
	"bytes"
	"testing"
)

// codec is any message of the connection.
type codec interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// messages returns each message empty and full.
func messages() [][2]codec {
	return [][2]codec{
		{&Run{}, &Run{Language: 1, Args: []string{"a", ""}, Env: []string{"A=b"}, Dir: "/home", Memory: 1 << 40}},
		{&Load{}, &Load{Language: 2}},
		{&Done{}, &Done{Code: 255, CPU: 1, Memory: -1, Denied: true, Fault: true, Text: "text"}},
		{&Request{}, &Request{Op: 3, Handle: 1<<32 - 1, Flags: 1, Mode: 0o644, Offset: -1, Size: 1, Path: "a/b", To: "c", Data: []byte("data")}},
		{&Answer{}, full()},
		{&Command{}, &Command{Args: []string{"sh"}, Env: nil, Dir: "/", Input: []byte("in")}},
	}
}

func full() *Answer {
	m := &Answer{Errno: 2, Handle: 1, Size: 2, Data: []byte{0}}
	m.Stat.Inode, m.Stat.Size, m.Stat.ATime, m.Stat.Links, m.Stat.Mode, m.Stat.Type = 1, 2, 3, 6, 7, 1
	return m
}

// Decode returns an error or a message that encodes to the same bytes. It allocates no more than
// the frame's size, whatever lengths the frame claims.
func FuzzDecode(f *testing.F) {
	for i, pair := range messages() {
		for _, m := range pair {
			f.Add(uint8(i), m.Append(nil))
		}
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), bytes.Repeat([]byte{0xff}, 64))
	}
	entry := &Entry{Name: "name", Inode: 7, Type: 1}
	f.Add(uint8(len(messages())), AppendEntry(AppendEntry(nil, entry), &Entry{}))
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		all := messages()
		if int(kind) >= len(all) {
			entries(t, payload)
			return
		}
		m := all[kind][0]
		if m.Decode(payload) != nil {
			return
		}
		again := m.Append(nil)
		if len(again) != len(payload) {
			t.Fatalf("%T: %d bytes were read, and %d are written", m, len(payload), len(again))
		}
		if err := all[kind][1].Decode(again); err != nil {
			t.Fatalf("%T: what was written cannot be read: %v", m, err)
		}
		if twice := all[kind][1].Append(nil); !bytes.Equal(again, twice) {
			t.Fatalf("%T: %x became %x", m, again, twice)
		}
	})
}

func entries(t *testing.T, payload []byte) {
	list, err := DecodeEntries(payload, nil)
	if err != nil {
		return
	}
	var again []byte
	for i := range list {
		again = AppendEntry(again, &list[i])
	}
	if !bytes.Equal(again, payload) {
		t.Fatalf("%x became %x", payload, again)
	}
}
