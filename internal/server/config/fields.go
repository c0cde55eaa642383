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
			doc: "The address the daemon listens on. Port 0 is any free port. On anything but loopback the daemon starts only " +
				"with an operator's token (token, token_file or SANDBAR_TOKEN)."},
		{path: "token", value: text(&c.Token, checkToken), secret: true,
			instead: "one made at the first start, kept in the file \"token\" of state_dir",
			allowed: "1 to 4096 visible ASCII characters",
			doc: "The bearer token every request must carry. Prefer token_file or the variable, which do not put it in this file. " +
				"With none of them a token is made at the first start and kept in the file \"token\" of state_dir."},
		{path: "token_file", value: text(&c.TokenFile, anyText),
			allowed: "the path of a file that holds the token on one line",
			doc:     "A file to read the token from, instead of token."},
		{path: "allowed_hosts", value: list{&c.AllowedHosts, checkHost},
			allowed: "a list of host names or addresses without port",
			doc: "Host names that clients may use for the daemon, besides loopback names and the address it listens on. " +
				"Requests with any other Host header are refused, which prevents DNS rebinding."},
		{path: "allowed_origins", value: list{&c.AllowedOrigins, checkOrigin},
			allowed: "a list of origins such as https://app.example.com",
			doc:     "Origins of web pages that may call the daemon from a browser, besides its own."},
		{path: "metrics_open", value: boolean(&c.MetricsOpen), initial: "false", allowed: "true or false",
			doc: "Whether GET /metrics answers without the token. Only possible on loopback."},
		{path: "preview_domain", value: text(&c.PreviewDomain, checkHost), initial: "localhost",
			allowed: "a host name without port, of which all subdomains lead to the daemon",
			doc: "The domain of previews: port P of a sandbox has the host name P-ID.DOMAIN. Browsers resolve all names below " +
				"localhost to their own machine."},
		{path: "console", value: boolean(&c.Console), initial: "true", allowed: "true or false",
			doc: "Whether the daemon serves the browser console at /. Without it, browsers cannot log in, and no cookie is accepted."},
		{path: "e2b", value: boolean(&c.E2B), initial: "false", allowed: "true or false",
			doc: "Whether the daemon also serves the E2B protocol, on the same address, for E2B's SDKs. Then requests with an " +
				"X-API-KEY or E2b-Sandbox-Id header are of that protocol, and ports of its sandboxes are open to everybody who has their host name."},
		{path: "e2b_domain", value: text(&c.E2BDomain, checkHost), initial: "localhost",
			allowed: "a host name without port, of which all subdomains lead to the daemon",
			doc:     "The domain of the E2B protocol's host names: port P of a sandbox is P-ID.DOMAIN. It can be that of previews."},
		{path: "peers.addresses", value: list{&c.Peers.Addresses, anyText},
			allowed: "a list of URLs such as http://10.0.0.2:8080, or one such as dns+http://NAME:8080",
			doc: "The other daemons behind the same load balancer. A request for a sandbox of another daemon is forwarded to it, and " +
				"lists have the sandboxes of all. With dns+ all addresses of the name are daemons. All need the same token, of the operator."},
		{path: "peers.ca", value: text(&c.Peers.CA, anyText), allowed: "the path of a PEM file", instead: "the system's certificates",
			doc: "The certificates that those of the other daemons are checked with, for addresses with https."},
		{path: "tls.cert", value: text(&c.TLS.Cert, anyText), allowed: "the path of a PEM file; only with tls.key",
			doc: "The certificate chain for TLS. Both files are read again when they change. Without them the listener is plain HTTP."},
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
			doc: "The driver of sandboxes. auto selects the strongest driver that works on this host, and never one without " +
				"isolation: if none works, the daemon does not start. local isolates nothing and is for trusted code only."},
		{path: "drivers", value: c.driversTree(), initial: "{}",
			allowed: "a map of drivers, each a map of its options",
			doc:     "Options of drivers, such as {native: {name: value}}. \"sandbar doctor\" lists all options."},
		{path: "allowed_drivers", value: list{&c.AllowedDrivers, checkName},
			allowed: "a list of names of drivers",
			doc: "Drivers that a request to the daemon may name besides driver, which is the default. The daemon starts all of " +
				"them, and exits if one does not work on this host. Sandboxes of all drivers share the slots of max_sandboxes."},
		{path: "speculation_mitigations", value: oneOf(&c.SpeculationMitigations, On, Off), initial: On, allowed: "on or off",
			doc: "Whether programs run with speculative store bypass and indirect branch speculation disabled, and each sandbox on processor " +
				"cores that nothing else uses at that moment, if the kernel supports it; \"sandbar doctor\" reports it. On processors with two " +
				"threads per core, a sandbox that uses one thread keeps the other idle. The drivers native, oci, gvisor and docker support it."},
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
		what: "The default per sandbox or execution:"}
}

