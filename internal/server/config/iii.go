package config

import (
	"errors"
	"net/url"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// III has the settings of the iii protocol. Listen, Open and Sandboxes are for the engine's side,
// Worker for the worker's side. The others are for both, with the names and defaults of the
// iii-sandbox worker.
type III struct {
	Listen    string // "" for no listener
	Open      bool
	Sandboxes bool
	Driver    string // "" for the setting driver; AutoDriver for IIIMachines where KVM works
	Presets   string // PresetsAuto, PresetsHost or PresetsImage
	Worker    IIIWorker

	AutoInstall                 bool
	ImageAllowlist              []string
	DefaultIdleTimeoutSecs      int64
	MaxConcurrentSandboxes      int64
	MaxConcurrentExecPerSandbox int64
	MaxExecTimeoutMS            int64
	DefaultCPUs                 int64
	DefaultMemoryMB             int64
	PerImageCaps                map[string]ImageCaps
	CustomImages                map[string]string
}

// IIIMachines is the driver that iii.driver: auto prefers.
const IIIMachines = "vm"

// The values of III.Presets: what the presets python and node are if no image of that name is
// installed.
const (
	PresetsAuto  = "auto"  // PresetsHost with AutoInstall, otherwise PresetsImage
	PresetsHost  = "host"  // the host's own programs, or the driver's
	PresetsImage = "image" // only the image
)

// StandsIn reports whether a preset may be something other than an image of its name.
func (i *III) StandsIn() bool {
	return i.Presets == PresetsHost || i.Presets == PresetsAuto && i.AutoInstall
}

// ImageCaps bounds the resources of sandboxes of one image.
type ImageCaps struct{ MaxCPUs, MaxMemoryMB int64 }

// IIIWorker has the address and token with which a worker joins an iii engine.
type IIIWorker struct {
	Engine    string // "" if not set
	Name      string
	Token     string // "" if not set here; see III.WorkerToken
	TokenFile string
}

// Words and bounds of settings whose names contain their unit.
const (
	yearSecs = int64(365 * 24 * 60 * 60)
	maxCPUs  = int64(4096)
	maxMiB   = maxSize >> 20
)

func (c *Config) iiiFields() []field {
	return slices.Concat([]field{
		{path: "iii.listen", value: text(&c.III.Listen, checkIIIListen), instead: "nothing: the protocol is not served",
			allowed: "HOST:PORT with a port from 0 to 65535, or unix:/absolute/path",
			doc: "The address of the iii engine for its SDKs, whose default is 127.0.0.1:49134. " +
				"On anything but loopback the daemon starts only with an operator's token."},
		{path: "iii.open", value: boolean(&c.III.Open), initial: "true", allowed: "true or false",
			doc: "Whether clients on this machine need no token, because SDKs send none by themselves. Web pages never have access. " +
				"Beyond loopback the token is always needed."},
		{path: "iii.sandboxes", value: boolean(&c.III.Sandboxes), initial: "true", allowed: "true or false",
			doc: "Whether the engine offers the daemon's own sandboxes. With false it offers only those of workers that connect, such as " +
				"\"sandbar worker\" on other machines."},
		{path: "iii.driver", value: text(&c.III.Driver, anyText), instead: "the setting driver",
			allowed: "auto, or a driver of the settings driver and allowed_drivers",
			doc: "The driver of the sandboxes of this protocol. auto is vm, with which each sandbox is a virtual machine as in the protocol's text, " +
				"if qemu and a kernel are prepared (\"sandbar vm setup\") and a machine boots on KVM; otherwise the setting driver. " +
				"Requests of other protocols may then name vm too. The log and \"sandbar doctor\" tell the reason."},
		{path: "iii.presets", value: oneOf(&c.III.Presets, PresetsAuto, PresetsHost, PresetsImage), initial: PresetsAuto,
			allowed: "auto, host or image",
			doc: "The meaning of the images python and node if no image of that name was pulled or imported: with \"host\" this host's own programs, " +
				"or those of the driver; with \"image\" the image, which auto_install pulls. auto is host with auto_install, and image " +
				"without. \"sandbar doctor\" and sandbox::catalog::list show the result."},
	}, c.iiiSandboxFields(), c.iiiWorkerFields())
}

// iiiSandboxFields are the settings that the iii-sandbox worker has too.
func (c *Config) iiiSandboxFields() []field {
	i := &c.III
	number := func(name string, at *int64, lo, hi int64, initial, doc string) field {
		return measure("iii."+name, at, count, bounds[int64]{lo: lo, hi: hi}, initial, doc)
	}
	return []field{
		{path: "iii.auto_install", value: boolean(&i.AutoInstall), initial: "true", allowed: "true or false",
			doc: "Whether an image that is not on this host is pulled when it is first used."},
		{path: "iii.image_allowlist", value: list{&i.ImageAllowlist, anyText}, allowed: "a list of names: python, node, or of custom_images",
			doc: "The names of the images that requests may use. An empty list allows none."},
		number("default_idle_timeout_secs", &i.DefaultIdleTimeoutSecs, 0, yearSecs, "300",
			"Default idle timeout: seconds without a program or file operation until a sandbox is stopped."),
		number("max_concurrent_sandboxes", &i.MaxConcurrentSandboxes, 0, 100000, "32",
			"Concurrent sandboxes over iii; more are refused. max_sandboxes bounds all protocols together."),
		number("max_concurrent_exec_per_sandbox", &i.MaxConcurrentExecPerSandbox, 0, 10000, "4",
			"Concurrent programs in one sandbox; more are refused. 0 means 1."),
		number("max_exec_timeout_ms", &i.MaxExecTimeoutMS, 0, yearSecs*1000, "300000",
			"The largest time limit of one program, in milliseconds. A larger request is reduced to it."),
		number("default_cpus", &i.DefaultCPUs, 1, maxCPUs, "1",
			"Default number of processors of a sandbox."),
		number("default_memory_mb", &i.DefaultMemoryMB, 1, maxMiB, "512",
			"Default memory of a sandbox, in MiB."),
		{path: "iii.per_image_caps", value: i.capsTree(), initial: "{}",
			allowed: "a map of images, each a map with max_cpus and max_memory_mb; a missing one is 0, which allows no request",
			doc:     "The largest values that requests may ask for, by image: {python: {max_cpus: 2, max_memory_mb: 2048}}."},
		{path: "iii.custom_images", value: i.imagesTree(), initial: "{}",
			allowed: "a map of OCI references by name; the names python, node and host are taken",
			doc:     "Images besides python and node: {tools: ghcr.io/acme/tools:1.2}. They must be in image_allowlist too."},
	}
}

func (c *Config) iiiWorkerFields() []field {
	w := &c.III.Worker
	return []field{
		{path: "iii.worker.engine", value: text(&w.Engine, checkEngine),
			instead: "$III_ENGINE_URL, $III_URL, or ws://127.0.0.1:49134",
			allowed: "ws://HOST:PORT or wss://HOST:PORT",
			doc:     "The iii engine that \"sandbar worker\" joins."},
		{path: "iii.worker.name", value: text(&w.Name, checkWorkerName), initial: "iii-sandbox",
			allowed: "1 to 200 characters", doc: "The worker's name at the engine."},
		{path: "iii.worker.token", value: text(&w.Token, checkToken), secret: true,
			allowed: "1 to 4096 visible ASCII characters",
			doc: "The worker's token, which it sends as \"authorization: Bearer TOKEN\". Prefer token_file or the variable, which do not put " +
				"it in this file."},
		{path: "iii.worker.token_file", value: text(&w.TokenFile, anyText),
			allowed: "the path of a file that holds the token on one line",
			doc:     "A file to read that token from, instead of token."},
	}
}

// checkIIIListen accepts an address, or "" for none.
func checkIIIListen(s string) error {
	if s == "" {
		return nil
	}
	return checkListen(s)
}

// checkEngine accepts the URL of an iii engine.
func checkEngine(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("is not the address of an iii engine")
	}
	return nil
}

