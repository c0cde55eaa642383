package engine_test

import (
	"io"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// A sandbox whose files are compared has at most 64 watches. A closed one makes room.
func TestPolledWatches(t *testing.T) {
	inBubble(t, "limit", func(t *testing.T) {
		s := newRig(t, faulty.New(), nil).create()
		files := s.FS().(sandbar.FileWatcher)
		if err := s.FS().Mkdir(t.Context(), "/tmp/w", 0, true); err != nil {
			t.Fatal(err)
		}
		watch := func() (sandbar.FileWatch, error) { return files.Watch(t.Context(), "/tmp/w", true) }
		var all []sandbar.FileWatch
		for range 64 {
			w, err := watch()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		_, err := watch()
		wantCode(t, err, sandbar.Exhausted)
		for range 2 { // closing twice counts once
			all[0].Close()
		}
		w, err := watch()
		if err != nil {
			t.Fatal(err)
		}
		_, err = watch()
		wantCode(t, err, sandbar.Exhausted)
		if err := s.FS().Mkdir(t.Context(), "/tmp/w/new", 0, false); err != nil {
			t.Fatal(err)
		}
		if e, err := w.Next(t.Context()); err != nil || e != (sandbar.FileEvent{Op: sandbar.FileCreated, Path: "new"}) {
			t.Errorf("%+v, %v", e, err)
		}
		if err := s.FS().Remove(t.Context(), "/tmp/w", true); err != nil {
			t.Fatal(err)
		}
		if e, err := w.Next(t.Context()); err != nil || e.Op != sandbar.FileRemoved {
			t.Errorf("%+v, %v", e, err)
		}
		for err = nil; err == nil; {
			_, err = w.Next(t.Context())
		}
		if err != io.EOF {
			t.Errorf("after the directory's end: %v", err)
		}
		w.Close()
		for _, w := range all {
			w.Close()
		}
	})
}
