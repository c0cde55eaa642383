package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

var updatePictures = flag.Bool("update", false, "write the pictures of docs/console.md")

// consoleNeeds are the requirements of tests of the console's page.
var consoleNeeds = []testenv.Requirement{testenv.Once, testenv.Linux, testenv.UserNS, testenv.NpmConsole, testenv.Chromium}

// consolePatience bounds each wait for the page.
const consolePatience = 40 * time.Second

// console is a tab of a browser with the console of a daemon. The test fails if the page logs an
// error, breaks its policy, or sends a request to another origin.
type console struct {
	t      *testing.T
	tab    context.Context
	d      *daemon
	origin string

	mu       sync.Mutex
	wrong    []string
	expected []string // texts of errors that the test provokes
	requests int
}

// newConsoleDaemon starts a daemon with the console's page.
func newConsoleDaemon(t *testing.T, dir string, env ...string) *daemon {
	t.Helper()
	d := startProgramAt(t, testenv.FreeAddress(t), []string{testenv.Build(t, "cmd/sandbar", "embedconsole")}, dir, env...)
	d.await(t)
	return d
}

// openConsole opens the page in a new browser.
func openConsole(t *testing.T, d *daemon) *console {
	t.Helper()
	c := &console{t: t, tab: newBrowser(t), d: d, origin: "http://" + d.addr,
		expected: []string{"/console/session"}} // without a session it answers 401, which browsers log
	if err := chromedp.Listen(c.tab, c.hear); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, w := range c.wrong {
			t.Errorf("the page: %s", w)
		}
		if c.requests == 0 {
			t.Error("no request of the page was seen")
		}
	})
	c.size(1280, 800)
	c.scheme("light")
	visit(t, c.tab, c.origin+"/")
	return c
}