func checkWorkerName(s string) error {
	if s == "" || len(s) > 200 {
		return errors.New("is not a name")
	}
	return nil
}

// capsTree reads the caps of images.
func (i *III) capsTree() tree {
	return tree{
		clear: func() { i.PerImageCaps = map[string]ImageCaps{} },
		show: func() any {
			shown := map[string]map[string]int64{}
			for name, c := range i.PerImageCaps {
				shown[name] = map[string]int64{"max_cpus": c.MaxCPUs, "max_memory_mb": c.MaxMemoryMB}
			}
			return shown
		},
		read: func(n *yaml.Node) error {
			return namedMaps(n, func(name, caps *yaml.Node) error {
				c, err := readCaps(caps)
				i.PerImageCaps[name.Value] = c
				return err
			})
		},
	}
}

func readCaps(n *yaml.Node) (c ImageCaps, err error) {
	parts := map[string]struct {
		at *int64
		hi int64
	}{"max_cpus": {&c.MaxCPUs, maxCPUs}, "max_memory_mb": {&c.MaxMemoryMB, maxMiB}}
	err = namedMaps(n, func(key, v *yaml.Node) error {
		part, ok := parts[key.Value]
		if !ok {
			return &fault{line: key.Line, got: sandbar.Quote(key.Value, 60),
				why: "is not a cap" + didYouMean(key.Value, []string{"max_cpus", "max_memory_mb"})}
		}
		err := checkScalar(v, numberTags)
		if err == nil {
			*part.at, err = bounds[int64]{hi: part.hi}.read(count, v.Value)
		}
		if err != nil {
			return &fault{line: v.Line, got: sandbar.Quote(v.Value, 60), why: err.Error()}
		}
		return nil
	})
	return c, err
}

