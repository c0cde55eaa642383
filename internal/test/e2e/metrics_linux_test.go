package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// notShown are the metrics of the Go runtime and of the process that the dashboard does not show on
// purpose: they explain a fault of the daemon itself, and are found by their names then.
var notShown = regexp.MustCompile(`^(go_(gc|info|memstats|threads|sched)|process_virtual_memory)`)

// family is a metric of a scrape: its type, its help and the labels that its samples have.
type family struct {
	kind, help string
	labels     map[string]bool
}

// scrape returns the metrics of a daemon by the names of their samples, and the set of families.
func (d *daemon) scrape(t *testing.T) (samples map[string]map[string]bool, families map[string]family) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t, time.Minute), "GET", "http://"+d.addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	samples, families = map[string]map[string]bool{}, map[string]family{}
	var help, name string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			_, help, _ = strings.Cut(rest, " ")
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			var kind string
			name, kind, _ = strings.Cut(rest, " ")
			families[name] = family{kind, help, map[string]bool{}}
			continue
		}
		m, err := parser.ParseMetric(line[:strings.LastIndex(line, " ")])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sample := m.Get(labels.MetricName)
		if samples[sample] == nil {
			samples[sample] = map[string]bool{}
		}
		m.Range(func(l labels.Label) {
			if l.Name != labels.MetricName {
				samples[sample][l.Name] = true
				if l.Name != "le" && l.Name != "quantile" {
					families[name].labels[l.Name] = true
				}
			}
		})
	}
	return samples, families
}

// as sends a request with a token and returns the response's status, header and body.
func (d *daemon) as(t *testing.T, token, method, path, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t, time.Minute), method, "http://"+d.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// busyDaemon is a daemon with executions, refusals, a tenant and a template.
func busyDaemon(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "ci.token")
	if err := os.WriteFile(secret, []byte("the-token-of-ci"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, dir, "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=[{language: python, min: 1}]", "SANDBAR_CLIENTS=[{name: ci, token_file: "+secret+"}]")
	for _, code := range []string{"exit 0", "exit 3", "kill -9 $$"} {
		if _, err := d.run(within(t, time.Minute), "shell", code, 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	var box struct{ ID string }
	d.must(t, "POST", "/sandboxes", object{}, &box)
	d.shell(t, box.ID, "true")
	if err := d.ask(within(t, time.Minute), "POST", "/sandboxes", object{"limits": object{"memory": 1}}, nil); err == nil {
		t.Error("a sandbox of one byte was made")
	}
	for _, x := range [][2]string{{"/sandboxes", `{"limits":{"memory":1}}`}, {"/sandboxes", `{}`}, {"/sandboxes/" + box.ID + "/executor/run", `{"cmd":"true"}`}} {
		d.as(t, "the-token-of-ci", "POST", x[0], x[1])
	}
	d.as(t, "wrong", "GET", "/sandboxes", "")
	return d
}

// Each query of the Grafana dashboard is valid, and a real daemon exports the metrics and labels
// that it uses. The dashboard shows all other metrics of the daemon too, except those of notShown.
func TestDashboard(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "grafana", "sandbar.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || board.UID != "sandbar" {
		t.Fatalf("%+v, %v", board, err)
	}
	samples, families := busyDaemon(t).scrape(t)
	shown := map[string]bool{}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q has no query, or the id of another", p.Title)
		}
		ids[p.ID] = true
		for _, x := range p.Targets {
			for _, wrong := range queryFaults(x.Expr, x.LegendFormat, samples) {
				t.Errorf("the panel %q: %s: %s", p.Title, x.Expr, wrong)
			}
			if e, err := parser.ParseExpr(strings.ReplaceAll(x.Expr, "$__rate_interval", "5m")); err == nil {
				for _, s := range parser.ExtractSelectors(e) {
					for _, m := range s {
						if m.Name == labels.MetricName {
							shown[m.Value] = true
						}
					}
				}
			}
		}
	}
	for name, f := range families {
		if !shown[name] && !(f.kind == "histogram" && shown[name+"_bucket"]) && !notShown.MatchString(name) {
			t.Errorf("the dashboard does not show %s", name)
		}
		if notShown.MatchString(name) && shown[name] {
			t.Errorf("the dashboard shows %s, which notShown names", name)
		}
	}
}

// queryFaults returns what is wrong with a query of a panel.
func queryFaults(query, legend string, samples map[string]map[string]bool) (faults []string) {
	e, err := parser.ParseExpr(strings.ReplaceAll(query, "$__rate_interval", "5m"))
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		switch x := n.(type) {
		case *parser.VectorSelector:
			has, ok := samples[x.Name]
			if !ok {
				faults = append(faults, "there is no metric "+x.Name)
			}
			for _, m := range x.LabelMatchers {
				if m.Name != labels.MetricName && !has[m.Name] {
					faults = append(faults, x.Name+" has no label "+m.Name)
				}
			}
		case *parser.AggregateExpr:
			for _, selector := range parser.ExtractSelectors(x.Expr) {
				for _, m := range selector {
					for _, label := range x.Grouping {
						if m.Name == labels.MetricName && !samples[m.Value][label] {
							faults = append(faults, m.Value+" has no label "+label)
						}
					}
				}
			}
		}
		return nil
	})
	for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(legend, -1) {
		if m[1] != "instance" && !strings.Contains(query, m[1]) { // Prometheus adds instance
			faults = append(faults, "the legend has the label "+m[1]+", which the query does not keep")
		}
	}
	return faults
}

// The faults that TestDashboard looks for are found.
func TestDashboardFaults(t *testing.T) {
	samples := map[string]map[string]bool{"a_total": {"code": true}}
	for query, want := range map[string]int{
		`sum by (code) (rate(a_total[$__rate_interval]))`: 0, `sum by (reason) (rate(a_total[5m]))`: 1, `b_total`: 1, `a_total{reason="x"}`: 1, `sum(`: 1,
	} {
		if got := queryFaults(query, "", samples); len(got) != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	if got := queryFaults("a_total", "{{code}}", samples); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// The page lists each of the daemon's own metrics with its labels and its help.
func TestMetricsPage(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS, testenv.Python)
	page := filepath.Join("..", "..", "..", "docs", "observability.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, families := busyDaemon(t).scrape(t)
	var want []string
	for name, f := range families {
		if strings.HasPrefix(name, "sandbar_") {
			want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", name, f.kind, code(f.labels), strings.TrimSuffix(f.help, ".")))
		}
	}
	slices.Sort(want)
	var got []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `sandbar_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !cmp.Equal(want, got) {
		t.Errorf("docs/observability.md should have these rows:\n%s\n%s", strings.Join(want, "\n"), cmp.Diff(want, got))
	}
}

// code lists names in the form of the page's cells.
func code(names map[string]bool) string {
	var all []string
	for n := range names {
		all = append(all, "`"+n+"`")
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
