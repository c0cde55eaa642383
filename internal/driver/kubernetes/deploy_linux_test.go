package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/cluster"
)

// The namespaces of deploy/kubernetes.
const (
	daemonNamespace  = "sandbar"
	sandboxNamespace = "sandbar-sandboxes"
)

// manifests is the directory of the manifests.
func manifests(t *testing.T) string {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy", "kubernetes")
}

// deploy applies manifests as "kubectl apply -f" does, strictly, and removes the namespaces at the
// test's end.
func deploy(t *testing.T, c *cluster.Cluster, files ...string) {
	t.Helper()
	kubectl(t, c, "apply", "--server-side", "--validate=strict", "-f", filepath.Join(manifests(t), "namespaces.yaml"))
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "namespace", daemonNamespace, sandboxNamespace, "--wait", "--timeout=120s"); err != nil {
			t.Error(err)
		}
	})
	for _, f := range files {
		kubectl(t, c, "apply", "--server-side", "--validate=strict", "-f", filepath.Join(manifests(t), f))
	}
}

// kubectl runs kubectl as an administrator. It fails the test if kubectl fails.
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// accountOptions are the driver's options with a token of the daemon's account, and no other right.
func accountOptions(t *testing.T, c *cluster.Cluster) map[string]string {
	t.Helper()
	admin, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(kubectl(t, c, "create", "token", "sandbar", "-n", daemonNamespace))
	for name := range admin.AuthInfos {
		admin.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*admin, path); err != nil {
		t.Fatal(err)
	}
	return with(c, optionKubeconfig, path, optionNamespace, sandboxNamespace)
}

