package wire

import "time"

// Status is the answer of GET /v1/status. A caller that is no operator gets the version, the load
// of its own tenant as Engine, and its own Clients.
type Status struct {
	Version    string           `json:"version"`
	Started    time.Time        `json:"started_at,omitzero"`
	Driver     string           `json:"driver,omitempty"` // the default one
	Boundary   string           `json:"boundary,omitempty"`
	Drivers    []DriverState    `json:"drivers,omitzero"`
	Engine     Load             `json:"engine"`
	ReadyPools []ReadyPool      `json:"ready_pools,omitzero"`
	Executions *Executions      `json:"executions,omitempty"`
	Errors     map[string]int64 `json:"errors,omitzero"`   // executions that the platform refused or failed, by code
	Refusals   map[string]int64 `json:"refusals,omitzero"` // requests that the listener refused, by reason
	Kills      map[string]int64 `json:"kills,omitzero"`    // programs that were killed, by reason
	Clients    []ClientLoad     `json:"clients"`
}

// The states of a driver.
const (
	DriverReady   = "ready"
	DriverSkipped = "skipped" // "auto" prefers it, and it does not work on this host
)

// DriverState is the state of one driver of the daemon.
type DriverState struct {
	Name     string `json:"name"`
	Boundary string `json:"boundary,omitempty"`
	State    string `json:"state"`
	Error    string `json:"error,omitempty"`
}

// Load is the load of the daemon, or of one tenant.
type Load struct {
	Active    int `json:"active"`    // one-shot executions with a slot
	Queued    int `json:"queued"`    // waiting for a slot
	Ready     int `json:"ready"`     // slots of prestarted sandboxes
	Sandboxes int `json:"sandboxes"` // live long-lived ones
	Removing  int `json:"removing"`  // ended sandboxes whose removal failed repeatedly
	Capacity  int `json:"capacity"`  // sandboxes that may be alive at once
}

// ReadyPool is a pool of prestarted sandboxes. Its counts are those since the start.
type ReadyPool struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	Language string `json:"language"` // "" for none
	Image    string `json:"image"`
	Ready    int    `json:"ready"`
	Wanted   int    `json:"wanted"`
	Hits     int64  `json:"hits"`   // requests that got a ready sandbox
	Misses   int64  `json:"misses"` // requests without one
	Failed   int64  `json:"failed"` // failed attempts to make one
	Lost     int64  `json:"lost"`   // that died, or failed their job
}

// Executions are programs that ended: one-shot ones, programs in sandboxes, and cells. The
// quantiles are those of their total time, over WindowSeconds; absent if none has ended then.
type Executions struct {
	Total         int64            `json:"total"` // since the start
	ByLanguage    map[string]int64 `json:"by_language"`
	ByOutcome     map[string]int64 `json:"by_outcome"`
	WindowSeconds int              `json:"window_seconds"`
	P50MS         float64          `json:"p50_ms,omitempty"`
	P95MS         float64          `json:"p95_ms,omitempty"`
	P99MS         float64          `json:"p99_ms,omitempty"`
	Rate1m        float64          `json:"rate_1m"` // per second, over the last minute
}

// ClientLoad is the load of one client of the default tenant, or of another tenant.
type ClientLoad struct {
	Name      string `json:"name"`   // "" for the daemon's own token, and for a tenant
	Tenant    string `json:"tenant"` // "default" for the default one
	Sandboxes int    `json:"sandboxes"`
	Active    int    `json:"active"`
	Queued    int    `json:"queued"`
	Memory    int64  `json:"memory_bytes"` // the memory limits of all of these together
}

// Usage is the answer of GET /v1/usage: what a tenant has of its quotas. A zero quota is none.
type Usage struct {
	Tenant    string  `json:"tenant"`
	Sandboxes int     `json:"sandboxes"` // live ones, one-shot and long-lived, and what waits for a slot
	CPUs      float64 `json:"cpus"`      // the sum of their limits, like the next two
	Memory    int64   `json:"memory_bytes"`
	Disk      int64   `json:"disk_bytes"` // and the space of paused sandboxes
	Deciding  int     `json:"deciding"`   // counted requests that other daemons are being asked about
	Quota     Quota   `json:"quota"`
}

// Quota is what a tenant may have at most. A field that is not there has no limit.
type Quota struct {
	Sandboxes int     `json:"sandboxes,omitempty"`
	CPUs      float64 `json:"cpus,omitempty"`
	Memory    int64   `json:"memory_bytes,omitempty"`
	Disk      int64   `json:"disk_bytes,omitempty"`
}

// Configuration is the answer of GET /v1/configuration.
type Configuration struct {
	Settings []Setting `json:"settings"`
}

// Setting is a setting of the daemon. Secret ones have no value.
type Setting struct {
	Name     string `json:"name"`
	Value    string `json:"value"` // in YAML; "" if it is not set, or secret
	Default  string `json:"default"`
	Source   string `json:"source"` // where it was set; "default" if it was not
	Secret   bool   `json:"secret"`
	Live     bool   `json:"live"` // SIGHUP applies a change
	Variable string `json:"variable"`
	Allowed  string `json:"allowed"`
	Help     string `json:"help"`
}

// Images is the answer of GET /v1/images.
type Images struct {
	Images  []Image  `json:"images"`
	Drivers []string `json:"drivers"` // that a sandbox can have, the default one first
}

// The sources of an image.
const (
	ImageInstalled = "installed" // it is on this host
	ImageOfHost    = "host"      // this host's own programs
	ImageOfDriver  = "driver"    // the driver has an image of its own
	ImagePull      = "pull"      // its first use pulls it
	ImageMissing   = "missing"   // nobody has pulled it
)

// Image is an image that a sandbox can be made from. ID, Size, Added and InUse are those of an
// installed one.
type Image struct {
	Name   string    `json:"name"`
	Ref    string    `json:"ref"`
	Source string    `json:"source"`
	Preset bool      `json:"preset"`
	ID     string    `json:"id,omitempty"`
	Size   int64     `json:"size_bytes,omitempty"`
	Added  time.Time `json:"added_at,omitzero"`
	InUse  bool      `json:"in_use,omitempty"`
}

// Languages is the answer of GET /v1/languages.
type Languages struct {
	Languages []Language `json:"languages"`
}

// Language is a language of executions, of contexts, or of both.
type Language struct {
	Name       string   `json:"name"`
	Aliases    []string `json:"aliases"`
	Executions bool     `json:"executions"` // source text can be executed
	Contexts   bool     `json:"contexts"`
	// Available is false if the interpreter is known to be missing in sandboxes with the defaults.
	Available bool `json:"available"`
}
