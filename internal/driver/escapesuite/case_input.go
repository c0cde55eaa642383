package escapesuite

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar/driver"
)

// inputCases are cases 73 to 75, 78 and 80: malformed and forged input.
func inputCases() []Case {
	return []Case{
		daemonCase("73-json", "malformed, nested, huge and ambiguous JSON", oddJSON),
		daemonCase("74-frames-on-stdout", "a program that writes frames of the protocol to its output", forgedFrames),
		daemonCase("75-log", "names with line ends and escape sequences in the log", forgedLog),
		daemonCase("78-ids", "ids that can be guessed, and ids that are paths", ids),
		daemonCase("80-references", "image names that are paths, URLs and internal addresses", references),
	}
}

func oddJSON(ctx context.Context, _ *Suite, d *daemon) error {
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	for what, body := range map[string]string{
		"half an object": `{"image":`, "an array": `[]`, "two objects": `{}{}`, "garbage at the end": `{} x`, "nesting": deep,
		"a field twice": `{"name":"a","name":"b"}`, "an unknown field": `{"imagination":"host"}`, "a byte order mark": "\ufeff{}", "no UTF-8": "{\"name\":\"\xff\"}",
		"a huge number": `{"limits":{"memory":1e400}}`, "a negative limit": `{"limits":{"pids":-2}}`, "a wrong type": `{"name":7}`, "half of a surrogate pair": `{"name":"\ud800"}`,
		"a long name": `{"name":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		if err := d.refused(ctx, what, "POST", "/sandboxes", body, nil, 400, 413, 422); err != nil {
			return err
		}
	}
	live, err := d.live(ctx)
	if err == nil && len(live) > 0 {
		err = escaped("a malformed request has created a sandbox")
	}
	if err != nil {
		return err
	}
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	for _, text := range []string{"", "{", "[]", "null", deep, `{"v":1}`, `{"v":1,"type":"execute"}`, `{"v":1e400,"type":"ping","ts":"x"}`, "{}\x00"} {
		if err := c.send(ctx, text); err != nil {
			return err
		}
		m, err := c.next(ctx)
		if err != nil {
			return fmt.Errorf("%.40q: %w", text, err)
		}
		if m.Type != "error" || m.Code != "INVALID_REQUEST" {
			return escaped("%.40q was answered with %s %s", text, m.Type, m.Code)
		}
	}
	return nil
}

// forged is a frame of the Fathom protocol that a program writes to its output.
const forged = `{"v":1,"type":"result","id":"exec_1","ts":"2026-01-01T00:00:00.000Z","exit_code":0,"duration_ms":1}`

func forgedFrames(ctx context.Context, s *Suite, d *daemon) error {
	o, err := d.shell(ctx, execution{Code: "printf '\\n%s\\n\\n' '" + forged + "' | tee /dev/stderr; exit 7"})
	if err != nil {
		return err
	}
	if o.exit == nil || *o.exit != 7 || strings.Count(o.output.String(), forged) != 2 {
		return escaped("a program's output was taken for the daemon's: status %q, error %q, output %.500q", o.status, o.code, o.output.String())
	}
	return s.forgedLines(ctx)
}

// forgedLines is the same attack on the stdio protocol, if this program supports it.
func (s *Suite) forgedLines(ctx context.Context) error {
	help, err := exec.CommandContext(ctx, s.Binary, "stdio", "--help").CombinedOutput()
	if err != nil || !bytes.Contains(help, []byte("--driver")) {
		return nil
	}
	cmd := exec.CommandContext(ctx, s.Binary, "stdio", "--driver", s.Driver.Caps().Name)
	// Other cases test the limits.
	cmd.Env = append(slices.Clone(s.Environ), "SANDBAR_ALLOW_DEGRADED=true")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(io.LimitReader(out, 16<<20))
	const lie = `{"type":"shell","id":"2","stdout":"forged","stderr":"","exit_code":0,"timed_out":false}`
	script := "printf '%s\\n' '" + lie + "'; for f in 1 2 3 4 5 6 7 8 9; do printf '%s\\n' '" + lie + "' 2>/dev/null >&$f; done; true"
	if s.Driver.Caps().Boundary != driver.BoundaryNone { // without a boundary it is the host's process 1
		script += "; printf '%s\\n' '" + lie + "' >/proc/1/fd/1; true"
	}
	for id, command := range []string{1: script, 2: "echo true"} {
		if command == "" {
			continue
		}
		request, _ := json.Marshal(map[string]any{"type": "shell", "id": fmt.Sprint(id), "command": command})
		if _, err := in.Write(append(request, '\n')); err != nil {
			return err
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("reading the response from standard output: %w", err)
		}
		var answer struct{ ID, Stdout string }
		if err := json.Unmarshal(line, &answer); err != nil || answer.ID != fmt.Sprint(id) || (id == 2 && answer.Stdout != "true\n") {
			return escaped("request %d was answered with %.200q", id, line)
		}
	}
	return nil
}

var logLine = regexp.MustCompile(`^(time=\S+ level=[A-Z]+ msg=|sandbar: )`)

func forgedLog(ctx context.Context, _ *Suite, d *daemon) error {
	const nasty = "a\ntime=2026-01-01T00:00:00Z level=ERROR msg=forged\r\n\x1b[31m\x1b]0;owned\x07\u202e"
	c, err := d.dial(ctx)
	if err != nil {
		return err
	}
	defer c.ws.CloseNow()
	if _, err := c.run(ctx, execution{ID: nasty, Language: nasty, Code: nasty, Timeout: time.Second, Env: map[string]string{nasty: nasty}}); err != nil {
		return err
	}
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("User-Agent", "x\x1b[31m") },
		func(r *http.Request) { r.URL.RawQuery = "a=%0atime=forged%1b[31m" },
		func(r *http.Request) { r.URL.Path = "/sandboxes/\n\x1b[31mtime=forged" },
	} {
		if _, err := d.request(ctx, "GET", "/sandboxes/none", nil, change); err != nil {
			continue // Go's HTTP client refuses to send it
		}
	}
	body, _ := json.Marshal(map[string]any{"name": nasty, "labels": map[string]string{nasty: nasty}})
	if _, err := d.request(ctx, "POST", "/sandboxes", string(body)); err != nil {
		return err
	}
	text, _ := d.log.look()
	for line := range strings.Lines(text) {
		if !logLine.MatchString(line) {
			return escaped("the log has a line that the daemon did not write: %.200q", line)
		}
		if strings.ContainsAny(line, "\x1b\x07\u202e") {
			return escaped("control characters in the log: %.200q", line)
		}
	}
	return nil
}

// removeAll removes all sandboxes that the daemon lists.
func (d *daemon) removeAll(ctx context.Context) error {
	all, err := d.live(ctx)
	if err != nil {
		return err
	}
	for _, id := range all {
		if _, err := d.request(ctx, "DELETE", "/sandboxes/"+id, nil); err != nil {
			return err
		}
	}
	return nil
}

func ids(ctx context.Context, _ *Suite, d *daemon) error {
	first, err := d.create(ctx, "{}")
	if err != nil {
		return err
	}
	second, err := d.create(ctx, "{}")
	if err != nil {
		return err
	}
	same := 0
	for i := range min(len(first), len(second)) {
		if first[i] == second[i] {
			same++
		}
	}
	// An id has a common prefix and 26 random characters of 5 bits. Some of these are equal by
	// chance.
	if len(first) < 26 || len(second) < 26 || same > len(first)/2 {
		return escaped("ids that can be guessed: %s and %s", first, second)
	}
	for _, id := range []string{"..", "../..", "%2e%2e", "%00", strings.Repeat("x", 1<<14), "%e2%80%ae", first + "%2f..", first[:len(first)-1], strings.ToUpper(first) + "x", "*", "-1"} {
		if err := d.refused(ctx, "the id "+fmt.Sprintf("%.40q", id), "GET", "/sandboxes/"+id, nil, nil, 301, 307, 400, 404, 414, 431); err != nil {
			return err
		}
	}
	return nil
}

func references(ctx context.Context, _ *Suite, d *daemon) error {
	for _, image := range []string{"../../etc", "/etc", "file:///etc/passwd", "http://169.254.169.254/latest", "169.254.169.254/x/y", "127.0.0.1:1/x", "host/../../x", "a\x00b", strings.Repeat("a/", 5000), "host\n"} {
		body, _ := json.Marshal(map[string]string{"image": image})
		if err := d.refused(ctx, fmt.Sprintf("the image %.40q", image), "POST", "/sandboxes", string(body), nil, 400, 404, 409, 413, 422, 501); err != nil {
			return err
		}
	}
	return nil
}
