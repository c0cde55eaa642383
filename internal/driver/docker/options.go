package docker

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// The driver's options.
const (
	optionHost     = "host"
	optionContext  = "context"
	optionCertPath = "cert_path"
	optionImage    = "image"
	optionImages   = "images"
	optionPython   = "python_image"
	optionNode     = "node_image"
	optionNetwork  = "network"
	optionCPUs     = "cpus"
	optionMemory   = "memory"
	optionPull     = "pull"
)

// DefaultImage is the default image if the operator sets none.
const DefaultImage = "python:3.11-slim"

// defaultNode is the image of the preset "node" if the operator sets none.
const defaultNode = "node:22-slim"

// optionHelp returns the documentation of each option.
func optionHelp() map[string]string {
	return map[string]string{
		optionHost:     "address of the Docker Engine: unix:///path, tcp://host:port; default: DOCKER_HOST, the current docker context, or the socket of this machine's engine",
		optionContext:  "name of the docker context to use, instead of an address",
		optionCertPath: "directory with ca.pem, cert.pem and key.pem for a tcp address; default: DOCKER_CERT_PATH",
		optionImage:    "default image of sandboxes, a reference of the engine; default: " + DefaultImage,
		optionImages:   "further images of the engine that sandboxes may use, separated by commas; \"*\" means all",
		optionPython:   "image of the preset python if no image of that name was pulled or imported; default: the option " + optionImage,
		optionNode:     "image of the preset node if no image of that name was pulled or imported; default: " + defaultNode,
		optionNetwork:  "docker network of sandboxes with the network outbound, such as \"bridge\"; \"true\" means bridge; default: no sandbox can have that network. The daemon's rules for outbound connections do not apply to it",
		optionCPUs:     "processors of a sandbox without its own limit, such as 0.5",
		optionMemory:   "memory of a sandbox without its own limit, such as 256m",
		optionPull:     "\"missing\": when the driver starts, the engine pulls those of image and images that it lacks; \"never\" (default): it pulls nothing",
	}
}

// options are the validated options of the driver.
type options struct {
	host, context, certPath string
	image                   string
	images                  []string
	python, node            string // see preset
	network                 string
	cpus                    float64 // 0: no limit
	memory                  int64   // bytes; 0: no limit
	pull                    bool    // pull missing images
}

// anyImage in options.images allows every image the engine has.
const anyImage = "*"

// preset returns the engine's image for a preset, "" for an unknown one.
func (o options) preset(name string) string {
	switch name {
	case "python":
		return cmp.Or(o.python, o.image)
	case "node":
		return cmp.Or(o.node, defaultNode)
	}
	return ""
}

// isPreset reports whether an image of the engine is that of a preset.
func (o options) isPreset(ref string) bool {
	return ref == o.preset("python") || ref == o.preset("node")
}

// parseOptions validates the driver's section of the configuration. An unknown option or a
// malformed value is an Invalid error.
func parseOptions(raw map[string]string) (options, error) {
	known := optionHelp()
	for name := range raw {
		if _, ok := known[name]; !ok {
			return options{}, badOption(name, "there is no such option", "it has "+strings.Join(optionNames(), ", "))
		}
	}
	o := options{host: raw[optionHost], context: raw[optionContext], certPath: raw[optionCertPath],
		image:  raw[optionImage],
		python: raw[optionPython], node: raw[optionNode], network: raw[optionNetwork]}
	if o.host != "" && o.context != "" {
		return o, badOption(optionContext, "the options context and host exclude each other", "set one of them")
	}
	if o.image == "" {
		o.image = DefaultImage
	}
	for _, ref := range strings.Split(raw[optionImages], ",") {
		if ref = strings.TrimSpace(ref); ref != "" {
			o.images = append(o.images, ref)
		}
	}
	switch o.network {
	case "none", "false":
		o.network = ""
	case "true":
		o.network = "bridge" // the engine's default network
	}
	if o.network == "host" || strings.HasPrefix(o.network, "container:") {
		return o, badOption(optionNetwork, sandbar.Quote(o.network, 80)+" shares the network of the engine's host or of another container", "use a separate docker network, such as \"bridge\"")
	}
	switch raw[optionPull] {
	case "", "never":
	case "missing":
		o.pull = true
	default:
		return o, badOption(optionPull, sandbar.Quote(raw[optionPull], 40)+" is not known", "give \"missing\" or \"never\"")
	}
	var err error
	if o.cpus, err = parseCPUs(raw[optionCPUs]); err != nil {
		return o, err
	}
	o.memory, err = parseMemory(raw[optionMemory])
	return o, err
}

func optionNames() []string { return slices.Sorted(maps.Keys(optionHelp())) }

func badOption(name, what, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: name, Message: "option " + sandbar.Quote(name, 40) + " of the driver docker: " + what, Fix: fix}
}

// parseCPUs parses a number of CPUs; "" is none.
func parseCPUs(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < minCPUs || n > 1<<16 {
		return 0, badOption(optionCPUs, sandbar.Quote(text, 40)+" is not a number of processors", "use a number such as 0.5, at least 0.01")
	}
	return n, nil
}

// parseMemory parses a number of bytes in Docker's notation: a whole number with b, k, m or g for
// powers of 1024. "" is none.
func parseMemory(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	bad := badOption(optionMemory, sandbar.Quote(text, 40)+" is not an amount of memory", "use a whole number of bytes, or one with k, m or g, such as 256m; at least 6m")
	digits, unit := strings.TrimRight(strings.ToLower(text), "bkmgi"), int64(1)
	switch suffix := strings.ToLower(text)[len(digits):]; suffix {
	case "", "b":
	case "k", "kb", "kib":
		unit = 1 << 10
	case "m", "mb", "mib":
		unit = 1 << 20
	case "g", "gb", "gib":
		unit = 1 << 30
	default:
		return 0, bad
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit || n*unit < minMemory {
		return 0, bad
	}
	return n * unit, nil
}

// The engine's minimum limits.
const (
	minCPUs   = 0.01
	minMemory = 6 << 20
)
