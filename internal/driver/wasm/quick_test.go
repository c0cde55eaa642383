package wasm

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

func TestQuick(t *testing.T) {
	d, err := New(driver.Host{Options: map[string]string{"modules": "../../wasm/artefact", "cache": "/tmp/wasmcache"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	t0 := time.Now()
	sb, err := d.Create(ctx, sandbar.NewID(), sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("create", time.Since(t0))
	defer sb.Destroy(ctx)
	lang := os.Getenv("L")
	if lang == "" {
		lang = "python3"
	}
	for range 3 {
		t0 = time.Now()
		var out, errs bytes.Buffer
		p, err := sb.Start(ctx, sandbar.Cmd{Args: []string{lang, "-c", os.Getenv("PY")}}, driver.Stdio{Stdout: &out, Stderr: &errs})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Wait()
		t.Logf("%v %+v %v\n%s%s", time.Since(t0), r, err, out.String(), errs.String())
	}
}
