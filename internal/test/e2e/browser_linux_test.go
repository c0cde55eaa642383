package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// browserPatience bounds each wait of a test with a browser.
const browserPatience = 3 * time.Minute

// newBrowser starts Chromium with an empty profile and returns the context of a tab. Chromium ends
// with the test, and leaves no process.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	profile := t.TempDir()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(profile), chromedp.WSURLReadTimeout(browserPatience), chromedp.Env("HOME="+profile))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	tab, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(tab); err != nil {
			t.Errorf("the browser does not end: %v", err)
		}
		end()
		for until := time.Now().Add(browserPatience); ; time.Sleep(20 * time.Millisecond) {
			left := processesWith(t, profile)
			if len(left) == 0 {
				return
			}
			if time.Now().After(until) {
				t.Errorf("left of the browser: %v", left)
				return
			}
		}
	})
	if err := chromedp.Do(tab); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	return tab
}

// processesWith returns the processes with text in their arguments.
func processesWith(t *testing.T, text string) (found []string) {
	for _, f := range glob(t, "/proc/[0-9]*/cmdline") {
		if b, _ := os.ReadFile(f); bytes.Contains(b, []byte(text)) {
			found = append(found, f)
		}
	}
	return found
}

// visit opens a URL in a tab.
func visit(t *testing.T, tab context.Context, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, browserPatience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("%s: %v", address, err)
	}
}

// script runs the body of an async function in the page of a tab and returns its result as text,
// or the name of its error.
func script(t *testing.T, tab context.Context, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, browserPatience)
	defer cancel()
	click := func(p *runtime.EvaluateParams) { p.UserGesture = new(true) }
	text := "(async () => { try { return String(await (async () => {" + body + "})()) } catch (e) { return e.name } })()"
	result, err := chromedp.Run(ctx, chromedp.Evaluate[string](text, chromedp.EvalAwaitPromise, click))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return result
}

// becomes waits until a script has a result.
func becomes(t *testing.T, tab context.Context, body, want string) {
	t.Helper()
	for end := time.Now().Add(browserPatience); ; time.Sleep(20 * time.Millisecond) {
		got := script(t, tab, body)
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %q, want %q", body, got, want)
		}
	}
}

// preview makes a preview of a port on which a program listens soon, and waits for the program.
// The daemon's address in the URL is localhost.
func (d *daemon) preview(t *testing.T, id string, port int) *url.URL {
	t.Helper()
	var p struct{ URL string }
	d.must(t, "POST", "/sandboxes/"+id+"/previews", object{"port": port}, &p)
	u, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(browserPatience); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+d.addr+"/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = u.Host
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway {
			return u
		}
		if time.Now().After(end) {
			t.Fatalf("nothing listens on port %d of %s: %s", port, id, resp.Status)
		}
	}
}

// put writes a file of a sandbox with the command line.
func (d *daemon) put(t *testing.T, id, path string, content []byte) {
	t.Helper()
	local := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(local, content, 0o644); err != nil {
		t.Fatal(err)
	}
	d.cli(t, "upload", id, local, path)
}

