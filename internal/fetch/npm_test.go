package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// npm's configuration selects the registry of a package and its token.
func TestRegistries(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{filepath.Join(home, ".npmrc"): "registry=https://user.example/npm\n@antonz:registry=https://scope.example\n#registry=https://no.example\n",
		".npmrc": "//project.example/npm/:_auth=dTpw\n@other:registry=https://project.example/npm/\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type place struct{ Registry, Authorization string }
	for name, c := range map[string]struct {
		environ []string
		want    map[string]place
	}{
		"files": {nil, map[string]place{"v86": {"https://user.example/npm/", ""}, "@antonz/x": {"https://scope.example/", ""},
			"@other/x": {"https://project.example/npm/", "Basic dTpw"}}},
		"variables first": {[]string{"NPM_CONFIG_REGISTRY=https://env.example/", "npm_config_//env.example/:_authToken=t"},
			map[string]place{"v86": {"https://env.example/", "Bearer t"}, "@antonz/x": {"https://scope.example/", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := readSettings(c.environ)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]place{}
			for pkg := range c.want {
				r := s.registry(pkg)
				got[pkg] = place{r, s.authorization(r).Get("Authorization")}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