func minLimits() limitDefaults {
	return limitDefaults{memory: "16MiB", cpus: "0.01", cpuShares: "2", pids: "4", disk: "64KiB",
		inodes: "16", files: "16", timeout: "1ms", output: "0B", what: "The smallest value a request may ask for:"}
}

func maxLimits() limitDefaults {
	return limitDefaults{memory: "1GiB", cpus: "host", cpuShares: "262144", pids: "4096", disk: "4GiB",
		inodes: "1048576", files: "65536", timeout: "5m", output: "64MiB", unlimited: true, hostCPUs: true, leastOutput: 1,
		what: "The largest value a request may ask for:"}
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
			doc("processor time per second of wall-clock time, in processors.")),
		measure(name("cpu_shares"), &l.CPUShares, count, bounds[int64]{lo: 2, hi: 262144}, d.cpuShares,
			doc("weight against other sandboxes when the processors are busy; 1024 is the default weight of a control group.")),
		measure(name("pids"), &l.PIDs, count, counts, d.pids,
			doc("concurrent processes and threads.")),
		measure(name("disk"), &l.Disk, size, disk, d.disk,
			doc("bytes written to all directories of a sandbox together."+halves)),
		measure(name("inodes"), &l.Inodes, count, counts, d.inodes,
			doc("files, directories and links.")),
		measure(name("files"), &l.Files, count, counts, d.files,
			doc("open file descriptors of one process.")),
		measure(name("timeout"), &l.Timeout, wallClock, clock, d.timeout,
			doc("wall-clock time of one execution.")),
		measure(name("output"), &l.Output, size, atLeast(d.leastOutput), d.output,
			doc("bytes of stdout and stderr together, per execution.")),
	}
}

func (c *Config) admissionFields() []field {
	return []field{
		{path: "allow_degraded", value: boolean(&c.AllowDegraded), initial: "false", allowed: "true or false",
			doc: "Whether to run programs if this host cannot enforce one of their limits. If false, such a request is " +
				"refused. \"sandbar doctor\" reports how each limit is enforced."},
		measure("max_sandboxes", &c.MaxSandboxes, count, bounds[int64]{lo: 1, hi: 100000}, "64",
			"Concurrent sandboxes, including those of single executions."),
		measure("max_queue", &c.MaxQueue, count, bounds[int64]{lo: 1, hi: 1000000}, "1024",
			"Executions that may wait for a slot; more are refused as overload."),
		measure("queue_timeout", &c.QueueTimeout, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: 24 * time.Hour}, "1m",
			"The longest time an execution waits for a slot."),
		measure("max_code", &c.MaxCode, size, bounds[int64]{lo: 1, hi: 64 << 20}, "1MiB",
			"The largest source text of one execution."),
		measure("max_env", &c.MaxEnv, size, bounds[int64]{lo: 1, hi: 1 << 20}, "64KiB",
			"The largest environment of one execution: bytes of all names and values."),
		measure("max_file", &c.MaxFile, size, bounds[int64]{lo: 1, hi: 1 << 50}, "16GiB",
			"The largest file that is read out of a sandbox, by its apparent size: a sparse file can be larger than the disk."),
	}
}

func (c *Config) lifecycleFields() []field {
	life := bounds[time.Duration]{lo: time.Second, hi: maxDuration, words: []word[time.Duration]{{"never", Never}}}
	return []field{
		measure("grace", &c.Grace, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: 5 * time.Minute}, "500ms",
			"The time between SIGTERM to a program and SIGKILL to everything in its sandbox."),
		measure("idle_timeout", &c.IdleTimeout, wallClock, life, "10m",
			"A long-lived sandbox without a running program or a transfer for this time is stopped."),
		measure("max_lifetime", &c.MaxLifetime, wallClock, life, "24h",
			"A long-lived sandbox is stopped at this age, even if it is in use."),
		measure("replay_bytes", &c.ReplayBytes, size, bounds[int64]{lo: 4 << 10, hi: 1 << 30}, "1MiB",
			"Output kept per stream of a followed program, for readers that connect late or again."),
		measure("keep_finished", &c.KeepFinished, count, bounds[int64]{lo: 1, hi: 10000}, "64",
			"Finished programs kept per sandbox, with their results and output."),
		{path: "paused.dir", value: text(&c.Paused.Dir, checkDir), allowed: "an absolute path",
			instead: "the directory \"paused\" of state_dir",
			doc: "The directory of paused sandboxes, for one daemon. It must belong to the daemon's user and have mode 0700. " +
				"A paused sandbox takes as much space as it has used memory."},
		measure("paused.max", &c.Paused.Max, count, bounds[int64]{lo: 1, hi: 100000}, "64",
			"Paused sandboxes that the daemon keeps. Beyond it a sandbox cannot be paused."),
		measure("paused.max_bytes", &c.Paused.MaxBytes, size, bounds[int64]{lo: 1 << 20, hi: maxSize}, "16GiB",
			"The space on disk of all paused sandboxes together."),
		measure("paused.client_share", &c.Paused.ClientShare, count, bounds[int64]{lo: 1, hi: 100}, "25",
			"The percentage of paused.max and of paused.max_bytes that the paused sandboxes of one client in clients, or of one tenant, can take. The daemon's own token can use all."),
		{path: "paused.on_shutdown", value: boolean(&c.Paused.OnShutdown), initial: "false", allowed: "true or false",
			doc: "Pause the long-lived sandboxes when the daemon shuts down, and resume them at its next start. " +
				"Those that cannot be paused are removed. If false, all are removed."},
	}
}