// role reads the Role of the daemon's account.
func role(t *testing.T, c *cluster.Cluster) rbacv1.Role {
	t.Helper()
	var r rbacv1.Role
	if err := json.Unmarshal([]byte(kubectl(t, c, "get", "role", "sandbar", "-n", sandboxNamespace, "-o", "json")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The manifests grant exactly what the driver uses. With these rights the driver works, in a
// namespace with restricted pod security, and the doctor has nothing to repair. Each missing right
// is named.
func TestDeployedRights(t *testing.T) {
	c := need(t)
	deploy(t, c, "account.yaml", "network.yaml")
	granted := role(t, c)
	var rights []Right
	for _, rule := range granted.Rules {
		if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 {
			t.Fatalf("rule %v", rule)
		}
		rights = append(rights, Right{rule.APIGroups[0], rule.Resources[0], rule.Verbs})
	}
	if got, want := fmt.Sprint(rights), fmt.Sprint(Rights()); got != want {
		t.Errorf("the Role grants %s; the driver uses %s", got, want)
	}

	o := accountOptions(t, c)
	d := newDriver(t, o)
	if !d.Caps().PrivateNetwork {
		t.Errorf("notes %v", d.Caps().Notes)
	}
	for _, f := range d.Inspect(t.Context(), false) {
		if f.Fix != "" {
			t.Errorf("the doctor reports %+v", f)
		}
	}
	b, err := d.Create(t.Context(), sandbar.NewID(), spec())
	if err != nil {
		t.Fatal(err)
	}
	if r, out := run(t, b, "echo $((6*7))"); r.ExitCode != 0 || out != "42\n" {
		t.Errorf("%+v, %q", r, out)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := d.Collect(t.Context(), true); err != nil {
		t.Error(err)
	}

	for i, right := range Rights() {
		for _, verb := range right.Verbs {
			without := granted.DeepCopy()
			without.ManagedFields, without.ResourceVersion = nil, ""
			without.Rules[i].Verbs = slices.DeleteFunc(without.Rules[i].Verbs, func(v string) bool { return v == verb })
			setRole(t, c, without)
			awaitRights(t, d.api, func(lacks string) bool { return lacks == verb+" "+right.Resource })
			lame, err := New(driver.Host{Options: o})
			if err == nil {
				_ = lame.Close()
			}
			if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Unsupported || !strings.Contains(e.Message, "may not "+verb+" "+right.Resource+" in") || !strings.Contains(e.Fix, "account.yaml") {
				t.Errorf("without %s %s: %v", verb, right.Resource, err)
			}
			if verb == "create" && right.Resource == pods { // a right that is taken away later
				if _, err := d.Create(t.Context(), sandbar.NewID(), spec()); sandbar.CodeOf(err) != sandbar.Unsupported || !strings.Contains(err.Error(), "forbids it") {
					t.Errorf("a sandbox without the right to create pods: %v", err)
				}
			}
		}
	}
	granted.ManagedFields, granted.ResourceVersion = nil, ""
	setRole(t, c, &granted)
	awaitRights(t, d.api, func(lacks string) bool { return lacks == "" })

	o[optionReach] = byExec
	_, err = New(driver.Host{Options: o})
	if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Unsupported || !strings.Contains(e.Message, "may not create pods/exec, get pods/exec in") || !strings.Contains(e.Fix, "pods/exec") {
		t.Errorf("connections by exec without the right: %v", err)
	}
	apart(t)
	o[optionReach] = byAuto
	_, err = New(driver.Host{Options: o})
	if e := sandbar.AsError(err); e == nil || !strings.Contains(e.Message, "pod's address") || !strings.Contains(e.Message, "may not create pods/exec") || !strings.Contains(e.Fix, "grant it create and get of pods/exec") {
		t.Errorf("no way to the pods: %v", err)
	}
}

// setRole replaces the Role of the daemon's account.
func setRole(t *testing.T, c *cluster.Cluster, r *rbacv1.Role) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "role.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "replace", "-f", path)
}

// awaitRights waits until the API server's cache of roles has a change.
func awaitRights(t *testing.T, a *api, want func(lacks string) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		lacks, err := a.missing(t.Context(), Rights())
		if err != nil {
			t.Fatal(err)
		}
		if want(rightsText(lacks)) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the account lacks %q", rightsText(lacks))
		}
	}
}

// The daemon of the Deployment starts with pod security "restricted", and runs programs in pods.
// The tests' cluster has neither DNS nor services, and its nodes isolate all pods: the daemon gets
// the API server's address, and the isolation is off.
func TestDeployedDaemon(t *testing.T) {
	testenv.Need(t, testenv.TestAll)
	c := need(t)
	deploy(t, c, "account.yaml", "network.yaml")
	loadDaemon(t, c)
	if err := c.Isolate(false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Isolate(true); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, c, "create", "secret", "generic", "sandbar-token", "-n", daemonNamespace, "--from-literal=token=t0ken")
	text, err := os.ReadFile(filepath.Join(manifests(t), "daemon.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const drivers = `"{kubernetes: {namespace: sandbar-sandboxes}}"}`
	changed := bytes.Replace(text, []byte(drivers), []byte(`"{kubernetes: {namespace: sandbar-sandboxes, agent_image: '`+agentImage+`', image: '`+testImage+`', pull: never}}"}
            - {name: SANDBAR_ALLOW_DEGRADED, value: "true"}
            - {name: KUBERNETES_SERVICE_HOST, value: 10.99.0.254}
            - {name: KUBERNETES_SERVICE_PORT, value: "6443"}`), 1)
	if bytes.Equal(changed, text) {
		t.Fatal("daemon.yaml has other settings")
	}
	path := filepath.Join(t.TempDir(), "daemon.yaml")
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "--server-side", "--validate=strict", "-f", path)
	if _, err := c.Kubectl(t.Context(), "rollout", "status", "deployment/sandbar", "-n", daemonNamespace, "--timeout=180s"); err != nil {
		state, _ := c.Kubectl(t.Context(), "describe", "pods", "-n", daemonNamespace)
		logs, _ := c.Kubectl(t.Context(), "logs", "deployment/sandbar", "-n", daemonNamespace)
		t.Fatalf("%v\n%s\n%s", err, state, logs)
	}
	address := strings.TrimSpace(kubectl(t, c, "get", "endpointslices", "-n", daemonNamespace, "-l", "kubernetes.io/service-name=sandbar",
		"-o", "jsonpath={.items[0].endpoints[0].addresses[0]}:{.items[0].ports[0].port}"))
	sandbar := func(args ...string) string {
		t.Helper()
		return command(t, address, args...)
	}
	for host, want := range map[string]int{"sandbar.sandbar.svc": http.StatusOK, "sandbar": http.StatusOK, "evil.example.com": http.StatusMisdirectedRequest} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host, q.Close = host, true
		p, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		p.Body.Close()
		if p.StatusCode != want {
			t.Errorf("host %s: %s", host, p.Status)
		}
	}
	id := strings.TrimSpace(sandbar("create"))
	if out := sandbar("exec", id, "--", "sh", "-c", "echo $((6*7))"); out != "42\n" {
		t.Errorf("output %q", out)
	}
	if pods := kubectl(t, c, "get", "pods", "-n", sandboxNamespace, "-l", labelSandbox+"="+id, "-o", "name"); strings.Count(pods, "pod/") != 1 {
		t.Errorf("pods %q", pods)
	}
	sandbar("stop", id)
	// The daemon removes its objects when it ends.
	kubectl(t, c, "scale", "deployment/sandbar", "-n", daemonNamespace, "--replicas=0")
	kubectl(t, c, "wait", "--for=delete", "pods", "--all", "-n", daemonNamespace, "--timeout=90s")
	if left := kubectl(t, c, "get", "pods,leases,secrets", "-n", sandboxNamespace, "-l", labelGateway, "-o", "name"); left != "" {
		t.Errorf("this remains: %s", left)
	}
}

// loadDaemon loads the image of the daemon, as "sandbar kubernetes image load --daemon" makes it.
func loadDaemon(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	program, err := os.ReadFile(testenv.Build(t, "cmd/sandbar"))
	if err != nil {
		t.Fatal(err)
	}
	built, err := agentimage.BuildDaemon(program)
	if err != nil {
		t.Fatal(err)
	}
	loadImage(t, c, built)
}

// command runs the command line with the daemon at an address and returns its output.
func command(t *testing.T, address string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "SANDBAR_CONFIG=/dev/null", "SANDBAR_URL=http://" + address, "SANDBAR_TOKEN=t0ken",
		"SANDBAR_RUNTIME_DIR=" + filepath.Join(dir, "run"), "SANDBAR_STATE_DIR=" + filepath.Join(dir, "state")}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sandbar %v: %v: %s", args, err, errs.String())
	}
	return string(out)
}