// tarOf returns an archive of a directory, whose names begin with its base name.
func tarOf(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A browser opens the application of Vite's development server in a sandbox. A change of a source
// file reaches the open page over a WebSocket, and the page is not loaded again.
func TestBrowserVite(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.NpmVite, testenv.Chromium)
	d := newDaemon(t, t.TempDir(), "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off")
	id := strings.TrimSpace(d.cli(t, "create"))
	d.put(t, id, "/tmp/modules.tar", tarOf(t, testenv.NpmViteModules()))
	d.cli(t, "exec", id, "--", "sh", "-c", "mkdir -p app/node_modules && tar -xf /tmp/modules.tar -C app/node_modules")
	for name, text := range map[string]string{
		"package.json": `{"type": "module"}`,
		"index.html":   `<!doctype html><title>app</title><div id="app"></div><script type="module" src="/main.js"></script>`,
		"text.js":      "export const text = 'first'\n",
		"main.js": `import { text } from './text.js'
const app = document.querySelector('#app')
app.textContent = text
import.meta.hot.accept('./text.js', changed => { app.textContent = changed.text })
`,
	} {
		d.put(t, id, "app/"+name, []byte(text))
	}
	server := strings.TrimSpace(d.cli(t, "exec", "--detach", "-w", "/home/user/app", id, "--", "node", "node_modules/vite/bin/vite.js", "--port", "5173", "--strictPort"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Vite said: %s", d.cli(t, "logs", id, server))
		}
	})
	u := d.preview(t, id, 5173)
	tab := newBrowser(t)
	events, cancel := context.WithTimeout(tab, browserPatience)
	defer cancel()
	sockets, frames := chromedp.Events(events, network.WebSocketCreated), chromedp.Events(events, network.WebSocketFrameReceived)
	visit(t, tab, u.String())
	const text = "return document.querySelector('#app')?.textContent"
	becomes(t, tab, text, "first")
	for e, err := range sockets {
		if err != nil || !strings.HasPrefix(e.URL, "ws://"+u.Host+"/") {
			t.Fatalf("the WebSocket of the page is %s, %v", e.URL, err)
		}
		break
	}
	for _, err := range frames { // Vite says that it is ready
		if err != nil {
			t.Fatalf("the page hears nothing from Vite: %v", err)
		}
		break
	}
	if got := script(t, tab, "window.marker = 'not loaded again'; return location.href"); got != "http://"+u.Host+"/" {
		t.Errorf("the page is %s", got)
	}
	d.put(t, id, "app/text.js", []byte("export const text = 'second'\n"))
	becomes(t, tab, text, "second")
	if got := script(t, tab, "return window.marker"); got != "not loaded again" {
		t.Errorf("the page was loaded again: its marker is %q", got)
	}
	d.cli(t, "stop", id)
	d.endClean(t)
}

// servePages runs testdata/pages.py in a new sandbox and returns its preview. requests returns
// "METHOD PATH" of what the program has received.
func (d *daemon) servePages(t *testing.T, secret, domain string) (u *url.URL, requests func() []string) {
	t.Helper()
	id := strings.TrimSpace(d.cli(t, "create"))
	code, err := os.ReadFile("testdata/pages.py")
	if err != nil {
		t.Fatal(err)
	}
	d.put(t, id, "pages.py", code)
	server := strings.TrimSpace(d.cli(t, "exec", "--detach", id, "--", "python3", "pages.py", "8000", secret, domain))
	return d.preview(t, id, 8000), func() (all []string) {
		for line := range strings.Lines(d.cli(t, "logs", id, server)) {
			var r struct{ Method, Path string }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, r.Method+" "+r.Path)
		}
		return all
	}
}