func (c *Config) languageField() field {
	return field{path: "languages", value: c.languagesTree(), initial: "[]",
		allowed: "a list of maps with name, file, command and optionally aliases and env",
		doc: "Languages besides python, javascript, shell and elixir, or other commands for these. command[0] is looked up in the " +
			"sandbox's PATH, and \"{file}\" stands for the source file: {name: ruby, file: main.rb, command: [ruby, \"{file}\"]}."}
}

func (c *Config) fathomFields() []field {
	return []field{
		measure("fathom.disconnect_grace", &c.Fathom.DisconnectGrace, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: time.Hour}, "5s",
			"How long executions continue after their connection was lost."),
		measure("fathom.write_timeout", &c.Fathom.WriteTimeout, wallClock, bounds[time.Duration]{lo: time.Second, hi: time.Hour}, "30s",
			"A client that reads nothing from its connection for this time is disconnected."),
		measure("fathom.max_per_connection", &c.Fathom.MaxPerConnection, count, bounds[int64]{lo: 1, hi: 100000}, "256",
			"Concurrent executions on one connection, including waiting ones."),
		measure("fathom.max_stdin", &c.Fathom.MaxStdin, size, bounds[int64]{lo: 1, hi: 64 << 20}, "1MiB",
			"The largest standard input of one execution."),
		{path: "fathom.store_code", value: boolean(&c.Fathom.StoreCode), initial: "false", allowed: "true or false",
			doc: "Whether code.store also applies to executions of the Fathom protocol, whose text advises against it."},
		{path: "fathom.network", value: boolean(&c.Fathom.Network), initial: "false", allowed: "true or false",
			doc: "Whether programs of the Fathom protocol have outbound network, by the rules of section network. The protocol has no field for it, so it applies to all of them. " +
				"The daemon does not start if its driver has no outbound network."},
	}
}

func (c *Config) executorFields() []field {
	return []field{
		measure("executor.max_json", &c.Executor.MaxJSON, size, bounds[int64]{lo: 1 << 10, hi: 1 << 30}, "16MiB",
			"The largest part of one request's body in memory. The content of a file does not count."),
		measure("executor.max_content", &c.Executor.MaxContent, size, bounds[int64]{lo: 1, hi: maxSize}, "16GiB",
			"The largest content of one /write_file. It is written to the sandbox as it arrives; the disk limit of the sandbox applies too."),
		measure("executor.max_output", &c.Executor.MaxOutput, size, bounds[int64]{lo: 1 << 10, hi: 1 << 30}, "64MiB",
			"The most stdout and stderr together in one answer of /run. A program that writes more is killed, and the answer is marked as truncated. /run_streaming has no limit."),
		measure("executor.keep_lines", &c.Executor.KeepLines, count, bounds[int64]{lo: 1, hi: 10_000_000}, "10000",
			"Lines kept of each output of a background process, for readers that connect late or again."),
		measure("executor.keep_bytes", &c.Executor.KeepBytes, size, bounds[int64]{lo: 64 << 10, hi: 1 << 30}, "8MiB",
			"The largest total size of these lines, per output."),
		measure("executor.keep_finished", &c.Executor.KeepFinished, count, bounds[int64]{lo: 1, hi: 10000}, "64",
			"Finished background processes kept per sandbox, with their lines."),
		measure("executor.heartbeat", &c.Executor.Heartbeat, wallClock, bounds[time.Duration]{lo: time.Second, hi: time.Hour}, "10s",
			"An idle stream sends a heartbeat at this interval."),
		measure("executor.stall_timeout", &c.Executor.StallTimeout, wallClock, bounds[time.Duration]{lo: time.Second, hi: 24 * time.Hour}, "5m",
			"A client that reads nothing of an answer for this time is disconnected, and the command whose output it read is killed."),
		measure("executor.max_connections", &c.Executor.MaxConnections, count, bounds[int64]{lo: 1, hi: 100000}, "1024",
			"Concurrent connections to ports of one sandbox and commands over a connection of their own."),
	}
}

