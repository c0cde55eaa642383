package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/client/fathom"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// An execution of Fathom belongs to the tenant of its connection: another tenant sees neither its
// load nor its events, and cannot take its id. A read-only token gets no connection.
func TestTenantsFathom(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	dir := t.TempDir()
	a, b := tokensOf(t, dir, "a"), tokensOf(t, dir, "b")
	d := nativeDaemon(t, dir)
	ctx := within(t, 2*time.Minute)
	dial := func(token string) *fathom.Client {
		c, err := fathom.New(fathom.Options{URL: "http://" + d.addr, Token: token, GiveUp: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for who, token := range map[string]string{"a": a["read-only"], "b": b["read-only"]} {
		if _, err := dial(token).Execute(ctx, fathom.Request{Language: "python", Code: "1"}, nil); err == nil {
			t.Errorf("a reader of %s has executed a program", who)
		}
	}
	began, end := make(signal), make(chan error, 1)
	go func() {
		_, err := dial(a["user"]).Execute(ctx, fathom.Request{ID: "same", Language: "python", Code: "print(1, flush=True); import time; time.sleep(3)"}, func(fathom.Message) error {
			began.Write(nil)
			return nil
		})
		end <- err
	}()
	<-began
	other := dial(b["admin"])
	if load, err := other.Ping(ctx); err != nil || load != (fathom.Load{}) {
		t.Errorf("another tenant sees the load %+v, %v", load, err)
	}
	if load, err := dial(token).Ping(ctx); err != nil || load == (fathom.Load{}) {
		t.Errorf("the operator sees the load %+v, %v", load, err)
	}
	if r, err := other.Execute(ctx, fathom.Request{ID: "same", Language: "python", Code: "print(2)"}, nil); err != nil || strings.TrimSpace(string(r.Status)) != "completed" {
		t.Errorf("an execution with the id of another tenant's: %+v, %v", r, err)
	}
	if err := <-end; err != nil {
		t.Error(err)
	}
	d.endClean(t)
}