// hear takes the events of the tab.
func (c *console) hear(ev any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch ev := ev.(type) {
	case *browserlog.EventEntryAdded:
		if ev.Entry.Level == browserlog.EntryLevelError || ev.Entry.Source == browserlog.EntrySourceSecurity {
			c.note(fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b, _ := json.Marshal(ev.ExceptionDetails)
		c.note("exception: " + string(b))
	case *runtime.EventConsoleAPICalled:
		if ev.Type == "error" || ev.Type == "warning" {
			b, _ := json.Marshal(ev.Args)
			c.note("console: " + string(b))
		}
	case *network.EventRequestWillBeSent:
		c.requests++
		c.request(ev.Request.URL)
	case *network.EventWebSocketCreated:
		c.request(ev.URL)
	}
}

// request notes a request to another origin than the daemon's, and its previews'.
func (c *console) request(address string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "data" && u.Scheme != "blob" && u.Scheme != "about" && u.Host != c.d.addr && !strings.HasSuffix(u.Hostname(), ".localhost") {
		c.note("a request to " + address)
	}
}

func (c *console) note(text string) {
	for _, e := range c.expected {
		if strings.Contains(text, e) {
			return
		}
	}
	c.wrong = append(c.wrong, text)
}

// expect allows errors with a text in the browser's log.
func (c *console) expect(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected = append(c.expected, text)
}

func (c *console) do(steps ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.tab, browserPatience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *console) size(width, height int64) {
	c.t.Helper()
	c.do(chromedp.EmulateViewport(width, height))
}

// scheme selects the colours of the system: "light" or "dark".
func (c *console) scheme(name string) {
	c.t.Helper()
	p := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
	if _, err := chromedp.Call(c.tab, emulation.SetEmulatedMedia, p); err != nil {
		c.t.Fatal(err)
	}
}

// pageScript has functions for the scripts of tests. An open dialog hides what is below it.
const pageScript = `
const root = () => [...document.querySelectorAll('dialog[open]')].at(-1) ?? document
const shown = el => el.getClientRects().length > 0
const named = el => (el.getAttribute('aria-label') ?? el.textContent).trim()
const button = name => [...root().querySelectorAll('button, a, [role=tab], [role=menuitem], [role=treeitem], [role=option]')].find(el => shown(el) && named(el).startsWith(name))
const field = name => { const l = [...root().querySelectorAll('label')].find(l => l.textContent.trim().startsWith(name)); return l ? l.control : root().querySelector('[aria-label="' + name + '"], [placeholder^="' + name + '"]') }
const fill = (el, text) => { el.focus(); el.value = text; el.dispatchEvent(new Event(el.tagName === 'SELECT' ? 'change' : 'input', { bubbles: true })) }
const text = () => document.body.innerText
const code = (n = -1) => [...document.querySelectorAll('.editor')].at(n)?.shadowRoot?.querySelector('.cm-content');
`

// js runs a script in the page.
func (c *console) js(body string, args ...any) string {
	c.t.Helper()
	return script(c.t, c.tab, pageScript+fmt.Sprintf(body, args...))
}

// until waits until an expression of the page is true.
func (c *console) until(expression string, args ...any) {
	c.t.Helper()
	expression = fmt.Sprintf(expression, args...)
	for end := time.Now().Add(consolePatience); ; time.Sleep(20 * time.Millisecond) {
		got := script(c.t, c.tab, pageScript+"return !!("+expression+")")
		if got == "true" {
			return
		}
		if time.Now().After(end) {
			c.picture("failed")
			c.t.Fatalf("%s: %s; the page at %s shows: %s", expression, got, c.js("return location.href"), c.js("return text()"))
		}
	}
}

// shows waits until the page shows a text.
func (c *console) shows(text string) {
	c.t.Helper()
	c.until("text().includes(%q)", text)
}

// click clicks the control with a name, when it is there.
func (c *console) click(name string) {
	c.t.Helper()
	c.until("button(%q) && button(%[1]q).getAttribute('aria-disabled') !== 'true'", name)
	c.js("button(%q).click()", name)
}

// fill enters a text into the field with a label.
func (c *console) fill(label, text string) {
	c.t.Helper()
	c.until("field(%q)", label)
	c.js("fill(field(%q), %q)", label, text)
}

// keys types.
func (c *console) keys(keys string, opts ...chromedp.KeyOption) {
	c.t.Helper()
	c.do(chromedp.KeyEvent(keys, opts...))
}

// press presses a key of a shortcut. The event has its text, as a keyboard's has, so the page can
// keep the browser from typing it.
func (c *console) press(key string) {
	c.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{"keyDown", "keyUp"} {
		p := input.DispatchKeyEventParams{Type: kind, Key: key}
		if key == "Enter" {
			p.WindowsVirtualKeyCode = '\r'
		}
		if kind == "keyDown" {
			p.Text = strings.ReplaceAll(key, "Enter", "\r")
		}
		if _, err := chromedp.Call(c.tab, input.DispatchKeyEvent, p); err != nil {
			c.t.Fatal(err)
		}
	}
}

// line types a line in a terminal.
func (c *console) line(text string) {
	c.t.Helper()
	c.insert(text)
	c.press("Enter")
}

// insert inserts a text where the focus is, as an input method does.
func (c *console) insert(text string) {
	c.t.Helper()
	if _, err := chromedp.Call(c.tab, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		c.t.Fatal(err)
	}
}

// open opens a page by its address.
func (c *console) open(path string) {
	c.t.Helper()
	c.js("location.hash = %q", path)
}

// logIn logs in by the form.
func (c *console) logIn(token string) {
	c.t.Helper()
	c.fill("Token", token)
	c.click("Log in")
	c.until("document.querySelector('nav')")
}

// picture stores a screenshot below .cache/console-screenshots, for people to look at, unless only
// another user may write there.
func (c *console) picture(name string) []byte {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.tab, browserPatience)
	defer cancel()
	b, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		c.t.Fatal(err)
	}
	dir := filepath.Join(testenv.Cache(), "console-screenshots")
	err = os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), b, 0o644)
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		c.t.Fatal(err)
	}
	return b
}

