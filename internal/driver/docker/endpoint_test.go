package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
)

// around returns an environ with these variables and a home directory with the docker command's
// files.
func around(t *testing.T, vars, files map[string]string) environ {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, ".docker", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return environ{getenv: func(name string) string { return vars[name] }, home: home, exists: func(path string) bool {
		_, err := os.Stat(path)
		return err == nil && path != "/var/run/docker.sock" // whatever this host has
	}}
}

func contextID(name string) string {
	d := sha256.Sum256([]byte(name))
	return hex.EncodeToString(d[:])
}

// contextFiles returns the files of a context "far", with TLS, and a context "near".
func contextFiles(current string) map[string]string {
	far, near := contextID("far"), contextID("near")
	return map[string]string{
		"config.json":                                         `{"currentContext": "` + current + `", "auths": {}}`,
		"contexts/meta/" + far + "/meta.json":                 `{"Name": "far", "Metadata": {}, "Endpoints": {"docker": {"Host": "tcp://far:2376", "SkipTLSVerify": false}}}`,
		"contexts/tls/" + far + "/docker/ca.pem":              "",
		"contexts/meta/" + near + "/meta.json":                `{"Name": "near", "Endpoints": {"docker": {"Host": "unix:///near.sock"}}}`,
		"contexts/meta/" + contextID("blind") + "/meta.json":  `{"Endpoints": {"docker": {"Host": "tcp://blind:2376", "SkipTLSVerify": true}}}`,
		"contexts/meta/" + contextID("empty") + "/meta.json":  `{"Endpoints": {}}`,
		"contexts/meta/" + contextID("broken") + "/meta.json": `{`,
	}
}

func TestFindEndpoint(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Setenv("DOCKER_HOST", "") // paths below are written as elsewhere; nothing is skipped
	}
	tls := func(dir string) endpoint {
		return endpoint{ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	}
	for name, tt := range map[string]struct {
		opt   options
		vars  map[string]string
		files map[string]string
		want  endpoint // without who said so; ca, cert and key below the home directory
		code  sandbar.Code
	}{
		"nothing is said":      {want: endpoint{host: client.DefaultDockerHost}},
		"an option":            {opt: options{host: "unix:///o"}, vars: map[string]string{"DOCKER_HOST": "unix:///e"}, files: contextFiles("near"), want: endpoint{host: "unix:///o"}},
		"the variable":         {vars: map[string]string{"DOCKER_HOST": "unix:///e", "DOCKER_CONTEXT": "near"}, files: contextFiles("near"), want: endpoint{host: "unix:///e"}},
		"the context variable": {vars: map[string]string{"DOCKER_CONTEXT": "near"}, files: contextFiles("far"), want: endpoint{host: "unix:///near.sock"}},
		"the current context":  {files: contextFiles("near"), want: endpoint{host: "unix:///near.sock"}},
		"the default context":  {files: contextFiles("default"), want: endpoint{host: client.DefaultDockerHost}},
		"a context with TLS": {opt: options{context: "far"}, files: contextFiles(""), vars: map[string]string{"DOCKER_CERT_PATH": "/other", "DOCKER_TLS_VERIFY": "1"}, want: func() endpoint {
			e := tls(filepath.Join(".docker", "contexts", "tls", contextID("far"), "docker"))
			e.host = "tcp://far:2376"
			return e
		}()},
		"TCP in the clear":           {opt: options{host: "tcp://h:2375"}, want: endpoint{host: "tcp://h:2375", unencrypted: true}},
		"TCP with certificates":      {opt: options{host: "tcp://h:2376", certPath: "certs"}, want: func() endpoint { e := tls("certs"); e.host = "tcp://h:2376"; return e }()},
		"TCP with the variables":     {vars: map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "certs"}, want: func() endpoint { e := tls("certs"); e.host = "tcp://h:2376"; return e }()},
		"certificates not asked for": {vars: map[string]string{"DOCKER_HOST": "tcp://h:2376", "DOCKER_CERT_PATH": "certs"}, want: endpoint{host: "tcp://h:2376", unencrypted: true}},
		"TLS without certificates":   {opt: options{host: "https://h:2376"}, code: sandbar.Invalid},
		"no protocol":                {opt: options{host: "/var/run/docker.sock"}, code: sandbar.Invalid},
		"no address":                 {opt: options{host: "unix://"}, code: sandbar.Invalid},
		"an unknown protocol":        {opt: options{host: "carrier://pigeon"}, code: sandbar.Invalid},
		"ssh":                        {opt: options{host: "ssh://root@h"}, code: sandbar.Invalid},
		"no such context":            {opt: options{context: "none"}, files: contextFiles(""), code: sandbar.NotFound},
		"a context without engine":   {opt: options{context: "empty"}, files: contextFiles(""), code: sandbar.NotFound},
		"a context that trusts all":  {opt: options{context: "blind"}, files: contextFiles(""), code: sandbar.Invalid},
		"a broken context":           {opt: options{context: "broken"}, files: contextFiles(""), code: sandbar.Invalid},
		"a broken configuration":     {files: map[string]string{"config.json": "{"}, code: sandbar.Invalid},
		"a name that is a path":      {opt: options{context: "../../meta/" + contextID("near")}, files: contextFiles(""), code: sandbar.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			s := around(t, tt.vars, tt.files)
			got, err := findEndpoint(tt.opt, s)
			if sandbar.CodeOf(err) != tt.code {
				t.Fatalf("%v (code %q); want %q", err, sandbar.CodeOf(err), tt.code)
			}
			if err != nil {
				if sandbar.AsError(err).Fix == "" {
					t.Errorf("no next step: %v", err)
				}
				return
			}
			if got.from == "" {
				t.Error("it is not told who said so")
			}
			got.from = ""
			for _, p := range []*string{&got.ca, &got.cert, &got.key} {
				if rel, err := filepath.Rel(s.home, *p); err == nil && filepath.IsAbs(*p) {
					*p = rel
				}
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(endpoint{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The socket of an ordinary user's engine is found if root's engine has none.
func TestOwnSocket(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := around(t, map[string]string{"XDG_RUNTIME_DIR": dir}, nil)
	want := "unix://" + dir + "/docker.sock"
	if runtime.GOOS == "windows" {
		want = client.DefaultDockerHost
	}
	if got := ownSocket(s); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.exists = func(string) bool { return true } // root's as well
	if got := ownSocket(s); got != client.DefaultDockerHost {
		t.Errorf("%s, want the machine's own", got)
	}
}

// Unreadable certificates are an error before the first request.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ca.pem": "no certificate", "cert.pem": "", "key.pem": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		e, err := addressed("tcp://h:2376", path, "a test", around(t, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newClient(e); sandbar.CodeOf(err) != sandbar.Invalid || sandbar.AsError(err).Field != optionCertPath {
			t.Errorf("%v", err)
		}
	}
}
