package config

import (
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// field is one setting: its names, its place in a Config, its values and its documentation.
type field struct {
	path    string // in the file: "limits.default.memory"
	value   value
	initial string // the default, in the format of value.set
	instead string // what applies if there is no default, in words
	allowed string // the allowed values, in words
	doc     string // documentation, one or a few sentences
	secret  bool   // never printed, not even in an error
}

// variables returns the setting's environment variables: its own and, for some, that of the
// execution abstraction.
func (f field) variables() []string {
	names := []string{f.env()}
	for _, v := range abstractionVariables() {
		if v.path == f.path {
			names = append(names, v.name)
		}
	}
	return names
}

// env returns the setting's own environment variable.
func (f field) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(f.path, ".", "_"))
}

// envPrefix is the prefix of all of Sandbar's environment variables.
const envPrefix = "SANDBAR_"

// fields is the table of all settings, in print order, bound to c.
func (c *Config) fields() []field {
	var t []field
	add := func(fs ...field) { t = append(t, fs...) }
	add(c.listenerFields()...)
	add(c.driverFields()...)
	add(limitFields("limits.default", &c.Limits.Default, defaultLimits())...)
	add(limitFields("limits.min", &c.Limits.Min, minLimits())...)
	add(limitFields("limits.max", &c.Limits.Max, maxLimits())...)
	add(c.admissionFields()...)
	add(c.lifecycleFields()...)
	add(c.languageField())
	add(c.codeFields()...)
	add(c.templateFields()...)
	add(c.clientFields()...)
	add(c.fathomFields()...)
	add(c.executorFields()...)
	add(c.daemonFields()...)
	add(c.clientField())
	add(c.imageFields()...)
	add(c.networkFields()...)
	add(c.iiiFields()...)
	return t
}

func (c *Config) listenerFields() []field {
	return []field{
		{path: "listen", value: text(&c.Listen, checkListen), initial: "127.0.0.1:8080",
			allowed: "HOST:PORT with a port from 0 to 65535, or unix:/absolute/path",
			doc:     "The address that the daemon listens on. Port 0 picks a free port. Beyond loopback the daemon starts only with a token that you chose (token, token_file or SANDBAR_TOKEN)."},
		{path: "token", value: text(&c.Token, checkToken), secret: true,
			instead: "one made at the first start, kept in the file \"token\" of state_dir",
			allowed: "1 to 4096 visible ASCII characters",
			doc:     "The bearer token that every request needs. Prefer token_file or the variable, which keep it out of this file. Without them the daemon generates a token at its first start and stores it in the file \"token\" of state_dir."},
		{path: "token_file", value: text(&c.TokenFile, anyText),
			allowed: "the path of a file that holds the token on one line",
			doc:     "A file to read the token from, instead of token."},
		{path: "allowed_hosts", value: list{&c.AllowedHosts, checkHost},
			allowed: "a list of host names or addresses without port",
			doc:     "Further values of the Host header that the daemon accepts, besides loopback names and the address that it listens on. It refuses all others, which prevents DNS rebinding."},
		{path: "allowed_origins", value: list{&c.AllowedOrigins, checkOrigin},
			allowed: "a list of origins such as https://app.example.com",
			doc:     "Web pages that may call the daemon from a browser, beyond its own origin."},
		{path: "metrics_open", value: boolean(&c.MetricsOpen), initial: "false", allowed: "true or false",
			doc: "Whether GET /metrics answers without the token. Only possible on loopback."},
		{path: "tls.cert", value: text(&c.TLS.Cert, anyText), allowed: "the path of a PEM file; only with tls.key",
			doc: "The certificate chain for TLS. Both files are reloaded when they change. Without them the listener is plain HTTP."},
		{path: "tls.key", value: text(&c.TLS.Key, anyText), allowed: "the path of a PEM file; only with tls.cert",
			doc: "The private key of tls.cert."},
	}
}

// The values of speculation_mitigations.
const (
	On  = "on"
	Off = "off"
)

