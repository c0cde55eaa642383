package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
)

func TestAmount(t *testing.T) {
	for text, want := range map[string]Amount{"0": 0, "0.5": 0.5, "1e3": 1000, `"unlimited"`: Unlimited, "9007199254740992": 1 << 53} {
		var a Amount
		if err := json.Unmarshal([]byte(text), &a); err != nil || a != want {
			t.Errorf("%s: %v, %v", text, a, err)
		}
		b, err := json.Marshal(a)
		var back Amount
		if err != nil || json.Unmarshal(b, &back) != nil || back != want {
			t.Errorf("%s: written as %s (%v), read back as %v", text, b, err, back)
		}
	}
	for _, text := range []string{"-1", `"1"`, `"never"`, "true", "[]", "9007199254740994", "1e400", "null"} {
		a := Amount(7)
		if err := a.UnmarshalJSON([]byte(text)); err == nil || a != 7 {
			t.Errorf("%s was read as %v", text, a)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{0: 0, time.Millisecond: time.Millisecond, 90 * time.Minute: 90 * time.Minute, -1: -1, -time.Hour: -1} {
		if got := Seconds(d).Duration(); got != want {
			t.Errorf("%v comes back as %v", d, got)
		}
	}
	if d := Amount(maxAmount).Duration(); d <= 0 {
		t.Errorf("a very long time is %v", d)
	}
}

func TestLimitsComeBack(t *testing.T) {
	want := sandbar.Limits{Memory: 256 << 20, CPUs: 0.5, CPUShares: 512, PIDs: 128, Disk: 1 << 40, Inodes: 3, Files: 4, Timeout: 1500 * time.Millisecond, Output: sandbar.Unlimited}
	b, err := json.Marshal(LimitsOf(want))
	if err != nil {
		t.Fatal(err)
	}
	var back Limits
	if err := json.Unmarshal(b, &back); err != nil || back.Limits() != want {
		t.Errorf("%s: %v, %+v", b, err, back.Limits())
	}
}

func TestErrorComesBack(t *testing.T) {
	cause := &sandbar.Error{Code: sandbar.NoSpace, Field: "disk", Message: "full", Fix: "make room", Err: errors.New("ENOSPC")}
	b, err := json.Marshal(ErrorOf(cause))
	if err != nil || string(b) != `{"error":{"code":"no_space","message":"full: ENOSPC","fix":"make room","field":"disk"}}` {
		t.Errorf("%s, %v", b, err)
	}
	var back Error
	if err := json.Unmarshal(b, &back); err != nil || back.Err().Error() != cause.Error() || sandbar.CodeOf(back.Err()) != sandbar.NoSpace {
		t.Errorf("%v: %v", err, back.Err())
	}
}

func TestFrames(t *testing.T) {
	var b []byte
	large := bytes.Repeat([]byte("x"), MaxFrame)
	b = Append(b, Stdout, []byte("hello"))
	b = Append(b, Stdin, nil)
	b = AppendCredit(b, 77)
	b = Append(b, Stderr, large)
	r := NewReader(bytes.NewReader(b))
	for _, want := range []struct {
		kind Kind
		data []byte
	}{{Stdout, []byte("hello")}, {Stdin, nil}, {Credit, []byte{0, 0, 0, 77}}, {Stderr, large}} {
		k, data, err := r.Next()
		if err != nil || k != want.kind || !bytes.Equal(data, want.data) {
			t.Fatalf("%c of %d bytes, %v; want %c", k, len(data), err, want.kind)
		}
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestBadFrames(t *testing.T) {
	for name, b := range map[string]string{
		"cut header": "o\x00\x00", "cut data": "o\x00\x00\x00\x05abc", "header alone": "o\x00\x00\x00\x05", "too large": "o\x00\x10\x00\x01" + strings.Repeat("x", MaxFrame+1),
	} {
		if _, _, err := NewReader(strings.NewReader(b)).Next(); err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, data := range [][]byte{nil, {1}, {0, 0, 0, 0, 1}, {255, 255, 255, 255}} {
		if n, err := CreditOf(data); err == nil {
			t.Errorf("credit %v is %d", data, n)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Append(nil, Stdout, []byte("hello")))
	f.Add(AppendCredit(Append(nil, Stdin, nil), 1))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		var again []byte
		for {
			k, data, err := r.Next()
			if err != nil {
				break
			}
			again = Append(again, k, data)
		}
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%q was read as %q", b, again)
		}
	})
}
