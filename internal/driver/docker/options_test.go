package docker

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
)

func TestParseOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		raw   map[string]string
		want  options
		field string // of the error, "" for none
	}{
		"nothing": {nil, options{image: DefaultImage}, ""},
		"everything": {map[string]string{optionHost: "tcp://h:2376", optionCertPath: "/c", optionImage: "a:1", optionImages: " b:2, c ,", optionNetwork: "bridge", optionCPUs: "0.5", optionMemory: "256m"},
			options{host: "tcp://h:2376", certPath: "/c", image: "a:1", images: []string{"b:2", "c"}, network: "bridge", cpus: 0.5, memory: 256 << 20}, ""},
		"presets":                  {map[string]string{optionPython: "p:1", optionNode: "n:1"}, options{image: DefaultImage, python: "p:1", node: "n:1"}, ""},
		"no network":               {map[string]string{optionNetwork: "none"}, options{image: DefaultImage}, ""},
		"a network or not, yes":    {map[string]string{optionNetwork: "true"}, options{image: DefaultImage, network: "bridge"}, ""},
		"a network or not, no":     {map[string]string{optionNetwork: "false"}, options{image: DefaultImage}, ""},
		"unknown":                  {map[string]string{"colour": "blue"}, options{}, "colour"},
		"two engines":              {map[string]string{optionHost: "unix:///x", optionContext: "c"}, options{}, optionContext},
		"the host's network":       {map[string]string{optionNetwork: "host"}, options{}, optionNetwork},
		"a neighbour's network":    {map[string]string{optionNetwork: "container:abc"}, options{}, optionNetwork},
		"no number of processors":  {map[string]string{optionCPUs: "half"}, options{}, optionCPUs},
		"no processors":            {map[string]string{optionCPUs: "0"}, options{}, optionCPUs},
		"NaN processors":           {map[string]string{optionCPUs: "NaN"}, options{}, optionCPUs},
		"too little memory":        {map[string]string{optionMemory: "5m"}, options{}, optionMemory},
		"memory of nothing":        {map[string]string{optionMemory: "m"}, options{}, optionMemory},
		"memory beyond numbers":    {map[string]string{optionMemory: "99999999999g"}, options{}, optionMemory},
		"memory in a strange unit": {map[string]string{optionMemory: "256mm"}, options{}, optionMemory},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseOptions(tt.raw)
			if tt.field != "" {
				if e := sandbar.AsError(err); sandbar.CodeOf(err) != sandbar.Invalid || e.Field != tt.field || e.Fix == "" {
					t.Errorf("%v, want an Invalid error of %s", err, tt.field)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "8388608": 8 << 20, "8388608b": 8 << 20, "16384k": 16 << 20, "16K": -1, "256m": 256 << 20, "256MB": 256 << 20, "256MiB": 256 << 20, "1g": 1 << 30, "1.5g": -1, "-1": -1, "0": -1} {
		got, err := parseMemory(text)
		if want < 0 != (err != nil) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

// Every option is parsed and has a help text.
func TestOptionHelp(t *testing.T) {
	names := optionNames()
	if !slices.IsSorted(names) || len(names) != 11 {
		t.Errorf("the options are %v", names)
	}
	for _, name := range names {
		if optionHelp()[name] == "" {
			t.Errorf("option %s has no help", name)
		}
	}
}