func (c *Config) driverFields() []field {
	return []field{
		{path: "driver", value: text(&c.Driver, checkName), initial: "auto",
			allowed: "auto or the name of a driver; \"sandbar doctor\" lists them",
			doc:     "The driver of sandboxes. auto is the strongest driver that works on this host, never one without isolation: if none works, the daemon does not start. local isolates nothing and is for trusted code only."},
		{path: "drivers", value: c.driversTree(), initial: "{}",
			allowed: "a map of drivers, each a map of its options",
			doc:     "Options of drivers, such as {native: {name: value}}. \"sandbar doctor\" lists all options."},
		{path: "allowed_drivers", value: list{&c.AllowedDrivers, checkName},
			allowed: "a list of names of drivers",
			doc: "Drivers that a request to the daemon may name in addition to driver, the default. The daemon opens all of them " +
				"at its start, and fails if one does not work on this host. Sandboxes of all drivers count for max_sandboxes."},
		{path: "speculation_mitigations", value: oneOf(&c.SpeculationMitigations, On, Off), initial: On, allowed: "on or off",
			doc: "Whether programs run with speculative store bypass and shared branch prediction disabled, and each sandbox by core " +
				"scheduling on cores that no other process uses at the same time, if the kernel supports it; \"sandbar doctor\" reports that. With " +
				"two hardware threads per core, a sandbox that uses one keeps the other idle. The drivers native, oci, gvisor and docker support it."},
	}
}

// halfWord is the default of disk: half of the sandbox's memory.
const halfWord = "half"

// limitDefaults are the initial texts of one set of limits.
type limitDefaults struct {
	memory, cpus, cpuShares, pids, disk, inodes, files, timeout, output string
	// the start of each documentation text
	what string
	// "unlimited" is allowed
	unlimited bool
	// "host" is an allowed number of CPUs
	hostCPUs    bool
	leastOutput int64
}

func defaultLimits() limitDefaults {
	return limitDefaults{memory: "256MiB", cpus: unlimitedWord, cpuShares: "512", pids: "128", disk: halfWord,
		inodes: "65536", files: "1024", timeout: "30s", output: "1MiB", unlimited: true, leastOutput: 1,
		what: "Default:"}
}

func minLimits() limitDefaults {
	return limitDefaults{memory: "16MiB", cpus: "0.01", cpuShares: "2", pids: "4", disk: "64KiB",
		inodes: "16", files: "16", timeout: "1ms", output: "0B", what: "Minimum that a request may set:"}
}

func maxLimits() limitDefaults {
	return limitDefaults{memory: "1GiB", cpus: "host", cpuShares: "262144", pids: "4096", disk: "4GiB",
		inodes: "1048576", files: "65536", timeout: "5m", output: "64MiB", unlimited: true, hostCPUs: true, leastOutput: 1,
		what: "Maximum that a request may set:"}
}

// The widest range of any limit. The bounds keep sums and conversions far from overflow, and are
// far above real values.
const (
	maxSize     = int64(1) << 50 // 1024 TiB
	maxCount    = int64(1) << 40
	maxDuration = 365 * 24 * time.Hour
)

