package config

import (
	"errors"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
	"github.com/sandbar-dev/sandbar/internal/text/suggest"
)

// UnixPrefix is the prefix of a Listen that is the path of a UNIX socket.
const UnixPrefix = "unix:"

func checkListen(s string) error {
	if path, ok := strings.CutPrefix(s, UnixPrefix); ok {
		if !filepath.IsAbs(path) {
			return errors.New("is not an absolute path of a socket")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("is not HOST:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("has no port from 0 to 65535")
	}
	if host != "" && net.ParseIP(host) == nil && checkHost(host) != nil {
		return errors.New("has no valid host")
	}
	return nil
}

// checkCollector accepts the URL of a collector of traces, or "".
func checkCollector(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return nil
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("is not the URL of a collector")
	case u.User != nil:
		return errors.New("has credentials, which belong into traces.headers_file")
	case u.Fragment != "":
		return errors.New("has a fragment")
	}
	return nil
}

// checkURL accepts the URL of a daemon.
func checkURL(s string) error {
	if path, ok := strings.CutPrefix(s, UnixPrefix); ok {
		if !filepath.IsAbs(path) {
			return errors.New("is not an absolute path of a socket")
		}
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("is not the address of a daemon")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return errors.New("has more than a scheme, a host and a port")
	}
	return nil
}

// DaemonURL returns the daemon's URL for a client on this machine: URL, or one derived from Listen.
// Invalid: Listen has port 0, so the port is unknown.
func (c *Config) DaemonURL() (string, error) {
	if c.URL != "" {
		return strings.TrimSuffix(c.URL, "/"), nil
	}
	if strings.HasPrefix(c.Listen, UnixPrefix) {
		return c.Listen, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "url", Message: "where the daemon is cannot be told from listen (" + printable(c.Listen) + ")",
			Fix: "set url, SANDBAR_URL or --url"}
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// Loopback reports whether only this machine can reach Listen: a loopback address, the name
// localhost, or a UNIX socket.
func (c *Config) Loopback() bool { return Loopback(c.Listen) }

// Loopback reports whether only this machine can reach a listen address, HOST:PORT or unix:/path.
func Loopback(listen string) bool {
	if strings.HasPrefix(listen, UnixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func checkToken(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > 4096 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("is not a token")
	}
	return nil
}

// checkHost accepts a host name or an address without a port.
func checkHost(s string) error {
	if net.ParseIP(s) != nil {
		return nil
	}
	if s == "" || len(s) > 253 || strings.ContainsFunc(s, func(r rune) bool {
		return !(r == '-' || r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) {
		return errors.New("is not a host name")
	}
	return nil
}

// checkRegistry accepts a host name or an address, with or without a port.
func checkRegistry(s string) error {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("has no port from 1 to 65535")
		}
		host = h
	}
	return checkHost(host)
}

// checkOrigin accepts scheme://host[:port] and nothing after it.
func checkOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || s != u.Scheme+"://"+u.Host || checkHost(u.Hostname()) != nil {
		return errors.New("is not an origin")
	}
	return nil
}

func checkName(s string) error {
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool {
		return !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z')
	}) {
		return errors.New("is not a name")
	}
	return nil
}

// checkDir accepts an absolute path, or "" for the default.
func checkDir(s string) error {
	if s != "" && !filepath.IsAbs(s) {
		return errors.New("is not an absolute path")
	}
	return nil
}

// driversTree reads the options of drivers: a map of strings per driver.
func (c *Config) driversTree() tree {
	return tree{
		clear: func() { c.Drivers = map[string]map[string]string{} },
		show:  func() any { return withoutSecrets(c.Drivers) },
		read: func(n *yaml.Node) error {
			return namedMaps(n, func(key, options *yaml.Node) error {
				if err := checkName(key.Value); err != nil {
					return &fault{line: key.Line, got: sandbar.Quote(key.Value, 60), why: err.Error()}
				}
				c.Drivers[key.Value] = map[string]string{}
				return namedMaps(options, func(key2, v *yaml.Node) error {
					if v.Kind != yaml.ScalarNode || v.ShortTag() == "!!null" {
						return &fault{line: v.Line, got: sandbar.Quote(key2.Value, 60), why: "is " + kindName(v) + " where one value is needed"}
					}
					c.Drivers[key.Value][key2.Value] = v.Value
					return nil
				})
			})
		},
	}
}

// namedMaps calls f for the pairs of a map. null is an empty map.
func namedMaps(n *yaml.Node, f func(key, value *yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return &fault{line: n.Line, why: "is " + kindName(n) + " where a map is needed"}
	}
	return pairs(n, f)
}

// withoutSecrets replaces the values of options with names of secrets.
func withoutSecrets(drivers map[string]map[string]string) map[string]map[string]string {
	shown := map[string]map[string]string{}
	for name, options := range drivers {
		shown[name] = maps.Clone(options)
		for option := range options {
			for _, word := range []string{"token", "key", "secret", "password"} {
				if strings.Contains(strings.ToLower(option), word) {
					shown[name][option] = "(set, not shown)"
				}
			}
		}
	}
	return shown
}

// languagesTree reads additional languages.
func (c *Config) languagesTree() tree {
	return tree{
		clear: func() { c.Languages = nil },
		show: func() any {
			if len(c.Languages) == 0 {
				return []string{}
			}
			return languageMaps(c.Languages)
		},
		read: func(n *yaml.Node) error {
			if n.Kind != yaml.SequenceNode {
				return &fault{line: n.Line, why: "is " + kindName(n) + " where a list is needed"}
			}
			for _, item := range n.Content {
				l, err := readLanguage(item)
				if err != nil {
					return err
				}
				c.Languages = append(c.Languages, l)
			}
			return nil
		},
	}
}

var languageKeys = []string{"name", "aliases", "file", "command", "env"}

func readLanguage(n *yaml.Node) (lang.Language, error) {
	var l lang.Language
	if n.Kind != yaml.MappingNode {
		return l, &fault{line: n.Line, why: "holds " + kindName(n) + " where a language is needed, a map"}
	}
	targets := map[string]value{
		"name":    text(&l.Name, anyText),
		"file":    text(&l.File, anyText),
		"aliases": list{&l.Aliases, checkName},
		"command": list{&l.Command, anyText},
	}
	err := pairs(n, func(key, v *yaml.Node) error {
		var err error
		if target, ok := targets[key.Value]; ok {
			err = target.load(v)
		} else if key.Value == "env" {
			l.Env, err = readEnv(v)
		} else {
			return &fault{line: key.Line, got: sandbar.Quote(key.Value, 60),
				why: "is not a part of a language" + didYouMean(key.Value, languageKeys)}
		}
		if f, ok := errors.AsType[*fault](err); ok {
			return f
		} else if err != nil {
			return &fault{line: v.Line, got: sandbar.Quote(v.Value, 60), why: err.Error()}
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	// lang.New validates a language.
	if _, err := lang.New(l); err != nil {
		e := sandbar.AsError(err)
		return l, &fault{line: n.Line, why: "holds a faulty entry: " + e.Message}
	}
	return l, nil
}

func readEnv(n *yaml.Node) (map[string]string, error) {
	env := map[string]string{}
	err := namedMaps(n, func(key, v *yaml.Node) error {
		if err := checkScalar(v, textTags); err != nil {
			return &fault{line: v.Line, got: sandbar.Quote(key.Value, 60), why: err.Error()}
		}
		env[key.Value] = v.Value
		return nil
	})
	return env, err
}

// languageMaps returns the set fields of languages, for yaml.Dump.
func languageMaps(languages []lang.Language) []any {
	var out []any
	for _, l := range languages {
		m := map[string]any{"name": l.Name, "file": l.File, "command": l.Command}
		if len(l.Aliases) > 0 {
			m["aliases"] = l.Aliases
		}
		if len(l.Env) > 0 {
			m["env"] = l.Env
		}
		out = append(out, m)
	}
	return out
}

// didYouMean returns `; did you mean "x"?`, or a list of the valid names.
func didYouMean(name string, known []string) string {
	if meant := suggest.Name(name, known); meant != "" {
		return "; did you mean " + sandbar.Quote(meant, 80) + "?"
	}
	return "; there are " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
}
