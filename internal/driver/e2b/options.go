package e2b

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// The driver's options.
const (
	optionKey        = "api_key"
	optionDomain     = "domain"
	optionAPIURL     = "api_url"
	optionSandboxURL = "sandbox_url"
	optionTemplate   = "template"
	optionTimeout    = "timeout"
	optionInternet   = "internet"
)

const (
	defaultDomain   = "e2b.app"
	defaultTemplate = "base"
	defaultTimeout  = 5 * time.Minute
	// minTimeout is the shortest timeout: the driver extends it three times before it passes.
	minTimeout = 15 * time.Second
	maxTimeout = 24 * time.Hour
)

// optionHelp returns the documentation of each option.
func optionHelp() map[string]string {
	return map[string]string{
		optionKey:        "API key of the service; the variable E2B_API_KEY sets it",
		optionDomain:     "domain of the service (E2B_DOMAIN); default: " + defaultDomain,
		optionAPIURL:     "URL of the control plane (E2B_API_URL); default: https://api.DOMAIN",
		optionSandboxURL: "URL of all sandboxes (E2B_SANDBOX_URL); default: each sandbox has a host name of its own, as the service says",
		optionTemplate:   "template of sandboxes without an image; default: " + defaultTemplate,
		optionTimeout:    "time after which the service removes the sandboxes of a daemon that is gone, from 15s to 24h; default: 5m",
		optionInternet:   "true: sandboxes may have the network outbound, which is the service's internet access. The daemon's rules for outbound connections do not apply to it; default: false",
	}
}

// options are the validated options of the driver.
type options struct {
	key      string
	domain   string
	api      *url.URL
	sandbox  *url.URL // nil: by host name
	template string
	timeout  time.Duration
	internet bool
}

// parseOptions validates the driver's section of the configuration. An unknown option or a
// malformed value is an Invalid error, which does not contain the key.
func parseOptions(raw map[string]string) (options, error) {
	known := optionHelp()
	for name := range raw {
		if _, ok := known[name]; !ok {
			return options{}, badOption(name, "there is no such option", "it has "+strings.Join(optionNames(), ", "))
		}
	}
	o := options{key: raw[optionKey], domain: cmp.Or(raw[optionDomain], defaultDomain), template: cmp.Or(raw[optionTemplate], defaultTemplate), timeout: defaultTimeout}
	if o.key == "" {
		return o, &sandbar.Error{Code: sandbar.Unsupported, Field: optionKey, Message: "the driver e2b has no API key", Fix: "set E2B_API_KEY"}
	}
	if strings.ContainsFunc(o.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return o, badOption(optionKey, "it has characters that no key has", "check E2B_API_KEY for spaces and line ends")
	}
	if !isHost(o.domain) {
		return o, badOption(optionDomain, sandbar.Quote(o.domain, 80)+" is not a host name", "give a name such as "+defaultDomain)
	}
	var err error
	if o.api, err = parseURL(optionAPIURL, cmp.Or(raw[optionAPIURL], "https://api."+o.domain)); err != nil {
		return o, err
	}
	if text := raw[optionSandboxURL]; text != "" {
		if o.sandbox, err = parseURL(optionSandboxURL, text); err != nil {
			return o, err
		}
	}
	if text := raw[optionTimeout]; text != "" {
		if o.timeout, err = time.ParseDuration(text); err != nil || o.timeout < minTimeout || o.timeout > maxTimeout {
			return o, badOption(optionTimeout, sandbar.Quote(text, 40)+" is not a time from 15s to 24h", "give one such as 5m")
		}
	}
	switch raw[optionInternet] {
	case "", "false":
	case "true":
		o.internet = true
	default:
		return o, badOption(optionInternet, sandbar.Quote(raw[optionInternet], 40)+" is neither true nor false", "give true or false")
	}
	return o, nil
}

// parseURL parses the URL of a service.
func parseURL(option, text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, badOption(option, "it is not the URL of a service", "give one such as https://api."+defaultDomain+", without a user, a query or a fragment")
	}
	return u, nil
}

// isHost reports whether s is a host name, with or without a port.
func isHost(s string) bool {
	return s != "" && len(s) <= 260 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-:", r)
	})
}

func optionNames() []string { return slices.Sorted(maps.Keys(optionHelp())) }

func badOption(name, what, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: name, Message: "option " + sandbar.Quote(name, 40) + " of the driver e2b: " + what, Fix: fix}
}