// A person logs in, and does everything with sandboxes that the console offers.
func TestConsoleFlows(t *testing.T) {
	testenv.Need(t, append(consoleNeeds, testenv.Freezer, testenv.Python)...)
	d := newConsoleDaemon(t, t.TempDir(), "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off")
	c := openConsole(t, d)

	// A wrong token is refused in words, and the field stays.
	c.expect("/console/login")
	c.until("field('Token')")
	c.fill("Token", "wrong")
	c.click("Log in")
	c.until("document.querySelector('[role=alert]')?.innerText.toLowerCase().includes('token')")
	c.logIn(token)
	c.shows("No sandboxes")

	// Create, by the keyboard.
	c.press("n")
	c.shows("Create a sandbox")
	c.fill("Name", "bad/name")
	c.expect("/v1/sandboxes") // the answer 400
	c.click("Create")
	c.until("document.querySelector('dialog [role=alert], dialog .field.wrong')")
	c.fill("Name", "builder")
	c.fill("Memory", "lots")
	c.until("button('Create').getAttribute('aria-disabled') === 'true'")
	c.fill("Memory", "200 MiB")
	c.fill("Labels", "owner=ci, team=core")
	c.click("Create")
	c.until("location.hash.startsWith('#/sandboxes/sb_')")
	id := c.js("return location.hash.split('/')[2]")
	if got := d.cli(t, "list", "--json"); !strings.Contains(got, `"memory": 209715200`) && !strings.Contains(got, `"memory":209715200`) {
		t.Errorf("the memory is not 200 MiB: %s", got)
	}
	c.shows("owner=ci")
	c.until("document.querySelector('.plot canvas')")

	// A sandbox that another client makes appears by itself, and can be found.
	other := strings.TrimSpace(d.cli(t, "create", "--name", "elsewhere"))
	c.open("/sandboxes")
	c.shows("elsewhere")
	c.press("/")
	c.insert("owner=ci")
	c.until("document.querySelectorAll('.rows [role=row]').length === 1 && text().includes('builder')")
	c.keys(kb.ArrowDown)
	c.until("document.activeElement?.dataset.id === %q", id)
	c.keys(kb.Enter)
	c.until("location.hash.includes(%q)", id)

	t.Run("terminal", func(t *testing.T) {
		c.t = t
		c.click("Terminal")
		c.until("document.querySelector('.xterm-helper-textarea') && text().includes('$')")
		c.js("document.querySelector('.xterm-helper-textarea').focus()")
		c.line("echo $((6*7)); stty size")
		screen := "document.querySelector('.xterm-rows').innerText"
		c.until("/^42\\s+\\d+ \\d+/m.test(%s)", screen)
		before := c.js("return %s.match(/(\\d+) (\\d+)\\s*$/m)?.[0]", screen)
		c.size(900, 600)
		c.until("document.querySelector('.xterm-rows').getBoundingClientRect().width < 700")
		c.line("clear; stty size; echo ready")
		c.until("/^ready/m.test(%s)", screen)
		if after := c.js("return %s.match(/(\\d+) (\\d+)/)?.[0]", screen); after == before || after == "undefined" {
			t.Errorf("the size is %q, and was %q before", after, before)
		}
		c.size(1280, 800)
		c.line("exit 3")
		c.shows("The shell has ended with exit code 3.")
		c.click("Connect again")
		c.until("document.querySelector('.xterm-rows').innerText.includes('$')")
	})
	t.Run("processes", func(t *testing.T) {
		c.t = t
		c.click("Processes")
		c.shows("No background processes")
		c.fill("Command", "echo started; exec sleep 1000")
		c.keys(kb.Enter)
		c.until("document.querySelector('[role=log]')?.innerText.includes('started')")
		c.click("Kill")
		c.shows("Kill the process?")
		c.click("Kill")
		c.until("[...document.querySelectorAll('[role=option] .state')].some(s => s.innerText.includes('killed'))")
	})
	t.Run("files", func(t *testing.T) {
		c.t = t
		c.click("Files")
		c.click("New directory")
		c.fill("Name", "src")
		c.click("Make the directory")
		c.until("document.querySelector('[data-path=\"/home/user/src\"]')")
		c.click("New file")
		c.fill("Name", "app.py")
		c.click("Make the file")
		c.until("document.querySelector('[data-path=\"/home/user/src/app.py\"]')")
		c.until("code()")
		c.js("code().focus()")
		c.insert("print('from the editor')\n")
		c.shows("changed")
		c.keys("s", chromedp.KeyModifiers(kb.ModifierCtrl))
		c.shows("app.py is saved.")
		if got := d.shell(t, id, "python3 src/app.py"); got != "from the editor\n" {
			t.Errorf("the file prints %q", got)
		}
		// Upload by drop, into a directory.
		c.js(`const to = new DataTransfer(); to.items.add(new File(['dropped'], 'drop.txt'));
			document.querySelector('[data-path="/home/user/src"]').dispatchEvent(new DragEvent('drop', { dataTransfer: to, bubbles: true, cancelable: true }))`)
		c.until("document.querySelector('[data-path=\"/home/user/src/drop.txt\"]')")
		if got := d.shell(t, id, "cat src/drop.txt"); got != "dropped" {
			t.Errorf("the upload is %q", got)
		}
		// Upload by the button.
		local := filepath.Join(t.TempDir(), "picked.txt")
		if err := os.WriteFile(local, []byte("picked"), 0o644); err != nil {
			t.Fatal(err)
		}
		c.do(chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{local}))
		c.until("document.querySelector('[data-path$=\"picked.txt\"]')")
		// Download.
		c.js("document.querySelector('[data-path=\"/home/user/src/drop.txt\"]').click()")
		c.until("document.querySelector('a[download=\"drop.txt\"]')")
		if got := c.js("return (await fetch(document.querySelector('a[download]').href)).text()"); got != "dropped" {
			t.Errorf("the download is %q", got)
		}
		c.until("code()")
		c.click("Delete the file")
		c.click("Delete")
		c.until("!document.querySelector('[data-path=\"/home/user/src/drop.txt\"]')")
		c.js("document.querySelector('[data-path=\"/home/user/src\"]').click()")
		c.click("Delete")
		c.shows("all files in it are removed")
		c.click("Delete")
		c.until("!document.querySelector('[data-path=\"/home/user/src\"]')")
		if got := d.shell(t, id, "ls"); got != "" {
			t.Errorf("left: %q", got)
		}
	})
	t.Run("previews", func(t *testing.T) {
		c.t = t
		d.cli(t, "exec", "--detach", id, "--", "sh", "-c", "mkdir -p /tmp/site; cd /tmp/site; echo '<title>t</title><h1>from the sandbox</h1><img src=/pixel>' > index.html; exec python3 -u -m http.server 8000 2>/tmp/requests")
		d.shell(t, id, "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null; do sleep 0.1; done")
		c.click("Previews")
		c.shows("No previews")
		c.fill("Port", "8000")
		c.click("Create")
		c.until("document.querySelector('iframe')")
		// The preview is private: the browser shows it by a cookie for frames of the console.
		if got := d.shell(t, id, "for i in $(seq 250); do grep -q 'GET / .* 200' /tmp/requests && grep -q 'GET /pixel .* 404' /tmp/requests && exit; sleep 0.1; done; cat /tmp/requests; echo missing"); got != "" {
			t.Errorf("the frame asked for: %s", got)
		}
		address := c.js("return document.querySelector('.frame a').href")
		if !strings.Contains(address, "8000-") || !strings.Contains(address, "sandbar_preview=") {
			t.Errorf("the link is %s", address)
		}
		c.click("Remove the preview")
		c.click("Remove")
		c.shows("No previews")
	})
	t.Run("notebook", func(t *testing.T) {
		c.t = t
		c.click("Notebook")
		c.fill("Language", "python")
		c.click("Start a context")
		cell := func(text, shows string) {
			t.Helper()
			c.until("code()")
			n := c.js("return document.querySelectorAll('.cell').length")
			c.js("code().focus()")
			c.insert(text)
			c.keys(kb.Enter, chromedp.KeyModifiers(kb.ModifierShift))
			c.until("document.querySelectorAll('.cell').length > %s && !document.querySelector('.cell.running')", n)
			c.until("[...document.querySelectorAll('.cell')].at(-2).%s", shows)
		}
		cell("x = 20\nprint('x is', x)\nx + 1", "innerText.match(/x is 20\\s+21/)")
		cell("x / 0", "innerText.includes('ZeroDivisionError')")
		cell("class T:\n    def _repr_html_(self): return '<b onclick=\"parent.alert(1)\">bold</b><script>parent.alert(2)</script>'\nT()",
			"querySelector('iframe[sandbox]')?.srcdoc.includes('<b>bold</b>')")
		cell("import zlib, struct\nclass P:\n    def _repr_png_(self):\n        part = lambda n, b: struct.pack('>I', len(b)) + n + b + struct.pack('>I', zlib.crc32(n + b))\n        return b'\\x89PNG\\r\\n\\x1a\\n' + part(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0)) + part(b'IDAT', zlib.compress(b'\\0\\0')) + part(b'IEND', b'')\nP()",
			"querySelector('img.image')?.naturalWidth === 1")
		// A cell that does not end is interrupted, and its variables stay.
		c.until("code()")
		c.js("code().focus()")
		c.insert("import time; time.sleep(1000)")
		c.keys(kb.Enter, chromedp.KeyModifiers(kb.ModifierShift))
		c.until("document.querySelector('.cell.running')")
		c.click("Interrupt")
		c.until("!document.querySelector('.cell.running') && text().includes('KeyboardInterrupt')")
		cell("x", "innerText.includes('20')")
		c.click("Restart")
		c.shows("All variables of the context are lost")
		c.click("Restart")
		c.until("!document.querySelector('dialog[open]')")
		cell("x", "innerText.includes('NameError')")
		c.click("End the context")
		c.click("End it")
		c.shows("No contexts")
	})
	t.Run("snapshots", func(t *testing.T) {
		c.t = t
		d.shell(t, id, "echo kept > kept")
		c.click("Snapshots")
		c.until("document.querySelectorAll('.snapshots button').length === 2")
		c.js("[...document.querySelectorAll('.snapshots button')].find(b => named(b) === 'Fork').click()")
		c.click("Make a copy")
		c.until("document.querySelector('.snapshots .links a')")
		c.js("[...document.querySelectorAll('.snapshots button')].find(b => named(b) === 'Pause').click()")
		c.shows("The state is on disk.")
		c.click("Files")
		c.shows("The sandbox is paused")
		c.click("Resume")
		c.until("document.querySelector('[data-path=\"/home/user/kept\"]')")
	})
	t.Run("end", func(t *testing.T) {
		c.t = t
		c.click("Overview")
		c.click("Renew")
		c.fill("Idle timeout", "7 min")
		c.js("root().querySelector('[type=submit]').click()")
		c.until("!document.querySelector('dialog[open]')")
		c.shows("7 min")
		// What another client ends is shown as ended.
		c.expect(id) // a measurement that is on its way
		d.cli(t, "stop", id)
		c.shows("This sandbox has ended")
		c.open("/sandboxes/" + other)
		c.shows("elsewhere")
		c.click("Stop")
		c.click("Stop the sandbox")
		c.until("location.hash === '#/sandboxes' && !text().includes('elsewhere is')")
		c.until("!document.querySelector('[data-id=%q]')", other)
		c.open("/events?q=elsewhere")
		c.open("/events?type=sandbox")
		c.until("[...document.querySelectorAll('.events tr')].some(r => r.innerText.includes('Ended'))")
		c.press("?")
		c.shows("Keyboard shortcuts")
		c.keys(kb.Escape)
		c.until("!document.querySelector('dialog[open]')")
		c.click("Log out")
		c.until("field('Token')")
	})
	c.t = t
}