// helm runs Helm with the chart as its last argument and returns its output.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(testenv.HelmProgram(), append(args, filepath.Join(filepath.Dir(manifests(t)), "helm"))...)
	dir := t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %v: %w: %s %s", args, err, errs.String(), out)
	}
	return string(out), err
}

// object is an object of a manifest.
type object = map[string]any

// objects parses manifests, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o object
		err := d.Decode(&o)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o) > 0 {
			m := o["metadata"].(object)
			all[fmt.Sprintf("%s %v/%v", o["kind"], m["namespace"], m["name"])] = o
		}
	}
}

// With its defaults the chart has the objects of deploy/kubernetes, and the API server accepts what
// it makes of other values. Wrong values are refused.
func TestChart(t *testing.T) {
	testenv.Need(t, testenv.Helm)
	c := need(t)
	if out, err := helm(t, "lint", "--strict"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	rendered, err := helm(t, "template", "sandbar", "--namespace", daemonNamespace)
	if err != nil {
		t.Fatal(err)
	}
	plain := ""
	for _, f := range []string{"namespaces.yaml", "account.yaml", "network.yaml", "daemon.yaml"} {
		text, err := os.ReadFile(filepath.Join(manifests(t), f))
		if err != nil {
			t.Fatal(err)
		}
		plain += "---\n" + string(text)
	}
	want, got := objects(t, plain), objects(t, rendered)
	delete(want, "Namespace <nil>/"+daemonNamespace) // the one of "helm install --create-namespace"
	for _, all := range []map[string]object{want, got} {
		for name, o := range all {
			if strings.HasPrefix(name, "Service ") {
				delete(o["metadata"].(object), "labels") // for the ServiceMonitor
				delete(o["spec"].(object), "type")       // the default
			}
			if strings.HasPrefix(name, "Deployment ") {
				for _, e := range o["spec"].(object)["template"].(object)["spec"].(object)["containers"].([]any)[0].(object)["env"].([]any) {
					if e := e.(object); e["name"] == "SANDBAR_DRIVERS" { // YAML or JSON
						e["value"] = strings.NewReplacer(`"`, "", " ", "").Replace(e["value"].(string))
					}
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the chart differs from deploy/kubernetes:\n%s", diff)
	}

	rendered, err = helm(t, "template", "other", "--namespace", daemonNamespace, "--set", "sandboxes.namespace=sandbar-sandboxes,sandboxes.createNamespace=false,sandboxes.pods=0,image.digest=sha256:"+strings.Repeat("0", 64),
		"--set", "driver.runtime_class=kata,service.type=NodePort,service.port=81,shutdownSeconds=7",
		"--set-string", "settings.SANDBAR_MAX_SANDBOXES=5", "--set", "networkPolicy.enabled=false,podDisruptionBudget.enabled=false,nodeSelector.disk=ssd,tolerations[0].operator=Exists,imagePullSecrets[0].name=pull")
	if err != nil {
		t.Fatal(err)
	}
	deploy(t, c)
	path := filepath.Join(t.TempDir(), "chart.yaml")
	if err := os.WriteFile(path, []byte(rendered), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", path)
	rendered, err = helm(t, "template", "other", "--namespace", daemonNamespace, "--set", "sandboxes.createNamespace=false,replicas=3,allowedHosts={sandbar.example.com}")
	if err != nil || !strings.Contains(rendered, `"dns+http://other-peers:8080"`) || !strings.Contains(rendered, ",sandbar.example.com\"") {
		t.Errorf("%v, %s", err, rendered)
	}
	if err := os.WriteFile(path, []byte(rendered), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", path)
	monitor, err := helm(t, "template", "sandbar", "--set", "serviceMonitor.enabled=true")
	if err != nil || !strings.Contains(monitor, "kind: ServiceMonitor") {
		t.Errorf("%v, %s", err, monitor)
	}

	for _, wrong := range []string{"image.digest=latest", "sandboxes.namespace=A_B", "driver.namespace=x", "settings.PATH=x", "service.port=0", "shutdownSeconds=0", "sandboxes.pods=-1", "replicas=0", "nosuch=1"} {
		if out, err := helm(t, "template", "sandbar", "--set", wrong); err == nil {
			t.Errorf("%s is accepted:\n%s", wrong, out)
		}
	}
}
