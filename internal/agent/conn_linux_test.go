package agent

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An agent exits if its host never sends a byte. After the first byte, or the end of the
// connection, it reads on.
func TestAwait(t *testing.T) {
	for name, tt := range map[string]struct {
		host  func(w *os.File) error
		bound time.Duration
		want  error
	}{
		"a host that says nothing": {func(*os.File) error { return nil }, 20 * time.Millisecond, unix.ETIMEDOUT},
		"a host that speaks":       {func(w *os.File) error { _, err := w.Write([]byte("x")); return err }, time.Hour, nil},
		"a host that goes":         {(*os.File).Close, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			if err := tt.host(w); err != nil {
				t.Fatal(err)
			}
			if err := (&conn{in: int(r.Fd())}).awaitReadable(tt.bound); err != tt.want {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