// A read-only session sees its tenant and offers no change that would be refused. A user of a
// tenant has no pages of the operator.
func TestConsoleRoles(t *testing.T) {
	testenv.Need(t, append(consoleNeeds, testenv.Freezer)...)
	dir := t.TempDir()
	tokens, others := tokensOf(t, dir, "a"), tokensOf(t, dir, "b")
	d := newConsoleDaemon(t, dir, "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off")
	create := func(token, name string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+d.addr+"/v1/sandboxes", strings.NewReader(`{"name":"`+name+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatal(resp.Status)
		}
	}
	create(tokens["user"], "of-a")
	create(others["user"], "of-b")
	c := openConsole(t, d)
	c.logIn(tokens["read-only"])
	c.shows("of-a")
	c.shows("This session is read-only")
	c.until("!text().includes('of-b') && !button('Doctor') && !button('Configuration')")
	c.until("button('Create').getAttribute('aria-disabled') === 'true' && button('Create').title.includes('read-only')")
	c.js("document.querySelector('.rows [role=row]').click()")
	c.until("['Renew', 'Pause', 'Fork', 'Stop'].every(n => button(n)?.getAttribute('aria-disabled') === 'true')")
	for tab, says := range map[string]string{"Terminal": "read-only", "Previews": "read-only", "Processes": "No background processes", "Files": "No files here", "Notebook": "No contexts"} {
		c.click(tab)
		c.shows(says)
	}
	c.open("/status")
	c.shows("Sandboxes")
	c.until("!document.querySelector('[role=alert]')")
	c.click("Log out")
	c.until("field('Token')")
	c.logIn(others["user"])
	c.shows("of-b")
	c.until("!text().includes('of-a') && !button('Doctor') && button('Create').getAttribute('aria-disabled') !== 'true'")
	// The daemon's token has all of it.
	c.click("Log out")
	c.until("field('Token')")
	c.logIn(token)
	c.shows("of-a")
	c.until("text().includes('of-b') && button('Doctor') && button('Configuration')")
}

