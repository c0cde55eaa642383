package function

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/bus"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
	"github.com/sandbar-dev/sandbar/internal/protocol/iii/settings"
)

// testEngine returns an engine over the faulty driver.
func testEngine(t testing.TB) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{Driver: faulty.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Shutdown(context.Background()) })
	return e
}

// store is an image store for tests.
type store struct {
	here map[string]Root // installed images, by name
	pull func(ctx context.Context, image settings.Image) (Root, error)
}

func (s store) Find(_ context.Context, image settings.Image) (Root, error) {
	if r, ok := s.here[image.Name]; ok {
		return r, nil
	}
	return Root{}, sandbar.Errorf(sandbar.NotFound, "image %s is not here", image.Name)
}

func (s store) Pull(ctx context.Context, image settings.Image) (Root, error) {
	if s.pull == nil {
		return Root{}, errors.New("the registry did not answer")
	}
	return s.pull(ctx, image)
}

// rig has the functions over the faulty driver.
type rig struct {
	*Functions
	t      testing.TB
	driver *faulty.Driver
	engine *engine.Engine
	hub    *channel.Hub
	all    map[string]bus.Function
}

// newRig returns the functions; at the test's end it checks for leaks.
func newRig(t testing.TB, o Options, change func(*settings.Config), prepare ...func(*faulty.Driver)) *rig {
	t.Helper()
	r := &rig{t: t, driver: faulty.New(), hub: channel.NewHub(channel.Options{}), all: map[string]bus.Function{}}
	for _, f := range prepare {
		f(r.driver)
	}
	var err error
	if r.engine, err = engine.New(engine.Config{Driver: r.driver}); err != nil {
		t.Fatal(err)
	}
	o.Engine, o.Config = r.engine, settings.Default()
	o.Config.ImageAllowlist = []string{"python", "node"}
	if change != nil {
		change(&o.Config)
	}
	if o.Images == nil {
		o.Images = store{here: map[string]Root{"python": {Image: "host"}, "node": {Image: "host"}}}
	}
	if r.Functions, err = New(o); err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Handlers(r.hub) {
		r.all[h.ID] = h
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
		r.hub.Close()
		if n := r.engine.Stats().Sandboxes; n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
		r.engine.Shutdown(context.Background())
		if err := r.driver.Leaks(); err != nil {
			t.Error(err)
		}
	})
	return r
}

type object map[string]any

// do calls a function.
func (r *rig) do(ctx context.Context, name string, ask object) (object, error) {
	data, err := json.Marshal(ask)
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := r.all["sandbox::"+name].Handle(ctx, bus.Call{Data: data})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(got)
	if err != nil {
		r.t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		r.t.Fatal(err)
	}
	return o, nil
}

// call calls a function that must succeed.
func (r *rig) call(name string, ask object) object {
	r.t.Helper()
	o, err := r.do(context.Background(), name, ask)
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return o
}

// failed calls a function that must fail with a code.
func (r *rig) failed(name string, ask object, code Code) *failure {
	r.t.Helper()
	o, err := r.do(context.Background(), name, ask)
	var e *failure
	if !errors.As(err, &e) || e.code != code {
		r.t.Fatalf("%s: %v, %v; want %s", name, o, err, code)
	}
	return e
}

func (r *rig) create() string {
	r.t.Helper()
	return r.call("create", object{"image": "python"})["sandbox_id"].(string)
}