func limitFields(section string, l *sandbar.Limits, d limitDefaults) []field {
	sizes := bounds[int64]{hi: maxSize}
	counts := bounds[int64]{lo: 1, hi: maxCount}
	processors := bounds[float64]{lo: 0.01, hi: 4096}
	clock := bounds[time.Duration]{lo: time.Millisecond, hi: maxDuration}
	if d.unlimited {
		sizes.words = []word[int64]{{unlimitedWord, sandbar.Unlimited}}
		counts.words = sizes.words
		processors.words = []word[float64]{{unlimitedWord, sandbar.Unlimited}}
		clock.words = []word[time.Duration]{{unlimitedWord, sandbar.Unlimited}}
	}
	if d.hostCPUs {
		processors.words = append(processors.words, word[float64]{"host", 0})
	}
	atLeast := func(lo int64) bounds[int64] { return bounds[int64]{lo, maxSize, sizes.words} }
	disk, halves := atLeast(4<<10), ""
	if d.disk == halfWord {
		disk.words = append(slices.Clip(disk.words), word[int64]{halfWord, 0})
		halves = " Files are in the sandbox's memory: with half of it, a program that fills the disk gets an error and is not killed for memory."
	}
	name := func(s string) string { return section + "." + s }
	doc := func(s string) string { return d.what + " " + s }
	return []field{
		measure(name("memory"), &l.Memory, size, atLeast(1<<20), d.memory,
			doc("memory of all programs of a sandbox together, including files in memory and swap.")),
		measure(name("cpus"), &l.CPUs, cpus, processors, d.cpus,
			doc("processor time per second of wall clock, in processors.")),
		measure(name("cpu_shares"), &l.CPUShares, count, bounds[int64]{lo: 2, hi: 262144}, d.cpuShares,
			doc("weight against other sandboxes when the processors are busy; 1024 is one normal share.")),
		measure(name("pids"), &l.PIDs, count, counts, d.pids,
			doc("processes and threads at once.")),
		measure(name("disk"), &l.Disk, size, disk, d.disk,
			doc("bytes written to all directories of a sandbox together."+halves)),
		measure(name("inodes"), &l.Inodes, count, counts, d.inodes,
			doc("the number of files, directories and links.")),
		measure(name("files"), &l.Files, count, counts, d.files,
			doc("open descriptors of one process.")),
		measure(name("timeout"), &l.Timeout, wallClock, clock, d.timeout,
			doc("wall-clock time of one execution.")),
		measure(name("output"), &l.Output, size, atLeast(d.leastOutput), d.output,
			doc("bytes of stdout and stderr together, per execution.")),
	}
}

func (c *Config) admissionFields() []field {
	return []field{
		{path: "allow_degraded", value: boolean(&c.AllowDegraded), initial: "false", allowed: "true or false",
			doc: "Whether to run programs although this host cannot enforce one of their limits. Otherwise such a request is an error. \"sandbar doctor\" reports how each limit is enforced."},
		measure("max_sandboxes", &c.MaxSandboxes, count, bounds[int64]{lo: 1, hi: 100000}, "64",
			"The maximum number of live sandboxes, including those of single executions."),
		measure("max_queue", &c.MaxQueue, count, bounds[int64]{lo: 1, hi: 1000000}, "1024",
			"The maximum number of executions that wait for a slot; further ones are refused as overload."),
		measure("queue_timeout", &c.QueueTimeout, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: 24 * time.Hour}, "1m",
			"The longest time that an execution waits for a slot."),
		measure("max_code", &c.MaxCode, size, bounds[int64]{lo: 1, hi: 64 << 20}, "1MiB",
			"The largest source text of one execution."),
		measure("max_env", &c.MaxEnv, size, bounds[int64]{lo: 1, hi: 1 << 20}, "64KiB",
			"The largest environment of one execution, names and values together."),
		measure("max_file", &c.MaxFile, size, bounds[int64]{lo: 1, hi: 1 << 50}, "16GiB",
			"The largest file that can be read from a sandbox, by its apparent size: a sparse file can be larger than the disk limit."),
	}
}

func (c *Config) lifecycleFields() []field {
	life := bounds[time.Duration]{lo: time.Second, hi: maxDuration, words: []word[time.Duration]{{"never", Never}}}
	return []field{
		measure("grace", &c.Grace, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: 5 * time.Minute}, "500ms",
			"The grace period of a cancelled program between SIGTERM and SIGKILL to everything in its sandbox."),
		measure("idle_timeout", &c.IdleTimeout, wallClock, life, "10m",
			"A long-lived sandbox without a running program or transfer for this time is stopped."),
		measure("max_lifetime", &c.MaxLifetime, wallClock, life, "24h",
			"A long-lived sandbox is stopped at this age, even if it is in use."),
		measure("replay_bytes", &c.ReplayBytes, size, bounds[int64]{lo: 4 << 10, hi: 1 << 30}, "1MiB",
			"Bytes of output kept per stream of a followed program, for clients that connect late or reconnect."),
		measure("keep_finished", &c.KeepFinished, count, bounds[int64]{lo: 1, hi: 10000}, "64",
			"Finished programs kept per sandbox, with their results and kept output."),
	}
}