// A thousand sandboxes are in the list; the page renders only those in view, finds one of them, and
// shows a change.
func TestConsoleMany(t *testing.T) {
	testenv.Need(t, consoleNeeds...)
	const many = 1000
	d := newConsoleDaemon(t, t.TempDir(), "SANDBAR_DRIVER=local", "SANDBAR_TEMPLATES=off", "SANDBAR_MAX_SANDBOXES=1100")
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for i := part; i < many; i += 4 {
				if err := d.ask(t.Context(), "POST", "/sandboxes", object{"name": fmt.Sprintf("box-%04d", i), "labels": object{"part": fmt.Sprint(part)}}, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	c := openConsole(t, d)
	c.expect("/metrics") // the driver local cannot measure
	c.logIn(token)
	c.shows("1 000 running")
	rows := func() int {
		n, err := strconv.Atoi(c.js("return document.querySelectorAll('.rows [role=row]').length"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.until("document.querySelectorAll('.rows [role=row]').length > 10")
	if n := rows(); n > 60 {
		t.Errorf("%d rows are rendered", n)
	}
	c.js("document.querySelector('.table').scrollTop = 1e9")
	c.until("document.querySelector('.rows [role=row]:last-child').getAttribute('aria-rowindex') === '1001'")
	c.js("[...document.querySelectorAll('.head button')].find(b => named(b) === 'Sandbox').click()")
	c.shows("box-0000")
	c.js("document.querySelector('.table').scrollTop = 1e9")
	c.shows("box-0999")
	c.press("/")
	c.insert("part=3 box-04")
	c.until("text().includes('25 of 1 000')")
	c.picture("many")
	gone := strings.TrimSpace(c.js("return document.querySelector('.rows [role=row]').dataset.id"))
	c.expect(gone) // a measurement that is on its way
	d.cli(t, "stop", gone)
	c.until("text().includes('24 of 999') && !document.querySelector('[data-id=%q]')", gone)
}

// looks are the sizes and colours in which every page is pictured.
var looks = []struct {
	name          string
	width, height int64
	scheme        string
}{
	{"1280-light", 1280, 800, "light"},
	{"1280-dark", 1280, 800, "dark"},
	{"390-light", 390, 844, "light"},
	{"390-dark", 390, 844, "dark"},
}

// consolePictures are the pictures of docs/console.md.
var consolePictures = map[string]string{"sandboxes-1280-light": "console-sandboxes", "overview-1280-dark": "console-sandbox", "terminal-1280-dark": "console-terminal",
	"notebook-1280-light": "console-notebook", "status-1280-light": "console-status", "sandboxes-390-dark": "console-phone"}

// maxPicture bounds a picture of the documentation, in bytes.
const maxPicture = 150 << 10

// Every page is accessible by the rules of axe-core, at two widths and in both colour schemes, and
// no page is wider than its window. The test stores a picture of each.
func TestConsoleLooks(t *testing.T) {
	testenv.Need(t, append(consoleNeeds, testenv.Freezer, testenv.Python, testenv.NpmAxe)...)
	d := newConsoleDaemon(t, t.TempDir(), "SANDBAR_DRIVER=native", "SANDBAR_TEMPLATES=off")
	var ids []string
	for _, args := range [][]string{{"--name", "builder", "--label", "owner=ci", "--label", "team=core"}, {"--label", "owner=me"}, {"--name", "notebook-7", "--label", "run=1204"},
		{"--name", "scraper", "--memory", "128MiB", "--label", "stage=test"}, {"--name", "long-name-of-a-sandbox-for-reviews"}} {
		ids = append(ids, strings.TrimSpace(d.cli(t, append([]string{"create"}, args...)...)))
	}
	id, paused := ids[0], ids[3]
	d.cli(t, "pause", paused)
	d.cli(t, "exec", "--detach", "notebook-7", "--", "sh", "-c", "while :; do :; done")
	d.cli(t, "exec", "builder", "--", "sh", "-c", `mkdir -p src data && printf 'import json\n\n\ndef main():\n    # Print the settings.\n    print(json.dumps({"retries": 3}))\n\n\nmain()\n' >src/app.py && echo '{}' >result.json && echo '<!doctype html><title>Site</title><h1>Hello</h1>' >index.html`)
	d.cli(t, "exec", "--detach", "builder", "--", "python3", "-u", "-m", "http.server", "8000")
	d.cli(t, "exec", "--detach", "builder", "--", "sh", "-c", "for i in 1 2 3 4 5; do echo step $i; echo warning $i >&2; done; exit 3")
	for range 8 {
		d.shell(t, id, "python3 -c 'print(2+2)'")
	}
	c := openConsole(t, d)
	axe, err := os.ReadFile(filepath.Join(testenv.NpmConsoleModules(), "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	pages := []struct {
		name string
		open func()
	}{
		{"sandboxes", func() {
			c.open("/sandboxes")
			c.until("document.querySelectorAll('.rows [role=row]').length === 5 && document.querySelectorAll('.c-cpu .meter').length >= 4")
		}},
		{"search", func() {
			c.open("/sandboxes?q=nothing-has-this")
			c.shows("No sandbox matches")
		}},
		{"create", func() {
			c.open("/sandboxes")
			c.click("Create")
			c.shows("Create a sandbox")
		}},
		{"menu", func() {
			c.click("Close")
			c.until("document.querySelector('.c-menu button')")
			c.js("document.querySelector('.c-menu button').click()")
			c.until("document.querySelector('[role=menu]')")
		}},
		{"overview", func() {
			c.open("/sandboxes/" + id)
			c.until("document.querySelectorAll('.plot canvas').length === 3 && document.querySelectorAll('.activity li').length > 0 && document.querySelector('.plot .number').innerText !== '–'")
		}},
		{"paused", func() {
			c.open("/sandboxes/" + paused + "/files")
			c.shows("The sandbox is paused")
		}},
		{"stop", func() {
			c.click("Stop")
			c.shows("This cannot be undone")
		}},
		{"terminal", func() {
			c.click("Cancel")
			c.open("/sandboxes/" + id + "/terminal")
			c.until("document.querySelector('.xterm-rows')?.innerText.includes('$')")
			c.js("document.querySelector('.xterm-helper-textarea').focus()")
			c.line("ls --color -l; python3 src/app.py")
			c.until("document.querySelector('.xterm-rows').innerText.includes('retries')")
		}},
		{"processes", func() {
			c.open("/sandboxes/" + id + "/processes")
			c.until("document.querySelector('[role=log]')?.innerText.includes('step 5')")
		}},
		{"files", func() {
			c.open("/sandboxes/" + id + "/files")
			c.until("document.querySelector('[data-path$=\"/src\"]')")
			c.js("document.querySelector('[data-path$=\"/src\"]').click()")
			c.until("document.querySelector('[data-path$=\"app.py\"]')")
			c.picture("tree-" + fmt.Sprint(c.js("return innerWidth")))
			c.js("document.querySelector('[data-path$=\"app.py\"]').click()")
			c.until("code()?.innerText.includes('retries')")
		}},
		{"previews", func() {
			c.open("/sandboxes/" + id + "/previews")
			c.until("document.querySelector('iframe') || text().includes('No previews')")
			if c.js("return !document.querySelector('iframe')") == "true" {
				c.fill("Port", "8000")
				c.click("Create")
				c.until("document.querySelector('iframe')")
			}
			c.until("!document.querySelector('iframe.loading')")
		}},
		{"notebook", func() {
			c.open("/sandboxes/" + id + "/notebook")
			c.until("document.querySelector('.cell') || text().includes('No contexts')")
			if c.js("return !document.querySelector('.cell')") == "true" {
				c.click("Start a context")
				for _, code := range []string{"values = [n * n for n in range(8)]\nprint('sum', sum(values))\nvalues",
					"class Table:\n    def _repr_html_(self):\n        rows = ''.join(f'<tr><td>{n}</td><td>{n * n}</td><td>{n ** 3}</td></tr>' for n in range(1, 4))\n        return f'<table><thead><tr><th>n</th><th>n²</th><th>n³</th></tr></thead>{rows}</table>'\nTable()", "1 / 0"} {
					c.until("code()")
					c.js("code().focus()")
					c.insert(code)
					c.keys(kb.Enter, chromedp.KeyModifiers(kb.ModifierShift))
					c.until("!document.querySelector('.cell.running')")
				}
				c.shows("ZeroDivisionError")
			}
		}},
		{"snapshots", func() {
			c.open("/sandboxes/" + id + "/snapshots")
			c.shows("A pause writes")
		}},
		{"missing", func() {
			c.expect("/v1/sandboxes/sb_aaaaaaaaaaaaaaaaaaaaaaaaaa")
			c.open("/sandboxes/sb_aaaaaaaaaaaaaaaaaaaaaaaaaa")
			c.shows("There is no such sandbox")
		}},
		{"status", func() {
			c.open("/status")
			c.until("document.querySelectorAll('.plot canvas').length === 4")
		}},
		{"events", func() {
			c.open("/events")
			c.until("document.querySelectorAll('.events tbody tr').length > 10")
		}},
		{"doctor", func() {
			c.open("/doctor")
			c.until("document.querySelectorAll('.checks').length === 3")
		}},
		{"configuration", func() {
			c.open("/configuration")
			c.until("document.querySelectorAll('.settings tbody tr').length > 50")
		}},
		{"help", func() {
			c.js("document.activeElement.blur()")
			c.press("?")
			c.shows("Keyboard shortcuts")
		}},
	}
	check := func(t *testing.T, name string) {
		c.t = t
		if got := c.js("return document.documentElement.scrollWidth - innerWidth"); got != "0" {
			t.Errorf("the page is %s pixels wider than its window", got)
		}
		if c.js("return typeof axe") == "undefined" {
			c.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
				_, err := chromedp.Run(ctx, chromedp.Evaluate[any](string(axe)+"; 0"))
				return err
			}))
		}
		for _, v := range strings.Split(c.js(`const r = await axe.run(document, { iframes: false, resultTypes: ['violations'] });
			return r.violations.map(v => v.id + ': ' + v.help + ' ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + n.any.map(a => a.message).join(' ')).join(' | ')).join('\n')`), "\n") {
			if v != "" {
				t.Errorf("axe: %s", v)
			}
		}
		b := c.picture(name)
		if as := consolePictures[name]; as != "" && *updatePictures {
			savePicture(t, as, b)
		}
	}
	for i, look := range looks {
		c.size(look.width, look.height)
		c.scheme(look.scheme)
		if i == 0 {
			c.until("field('Token')")
			t.Run("login-"+look.name, func(t *testing.T) { check(t, "login-"+look.name) })
			c.t = t
			c.logIn(token)
		}
		for _, p := range pages {
			t.Run(p.name+"-"+look.name, func(t *testing.T) {
				c.t = t
				p.open()
				check(t, p.name+"-"+look.name)
			})
		}
		c.t = t
		c.js("document.querySelectorAll('dialog[open] header button').forEach(b => b.click())")
	}
}

// savePicture writes a picture of the documentation.
func savePicture(t *testing.T, name string, b []byte) {
	t.Helper()
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	if out.Len() > maxPicture {
		t.Errorf("%s has %d bytes, more than %d", name, out.Len(), maxPicture)
	}
	if err := os.MkdirAll(filepath.Join(root, "docs", "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "images", name+".png"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
