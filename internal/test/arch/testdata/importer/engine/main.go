// A program of another module: an engine with every setting that has a type of Sandbar's.
package main

import (
	"context"
	"fmt"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

func newEngine(d driver.Driver) (*engine.Engine, error) {
	languages, err := lang.New(append(lang.Default(), lang.Language{Name: "awk", File: "main.awk", Command: []string{"awk", "-f", "{file}"}})...)
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Config{
		Driver: d, ExtraDrivers: []engine.ExtraDriver{{Driver: d}}, Languages: languages,
		Default: sandbar.Limits{Memory: 64 << 20}, Clients: map[string]engine.ClientLimits{"a": {}},
		Templates: []engine.Template{{Language: "python", Min: 1}},
		Vet:       func(context.Context, driver.Sandbox, lang.Language, string) error { return nil },
		Record: func(j sandbar.Job, s engine.Sink) (engine.Sink, func(sandbar.Result, error)) {
			return s, nil
		},
		Observe: func(engine.Observation) {},
	})
}

func main() {
	_, err := newEngine(nil)
	fmt.Println(sandbar.CodeOf(err))
}