func (c *Config) languageField() field {
	return field{path: "languages", value: c.languagesTree(), initial: "[]",
		allowed: "a list of maps with name, file, command and, if you like, aliases and env",
		doc: "Languages beyond python, javascript, shell and elixir, or other commands for these. command[0] is looked up in the " +
			"sandbox's PATH and \"{file}\" becomes the source file: {name: ruby, file: main.rb, command: [ruby, \"{file}\"]}."}
}

func (c *Config) fathomFields() []field {
	return []field{
		measure("fathom.disconnect_grace", &c.Fathom.DisconnectGrace, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: time.Hour}, "5s",
			"The time that executions continue after their connection broke."),
		measure("fathom.write_timeout", &c.Fathom.WriteTimeout, wallClock, bounds[time.Duration]{lo: time.Second, hi: time.Hour}, "30s",
			"A client that reads nothing from its connection for this time is disconnected."),
		measure("fathom.max_per_connection", &c.Fathom.MaxPerConnection, count, bounds[int64]{lo: 1, hi: 100000}, "256",
			"The maximum number of executions on one connection, including waiting ones."),
		measure("fathom.max_stdin", &c.Fathom.MaxStdin, size, bounds[int64]{lo: 1, hi: 64 << 20}, "1MiB",
			"The largest standard input of one execution."),
		{path: "fathom.store_code", value: boolean(&c.Fathom.StoreCode), initial: "false", allowed: "true or false",
			doc: "Whether code.store also keeps executions of the Fathom protocol, whose text advises against it."},
		{path: "fathom.network", value: boolean(&c.Fathom.Network), initial: "false", allowed: "true or false",
			doc: "Whether the programs of the Fathom protocol have an outbound network, by the rules of section network. The protocol has no field for it, so the setting applies to all programs. The daemon does not start if its driver has no network."},
	}
}

func (c *Config) executorFields() []field {
	return []field{
		measure("executor.max_json", &c.Executor.MaxJSON, size, bounds[int64]{lo: 1 << 10, hi: 1 << 30}, "16MiB",
			"The maximum of one request's body in memory, without the content of a file."),
		measure("executor.max_content", &c.Executor.MaxContent, size, bounds[int64]{lo: 1, hi: maxSize}, "16GiB",
			"The largest content of one /write_file. It goes into the sandbox as it arrives; the disk of the sandbox bounds it, too."),
		measure("executor.max_output", &c.Executor.MaxOutput, size, bounds[int64]{lo: 1 << 10, hi: 1 << 30}, "64MiB",
			"The maximum of stdout and stderr together in a response of /run. A program that writes more is killed, and the response says that it is truncated. /run_streaming has no limit."),
		measure("executor.keep_lines", &c.Executor.KeepLines, count, bounds[int64]{lo: 1, hi: 10_000_000}, "10000",
			"Lines kept of each output of a background process, for clients that connect late or reconnect."),
		measure("executor.keep_bytes", &c.Executor.KeepBytes, size, bounds[int64]{lo: 64 << 10, hi: 1 << 30}, "8MiB",
			"The most that these lines may take together, per output."),
		measure("executor.keep_finished", &c.Executor.KeepFinished, count, bounds[int64]{lo: 1, hi: 10000}, "64",
			"Finished background processes kept per sandbox, with their lines."),
		measure("executor.heartbeat", &c.Executor.Heartbeat, wallClock, bounds[time.Duration]{lo: time.Second, hi: time.Hour}, "10s",
			"The interval of heartbeats on an idle stream."),
		measure("executor.stall_timeout", &c.Executor.StallTimeout, wallClock, bounds[time.Duration]{lo: time.Second, hi: 24 * time.Hour}, "5m",
			"A client that reads nothing of a response for this time is disconnected, and the command whose output it read is killed."),
		measure("executor.max_connections", &c.Executor.MaxConnections, count, bounds[int64]{lo: 1, hi: 100000}, "1024",
			"Connections to ports of one sandbox, and commands run in it over a connection of their own, at once."),
	}
}