func (c *Config) clientField() field {
	return field{path: "url", value: text(&c.URL, checkURL),
		instead: "the address of listen, from this machine: http://127.0.0.1:8080",
		allowed: "http://HOST:PORT, https://HOST:PORT or unix:/absolute/path",
		doc:     "The daemon's address for client commands (create, exec, list and so on). The daemon itself does not read it."}
}

func (c *Config) daemonFields() []field {
	return []field{
		{path: "log.level", value: oneOf(&c.Log.Level, "debug", "info", "warn", "error"), initial: "info",
			allowed: "debug, info, warn or error",
			doc:     "The lowest severity that is logged. Logs never contain code, environment, output or secrets."},
		{path: "log.format", value: oneOf(&c.Log.Format, "text", "json"), initial: "text", allowed: "text or json",
			doc: "The format of log lines, which go to standard error."},
		{path: "audit.file", value: text(&c.Audit.File, checkDir), allowed: "an absolute path", instead: "no audit log",
			doc: "The file to which the daemon appends a line for each action of a client. Each daemon needs a file of its own."},
		measure("audit.max_size", &c.Audit.MaxSize, size, bounds[int64]{lo: 4 << 10, hi: maxSize}, "64MiB",
			"The size at which a new audit log is begun. The earlier one gets the ending .1, that one .2, and so on."),
		measure("audit.keep", &c.Audit.Keep, count, bounds[int64]{lo: 0, hi: 1000}, "10",
			"Earlier audit logs that are kept."),
		{path: "state_dir", value: text(&c.StateDir, checkDir), allowed: "an absolute path",
			instead: "/var/lib/sandbar as root, otherwise $XDG_STATE_HOME/sandbar or ~/.local/state/sandbar",
			doc:     "The directory for data that survives a reboot, such as the token. It must belong to the daemon's user and have mode 0700."},
		{path: "runtime_dir", value: text(&c.RuntimeDir, checkDir), allowed: "an absolute path",
			instead: "/run/sandbar as root, otherwise $XDG_RUNTIME_DIR/sandbar or sandbar-UID in the directory for temporary files",
			doc:     "The directory for data that does not survive a reboot. It must belong to the daemon's user and have mode 0700."},
		measure("shutdown_timeout", &c.ShutdownTimeout, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: time.Hour}, "20s",
			"How long running executions may continue after SIGTERM or SIGINT to the daemon."),
	}
}

func (c *Config) imageFields() []field {
	return []field{
		{path: "images.dir", value: text(&c.Images.Dir, checkDir), allowed: "an absolute path",
			instead: "the directory \"images\" of state_dir",
			doc: "The image store, for all daemons and commands of this user. As root it must be on a file system " +
				"with support for ID-mapped mounts: ext4, xfs, btrfs or tmpfs."},
		{path: "images.auto_install", value: boolean(&c.Images.AutoInstall), initial: "true", allowed: "true or false",
			doc: "Whether \"sandbar run\" pulls an image that is not on this host, if its name contains a registry. " +
				"Protocols have settings of their own for this."},
		{path: "images.registries", value: list{&c.Images.Registries, checkRegistry},
			allowed: "a list of host names or addresses, with or without port",
			doc: "Registries that may have private addresses: loopback, private networks, link-local. All others must have public addresses, " +
				"and so must the servers to which they redirect."},
		{path: "images.insecure_registries", value: list{&c.Images.InsecureRegistries, checkRegistry},
			allowed: "a list of host names or addresses, with or without port",
			doc:     "Registries without TLS; they may have private addresses too."},
		measure("images.max_bytes", &c.Images.MaxBytes, size, bounds[int64]{lo: 1 << 20, hi: maxSize}, "20GiB",
			"The largest size of one image, compressed or not."),
		measure("images.max_entries", &c.Images.MaxEntries, count, bounds[int64]{lo: 1, hi: 1 << 30}, "1000000",
			"The largest number of files, directories and links in all layers of one image."),
		measure("images.timeout", &c.Images.Timeout, wallClock, bounds[time.Duration]{lo: time.Second, hi: 24 * time.Hour}, "30m",
			"The time limit for pulling or importing an image."),
	}
}
