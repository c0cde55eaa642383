package fetch

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// settings is the npm client's configuration: variables (npm_config_NAME), then the .npmrc of the
// project, of the user and of the host. The first one that sets a name wins.
type settings map[string]string

// readSettings reads the configuration that the npm client would read.
func readSettings(environ []string) (settings, error) {
	s := settings{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if rest, ok := cutPrefixFold(name, "npm_config_"); ok && value != "" {
			if !strings.HasPrefix(rest, "//") { // names of a registry's settings are case-sensitive
				rest = strings.ReplaceAll(strings.ToLower(rest), "_", "-")
			}
			s.add(rest, value)
		}
	}
	user := s["userconfig"]
	if home, err := os.UserHomeDir(); err == nil && user == "" {
		user = filepath.Join(home, ".npmrc")
	}
	files := []string{".npmrc", user, s["globalconfig"], "/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"}
	for _, file := range files {
		if file == "" {
			continue
		}
		all, err := lines(file)
		if err != nil {
			return nil, err
		}
		for _, line := range all {
			line = strings.TrimSpace(line)
			name, value, ok := strings.Cut(line, "=")
			if !ok || line[0] == '#' || line[0] == ';' {
				continue
			}
			s.add(strings.TrimSpace(name), os.Expand(strings.Trim(strings.TrimSpace(value), `"'`), os.Getenv))
		}
	}
	return s, nil
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return "", false
	}
	return s[len(prefix):], true
}

func (s settings) add(name, value string) {
	if _, ok := s[name]; !ok {
		s[name] = value
	}
}

// registry returns the URL of a package's registry, with a slash at its end. It returns "" if no
// setting names a registry and no npm client is installed.
func (s settings) registry(name string) string {
	registry := s["registry"]
	if scope, _, ok := strings.Cut(name, "/"); ok && s[scope+":registry"] != "" {
		registry = s[scope+":registry"]
	}
	if registry == "" {
		registry = askNPM()
	}
	if registry == "" {
		return ""
	}
	return strings.TrimRight(registry, "/") + "/"
}

// askNPM returns the registry of the npm client, or "" if none is installed.
func askNPM() string {
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// authorization returns the header for a registry, from the setting "//HOST/PATH/:_authToken" or
// "//HOST/PATH/:_auth".
func (s settings) authorization(registry string) http.Header {
	_, place, _ := strings.Cut(registry, ":")
	for name, value := range s {
		for suffix, scheme := range map[string]string{":_authToken": "Bearer ", ":_auth": "Basic "} {
			if at, ok := strings.CutSuffix(name, suffix); ok && strings.HasPrefix(at, "//") && strings.HasPrefix(place, strings.TrimRight(at, "/")+"/") {
				return http.Header{"Authorization": {scheme + value}}
			}
		}
	}
	return nil
}

// client returns an HTTP client with the proxy and certificate authorities of the configuration.
func (s settings) client() (*http.Client, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	proxy := s["https-proxy"]
	if proxy == "" {
		proxy = s["proxy"]
	}
	if proxy != "" && proxy != "null" {
		u, err := url.Parse(proxy)
		if err != nil {
			return nil, fmt.Errorf("npm's setting proxy: %w", err)
		}
		t.Proxy = http.ProxyURL(u)
	}
	for _, file := range []string{s["cafile"], os.Getenv("NODE_EXTRA_CA_CERTS")} {
		if file == "" || file == "null" {
			continue
		}
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("npm's certificate authorities: %w", err)
		}
		if t.TLSClientConfig == nil {
			pool, err := x509.SystemCertPool()
			if err != nil {
				return nil, err
			}
			t.TLSClientConfig = &tls.Config{RootCAs: pool}
		}
		t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return &http.Client{Transport: t, Timeout: Timeout}, nil
}