// A page of a preview attacks the preview of another sandbox and the daemon, with a browser whose
// user has both previews open. The attacked program permits everything that it can permit, so only
// the daemon and the browser protect it. Below localhost previews are sites of their own for a
// browser; below any other domain they belong to one site.
func TestBrowserHostilePage(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.Linux, testenv.UserNS, testenv.Python, testenv.Chromium)
	for _, domain := range []string{"localhost", "previews.localhost"} {
		t.Run(domain, func(t *testing.T) {
			d := newDaemon(t, t.TempDir(), "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off", "SANDBAR_PREVIEW_DOMAIN="+domain)
			attacked, received := d.servePages(t, "secret", domain)
			hostile, _ := d.servePages(t, "hostile", domain)
			tab := newBrowser(t)
			visit(t, tab, attacked.String())
			// The cookie of the preview works, or the attacks would prove nothing.
			if got := script(t, tab, "return (await fetch('/own', {cache: 'no-store'})).status + document.body.textContent + location.search"); got != "200secret" {
				t.Fatalf("the attacked page: %q", got)
			}
			script(t, tab, "localStorage.kept = 'secret'")
			visit(t, tab, hostile.String())
			_, daemonPort, _ := strings.Cut(d.addr, ":")
			shared, cookies := "false", "own=secret; planted-by-secret=1"
			if domain != "localhost" {
				shared, cookies = "true", cookies+"; planted-for-domain=1"
			}
			script(t, tab, fmt.Sprintf(`
				window.victim = "http://%[1]s"
				window.daemon = "http://localhost:%[2]s"
				window.loaded = (element, attributes) => new Promise(done => {
					const e = Object.assign(document.createElement(element), attributes)
					e.onload = () => done('loaded'), e.onerror = () => done('error')
					document.body.append(e)
				})
				window.framed = async address => {
					const e = document.createElement('iframe')
					const done = new Promise(done => e.onload = done)
					e.src = address
					document.body.append(e)
					await done
					return e.contentDocument + e.contentWindow.document.body.textContent
				}
				window.opened = (ws, address) => new Promise(done => {
					const s = new ws(address, ...(ws === EventSource ? [{withCredentials: true}] : []))
					s.onopen = () => done('open'), s.onerror = () => done('error')
				})
				window.posted = async (address, target) => {
					const f = Object.assign(document.createElement('form'), {action: address, method: 'POST', target})
					document.body.append(f)
					f.submit()
				}
				window.headers = async () => JSON.stringify(await (await fetch('/headers')).json())`, attacked.Host, daemonPort))
			for _, a := range []struct{ what, body, want string }{
				{"read a page", "return (await fetch(victim + '/attack-1', {credentials: 'include'})).text()", "TypeError"},
				{"read a page after a preflight", "return (await fetch(victim + '/attack-2', {credentials: 'include', headers: {'x-own': '1'}})).text()", "TypeError"},
				{"send a request without reading", "return (await fetch(victim + '/attack-3', {credentials: 'include', mode: 'no-cors', method: 'POST', body: 'x'})).type", "opaque"},
				{"read a page by a redirection", "return (await fetch('/to?' + victim + '/attack-4', {credentials: 'include'})).text()", "TypeError"},
				{"show a page in a frame", "return framed(victim + '/attack-5')", "SecurityError"},
				{"show a page in a frame by a redirection", "return framed('/to?' + victim + '/attack-6')", "SecurityError"},
				{"load an image", "return loaded('img', {src: victim + '/attack-7'})", "error"},
				{"load a script", "return loaded('script', {src: victim + '/attack-8'})", "error"},
				{"load a script with credentials", "return loaded('script', {src: victim + '/attack-9', crossOrigin: 'use-credentials'})", "error"},
				{"load a style", "return loaded('link', {href: victim + '/attack-10', rel: 'stylesheet'})", "error"},
				{"load an object", "return loaded('object', {data: victim + '/attack-11'})", "error"},
				{"open a WebSocket", "return opened(WebSocket, victim.replace('http', 'ws') + '/attack-12')", "error"},
				{"open an event stream", "return opened(EventSource, victim + '/attack-13')", "error"},
				{"send a beacon", "return navigator.sendBeacon(victim + '/attack-14', 'x')", "true"},
				{"send a form in a window", "return posted(victim + '/attack-15', '_blank')", "undefined"},
				{"read a window", "window.w = open(victim + '/link'); return w !== null", "true"},
				{"read the kept data", "return localStorage.kept", "undefined"},
				{"read the token", "return /sandbar_preview=[A-Z0-9]/.test(document.cookie + JSON.stringify(await cookieStore.getAll()) + await headers())", "false"},
				{"read the address with the token", "return (location.href + document.referrer + performance.getEntriesByType('navigation')[0].name).includes('sandbar_preview')", "false"},
				{"set a cookie for the other page", "document.cookie = 'planted-for-page=1; domain=' + new URL(victim).hostname; return document.cookie.includes('planted-for-page')", "false"},
				// Browsers refuse it only for public suffixes (docs/previews.md, "What a page cannot do").
				{"set a cookie for the domain", "document.cookie = 'planted-for-domain=1; domain=" + domain + "'; return document.cookie.includes('planted-for-domain')", shared},
				{"set a cookie for the daemon", "document.cookie = 'planted-for-daemon=1; domain=localhost'; return document.cookie.includes('planted-for-daemon')", "false"},
				{"replace the token of the other page", "for (const d of ['localhost', '" + domain + "']) document.cookie = 'sandbar_preview=planted; path=/; domain=' + d", "undefined"},
				{"become the site", "document.domain = '" + domain + "'; return w.document", "SecurityError"},
				{"install a worker for the other page", "return navigator.serviceWorker.register('/worker.js', {scope: victim + '/'})", "SecurityError"},
				{"install a worker of the other page", "return navigator.serviceWorker.register(victim + '/worker.js')", "SecurityError"},
				{"install a worker for the daemon", "return navigator.serviceWorker.register('/worker.js', {scope: daemon + '/'})", "SecurityError"},
				{"list sandboxes", "return (await fetch(daemon + '/sandboxes', {credentials: 'include'})).text()", "TypeError"},
				{"list sandboxes at the address", "return (await fetch('http://" + d.addr + "/sandboxes', {credentials: 'include'})).text()", "TypeError"},
				{"list sandboxes with a token", "return (await fetch(daemon + '/sandboxes', {headers: {Authorization: 'Bearer x'}})).text()", "TypeError"},
				{"list sandboxes by a redirection", "return (await fetch('/to?' + daemon + '/sandboxes', {credentials: 'include'})).text()", "TypeError"},
				{"read the health", "return (await fetch(daemon + '/health')).text()", "TypeError"},
				{"create a sandbox", "return (await fetch(daemon + '/sandboxes', {method: 'POST', mode: 'no-cors', body: '{}'})).type", "TypeError"},
				{"create a sandbox with a form", "return posted(daemon + '/sandboxes', '_blank')", "undefined"},
				{"connect to Fathom", "return opened(WebSocket, daemon.replace('http', 'ws') + '/ws')", "error"},
				{"show the daemon in a frame", "return framed(daemon + '/health')", "SecurityError"},
				{"reach the daemon on its own host", "return (await (await fetch('/sandboxes')).text()).includes('hostile')", "true"},
			} {
				if got := script(t, tab, a.body); got != a.want {
					t.Errorf("%s: %q, want %q", a.what, got, a.want)
				}
			}
			// The window shows the other page: a link may lead there.
			becomes(t, tab, "try { w.document; return 'blank' } catch (e) { return e.name }", "SecurityError")
			if n := len(d.sandboxes(t)); n != 2 {
				t.Errorf("there are %d sandboxes", n)
			}
			visit(t, tab, "http://"+hostile.Host+"/to?http://localhost:"+daemonPort+"/sandboxes")
			if got := script(t, tab, "return document.body.textContent"); !strings.Contains(got, `"code":"unauthenticated"`) {
				t.Errorf("a redirection to the daemon carries a token: %q", got)
			}
			// A worker of the hostile page serves that page only.
			visit(t, tab, "http://"+hostile.Host+"/")
			script(t, tab, "await navigator.serviceWorker.register('/worker.js', {scope: '/'}); await navigator.serviceWorker.ready")
			visit(t, tab, "http://"+hostile.Host+"/")
			becomes(t, tab, "return document.body.textContent", "from the worker")
			visit(t, tab, "http://localhost:"+daemonPort+"/health")
			if got := script(t, tab, "return document.cookie + (await (await fetch('/health')).text())"); strings.Contains(got, "worker") || strings.Contains(got, "planted") || got == "" {
				t.Errorf("the daemon's page: %q", got)
			}
			visit(t, tab, "http://"+attacked.Host+"/after")
			got := script(t, tab, "return document.body.textContent + ' ' + navigator.serviceWorker.controller + ' ' + (await (await fetch('/headers')).json()).Cookie")
			if want := "secret null " + cookies; got != want {
				t.Errorf("the attacked page afterwards: %q, want %q", got, want)
			}
			if !slices.Contains(received(), "GET /link") {
				t.Errorf("a link does not lead to the page: %q", received())
			}
			for _, r := range received() {
				if strings.Contains(r, "attack") {
					t.Errorf("the attacked program has received %s", r)
				}
			}
			d.endClean(t)
		})
	}
}
