package backend

import (
	"errors"
	"testing"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/docker"
	"github.com/sandbar-dev/sandbar/internal/driver/e2b"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes"
	"github.com/sandbar-dev/sandbar/internal/driver/native"
	"github.com/sandbar-dev/sandbar/internal/driver/oci"
	"github.com/sandbar-dev/sandbar/internal/driver/vm"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/e2bservice"
)

// shared is the state that the tests of a package share.
type shared struct {
	docker  dockerd.Shared
	service e2bservice.Shared
}

func (s *shared) stop() error { return errors.Join(s.docker.Stop(), s.service.Stop()) }

// backends returns all backends. The first is for tests that are not subtests of Over.
func backends() []backend {
	return []backend{
		{name: native.Name, needs: []testenv.Requirement{testenv.Linux, testenv.UserNS},
			make: func(_ *shared, _ testing.TB, h driver.Host, agent []byte) (driver.Driver, error) {
				return native.New(h, agent)
			}},
		{name: docker.Name, needs: []testenv.Requirement{testenv.Docker, testenv.DebianImage}, lacks: []string{"javascript", "elixir"},
			make: func(s *shared, t testing.TB, h driver.Host, agent []byte) (driver.Driver, error) {
				h.Options = map[string]string{"host": s.docker.Engine(t).Host(), "image": dockerd.Image}
				return docker.New(h, agent)
			}},
		{name: e2b.Name, needs: e2bservice.Needs(),
			make: func(s *shared, t testing.TB, h driver.Host, agent []byte) (driver.Driver, error) {
				u := s.service.Service(t).URL
				h.Options = map[string]string{"api_key": e2bservice.Key, "api_url": u, "sandbox_url": u}
				return e2b.New(h, agent)
			}},
		{name: oci.NameGVisor, needs: []testenv.Requirement{testenv.UserNS, testenv.Runsc},
			make: func(_ *shared, _ testing.TB, h driver.Host, agent []byte) (driver.Driver, error) {
				h.Options = map[string]string{"runtime": testenv.RunscProgram()}
				return oci.New(h, oci.NameGVisor, agent)
			}},
		{name: oci.Name, needs: []testenv.Requirement{testenv.UserNS, testenv.Runc}, later: true,
			make: func(_ *shared, _ testing.TB, h driver.Host, agent []byte) (driver.Driver, error) {
				h.Options = map[string]string{"runtime": "runc"}
				return oci.New(h, oci.Name, agent)
			}},
		{name: vm.Name, needs: []testenv.Requirement{testenv.UserNS, testenv.VM}, later: true, lacks: []string{"javascript", "elixir"},
			make: func(_ *shared, _ testing.TB, h driver.Host, agent []byte) (d driver.Driver, err error) {
				if h.Options, err = testenv.VMOptions(); err != nil {
					return nil, err
				}
				return vm.New(h, agent)
			}},
		// Its cases run in a process of their own, inside the cluster's network.
		{name: kubernetes.Name, needs: []testenv.Requirement{testenv.Cluster, testenv.DebianImage}, later: true, lacks: []string{"javascript", "elixir"},
			enter: func(t *testing.T) bool { return cluster.Inside(t, 1, cluster.LoadSandboxes) },
			make: func(_ *shared, t testing.TB, h driver.Host, _ []byte) (driver.Driver, error) {
				h.Options = map[string]string{"kubeconfig": cluster.Of(t).Kubeconfig(), "image": cluster.SandboxImage, "agent_image": cluster.AgentImage, "pull": "never"}
				return kubernetes.New(h)
			}},
	}
}