// imagesTree reads custom images.
func (i *III) imagesTree() tree {
	return tree{
		clear: func() { i.CustomImages = map[string]string{} },
		show:  func() any { return i.CustomImages },
		read: func(n *yaml.Node) error {
			return namedMaps(n, func(name, ref *yaml.Node) error {
				err := checkScalar(ref, textTags)
				if err == nil && (name.Value == "" || ref.Value == "") {
					err = errors.New("has no name or no reference")
				}
				if err == nil && slices.Contains([]string{"python", "node", sandbar.ImageHost}, name.Value) {
					err = errors.New("has a name that is taken")
				}
				if err != nil {
					return &fault{line: name.Line, got: sandbar.Quote(name.Value, 60), why: err.Error()}
				}
				i.CustomImages[name.Value] = ref.Value
				return nil
			})
		},
	}
}

// take applies the settings of an iii-sandbox configuration.
func (l *loader) take(from *III, where string) {
	i := &l.config.III
	own := *i
	*i = *from
	i.Listen, i.Open, i.Sandboxes, i.Presets, i.Worker = own.Listen, own.Open, own.Sandboxes, own.Presets, own.Worker
	for _, f := range l.config.iiiSandboxFields() {
		l.config.origins[f.path] = where
	}
}

// ours reports whether a document is a configuration of Sandbar: it has at least one valid
// top-level name.
func (l *loader) ours(root *yaml.Node) bool {
	if root == nil || root.Kind != yaml.MappingNode {
		return false
	}
	known := l.namesBelow("")
	for i := 0; i < len(root.Content); i += 2 {
		if slices.Contains(known, root.Content[i].Value) {
			return true
		}
	}
	return false
}

// EngineURL returns the URL of the engine: the setting, or the environment variable that the iii
// engine sets for workers that it starts, or the default address.
func (i *III) EngineURL(environ []string) (string, error) {
	if i.Worker.Engine != "" {
		return i.Worker.Engine, nil
	}
	vars := variables(environ)
	for _, name := range []string{"III_ENGINE_URL", "III_URL"} {
		if vars[name] == "" {
			continue
		}
		if err := checkEngine(vars[name]); err != nil {
			return "", &sandbar.Error{Code: sandbar.Invalid, Field: name, Message: name + ": " + sandbar.Quote(vars[name], 100) + " " + err.Error(),
				Fix: "allowed: ws://HOST:PORT or wss://HOST:PORT"}
		}
		return vars[name], nil
	}
	return "ws://127.0.0.1:" + strconv.Itoa(iiiPort), nil
}

// iiiPort is the default port of iii engines.
const iiiPort = 49134

// WorkerToken returns the token with which the worker authenticates, "" for none.
func (i *III) WorkerToken() (string, error) {
	if i.Worker.Token != "" || i.Worker.TokenFile == "" {
		return i.Worker.Token, nil
	}
	return readToken(i.Worker.TokenFile, "iii.worker.token_file")
}