func (c *Config) clientField() field {
	return field{path: "url", value: text(&c.URL, checkURL),
		instead: "where listen says, as seen from this machine: http://127.0.0.1:8080",
		allowed: "http://HOST:PORT, https://HOST:PORT or unix:/absolute/path",
		doc:     "The daemon's address for client commands (create, exec, list and others). The daemon itself does not read it."}
}

func (c *Config) daemonFields() []field {
	return []field{
		{path: "log.level", value: oneOf(&c.Log.Level, "debug", "info", "warn", "error"), initial: "info",
			allowed: "debug, info, warn or error",
			doc:     "The lowest level of log lines. Logs never contain code, environment, output or secrets."},
		{path: "log.format", value: oneOf(&c.Log.Format, "text", "json"), initial: "text", allowed: "text or json",
			doc: "The format of the log lines, which go to standard error."},
		{path: "state_dir", value: text(&c.StateDir, checkDir), allowed: "an absolute path",
			instead: "/var/lib/sandbar as root, otherwise $XDG_STATE_HOME/sandbar or ~/.local/state/sandbar",
			doc:     "The directory for state that survives a reboot, such as the token. The daemon's user must own it, with mode 0700."},
		{path: "runtime_dir", value: text(&c.RuntimeDir, checkDir), allowed: "an absolute path",
			instead: "/run/sandbar as root, otherwise $XDG_RUNTIME_DIR/sandbar or sandbar-UID in the directory for temporary files",
			doc:     "The directory for state that does not survive a reboot. The daemon's user must own it, with mode 0700."},
		measure("shutdown_timeout", &c.ShutdownTimeout, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: time.Hour}, "20s",
			"The time that running executions have to finish after SIGTERM or SIGINT to the daemon."),
	}
}

func (c *Config) imageFields() []field {
	return []field{
		{path: "images.dir", value: text(&c.Images.Dir, checkDir), allowed: "an absolute path",
			instead: "the directory \"images\" of state_dir",
			doc: "The directory of the image store, for all daemons and commands of this user. As root it must be on a file system " +
				"that can show files under other ids: ext4, xfs, btrfs or tmpfs."},
		{path: "images.auto_install", value: boolean(&c.Images.AutoInstall), initial: "true", allowed: "true or false",
			doc: "Whether \"sandbar run\" pulls a missing image whose name includes the registry. Protocols have their own settings for this."},
		{path: "images.registries", value: list{&c.Images.Registries, checkRegistry},
			allowed: "a list of host names or addresses, with or without port",
			doc:     "Registries that may have private addresses: loopback, private networks, link-local. All others, and the hosts to which they redirect for layers, must have public addresses."},
		{path: "images.insecure_registries", value: list{&c.Images.InsecureRegistries, checkRegistry},
			allowed: "a list of host names or addresses, with or without port",
			doc:     "Registries without TLS; they may have private addresses too."},
		measure("images.max_bytes", &c.Images.MaxBytes, size, bounds[int64]{lo: 1 << 20, hi: maxSize}, "20GiB",
			"The most bytes one image may have, compressed or not."),
		measure("images.max_entries", &c.Images.MaxEntries, count, bounds[int64]{lo: 1, hi: 1 << 30}, "1000000",
			"The most files, directories and links the layers of one image may have together."),
		measure("images.timeout", &c.Images.Timeout, wallClock, bounds[time.Duration]{lo: time.Second, hi: 24 * time.Hour}, "30m",
			"The timeout for pulling or importing an image."),
	}
}
