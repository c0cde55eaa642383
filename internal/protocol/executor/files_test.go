package executor

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
)

// wantJSON posts a body and compares the whole response.
func (r *rig) wantJSON(path, body, want string) {
	r.t.Helper()
	a := r.post(path, body)
	if a.status != 200 || a.body != want+"\n" || a.header.Get("Content-Type") != "application/json" {
		r.t.Errorf("%s %.100s: %d %.300q, want %.300q", path, body, a.status, a.body, want)
	}
}

func TestFiles(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	const ok = `{"success":true}`
	r.wantJSON("/make_dir", `{"path":"/tmp/a/b","recursive":false}`, ok)
	r.wantJSON("/make_dir", `{"path":"/tmp/a/b"}`, ok)
	r.wantJSON("/list_dir", `{"path":"/tmp/a/b"}`, `{"entries":[]}`)
	r.wantJSON("/write_file", `{"path":"/tmp/a/f","content":"x\n\"é\""}`, ok)
	r.wantJSON("/write_file", `{"content":"hidden","path":"/tmp/a/.h"}`, ok)
	r.wantJSON("/write_file", `{"path":"/tmp/a/empty"}`, ok)
	r.wantJSON("/write_file", `{"path":"/tmp/a/null","content":null}`, ok)
	r.wantJSON("/write_file", `{"path":"relative","content":"r"}`, ok)
	r.wantJSON("/list_dir", `{"path":"/tmp/a"}`, `{"entries":[".h","b","empty","f","null"]}`)
	r.wantJSON("/read_file", `{"path":"/tmp/a/f"}`, `{"content":"x\n\"é\""}`)
	r.wantJSON("/read_file", `{"path":"/tmp/a/empty"}`, `{"content":""}`)
	r.wantJSON("/read_file", `{"path":"/home/user/relative"}`, `{"content":"r"}`)
	r.wantJSON("/read_file", `{"path":"/nowhere"}`, `{"content":"","error":"open /nowhere: no such file or directory"}`)
	r.wantJSON("/read_file", `{}`, `{"content":"","error":"open : no such file or directory"}`)
	r.wantJSON("/list_dir", `{"path":"/nowhere"}`, `{"entries":[],"error":"open /nowhere: no such file or directory"}`)
	r.wantJSON("/write_file", `{"path":"/tmp/no/f","content":"x"}`, `{"success":false,"error":"open /tmp/no/f: no such file or directory"}`)
	r.wantJSON("/write_file", `{"content":"x","path":"/tmp/no/f"}`, `{"success":false,"error":"open /tmp/no/f: no such file or directory"}`)
	r.wantJSON("/write_file", `{"path":"/tmp/a","content":"x"}`, `{"success":false,"error":"open /tmp/a: is a directory"}`)
	r.wantJSON("/write_file", `{"path":"/tmp/new/","content":"x"}`, `{"success":false,"error":"open /tmp/new/: is a directory"}`)
	r.wantJSON("/write_file", `{"content":"x"}`, `{"success":false,"error":"open : no such file or directory"}`)
	r.wantJSON("/delete_file", `{"path":"/tmp/a/f"}`, ok)
	r.wantJSON("/delete_file", `{"path":"/tmp/a/f"}`, `{"success":false,"error":"remove /tmp/a/f: no such file or directory"}`)
	r.wantJSON("/delete_file", `{"path":"/tmp/a/b"}`, ok)
	r.wantJSON("/delete_file", `{"path":""}`, `{"success":false,"error":"remove : no such file or directory"}`)
	r.wantJSON("/make_dir", `{"path":"/tmp/a/empty"}`, `{"success":false,"error":"mkdir /tmp/a/empty: not a directory"}`)
	r.wantJSON("/delete_dir", `{"path":"/tmp/a"}`, ok)
	r.wantJSON("/delete_dir", `{"path":"/tmp/a"}`, ok)
	r.wantJSON("/delete_dir", `{}`, `{"success":false,"error":"unlinkat : no such file or directory"}`)
}

// TestFilesAreNotDecoded tests that base64 content is stored unchanged: clients decode it.
func TestFilesAreNotDecoded(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	r.wantJSON("/write_file", `{"path":"/tmp/x","content":"aGVsbG8=","encoding":"base64"}`, `{"success":true}`)
	r.wantJSON("/read_file", `{"path":"/tmp/x","encoding":"base64"}`, `{"content":"aGVsbG8="}`)
}

// TestLargeContent tests contents of any size, split anywhere.
func TestLargeContent(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	for _, content := range []string{
		strings.Repeat("0123456789é€𝄞\n", 100_000),
		strings.Repeat("\x00", 300_000),
		strings.Repeat("\u2028\"\\", 100_000),
	} {
		for _, first := range []string{"path", "content"} {
			text := string(appendString(nil, content))
			body := `{"path":"/tmp/big","content":` + text + `}`
			if first == "content" {
				body = `{"content":` + text + `,"path":"/tmp/big"}`
			}
			r.wantJSON("/write_file", body, `{"success":true}`)
			if got := r.call("/read_file", m{"path": "/tmp/big"}); got["content"] != content {
				t.Errorf("%d bytes, %s first: %d bytes were returned", len(content), first, len(got["content"].(string)))
			}
			if got := r.get("/files?path=/tmp/big"); got.body != content {
				t.Errorf("%d bytes, %s first: %d bytes are in the file", len(content), first, len(got.body))
			}
		}
	}
}

// TestNoSpace tests that a full disk is reported after the whole request was sent, and that the old
// file stays.
func TestNoSpace(t *testing.T) {
	d := faulty.New()
	r := newRig(t, d, engine.Config{Default: sandbar.Limits{Disk: 100_000}}, Options{})
	r.wantJSON("/write_file", `{"path":"/tmp/x","content":"old"}`, `{"success":true}`)
	r.wantJSON("/write_file", `{"path":"/tmp/x","content":"`+strings.Repeat("x", 1<<20)+`"}`, `{"success":false,"error":"write /tmp/x: no space left on device"}`)
	r.wantJSON("/read_file", `{"path":"/tmp/x"}`, `{"content":"old"}`)
	a := r.send(r.request(http.MethodPut, "/files?path=/tmp/x", io.LimitReader(zeros{}, 1<<20)))
	if a.status != 507 || a.body != `{"error":"write /tmp/x: no space left on device","code":"no_space"}`+"\n" {
		t.Errorf("PUT: %d %q", a.status, a.body)
	}
	r.wantJSON("/read_file", `{"path":"/tmp/x"}`, `{"content":"old"}`)
}

// TestNoFiles tests that a sandbox without file operations says so, and still runs programs.
func TestNoFiles(t *testing.T) {
	r, _ := newFaulty(t, Options{}, func(d *faulty.Driver) { d.NoFiles = true })
	for _, path := range []string{"/write_file", "/read_file", "/delete_file", "/make_dir", "/delete_dir", "/list_dir"} {
		if a := r.post(path, `{"path":"/tmp/x","content":"x"}`); a.status != 501 {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
	if a := r.get("/files?path=/tmp/x"); a.status != 501 {
		t.Errorf("/files: %d %q", a.status, a.body)
	}
	if got := r.run("print stdout x"); got["stdout"] != "x\n" {
		t.Errorf("/run: %v", got)
	}
}

func TestFilesOfALostSandbox(t *testing.T) {
	r, d := newFaulty(t, Options{})
	d.DieAll()
	<-r.sandbox.Done()
	for _, path := range []string{"/write_file", "/read_file", "/delete_file", "/make_dir", "/delete_dir", "/list_dir", "/run", "/start_process"} {
		if a := r.post(path, `{"path":"/tmp/x","content":"x","cmd":"exit 0"}`); a.status != 500 {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
}

func (r *rig) put(query, body string, headers ...string) answer {
	r.t.Helper()
	q := r.request(http.MethodPut, "/files?"+query, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Set(name, value)
	}
	return r.send(q)
}

func TestRawFiles(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	for _, tt := range []struct {
		query, want string
		headers     []string
	}{
		{query: "path=/tmp/x", want: "201 "},
		{query: "path=/tmp/x", want: "204 "},
		{query: "path=/tmp/y&mode=600", want: "201 "},
		{query: "path=/tmp/y&mode=0755", want: "204 "},
		{query: "path=/tmp/z&mode=", want: "201 "},
		{query: "path=/tmp/d/e/f&parents=true", want: "201 "},
		{query: "path=/tmp/no/f", want: `404 {"error":"open /tmp/no/f: no such file or directory","code":"not_found"}`},
		{query: "path=/tmp/no/f&parents=0", want: `404 {"error":"open /tmp/no/f: no such file or directory","code":"not_found"}`},
		{query: "path=/tmp", want: `409 {"error":"open /tmp: is a directory","code":"conflict"}`},
		{query: "path=/tmp/q/", want: `409 {"error":"open /tmp/q/: is a directory","code":"conflict"}`},
		{query: "", want: `404 {"error":"open : no such file or directory","code":"not_found"}`},
		{query: "path=/tmp/x&mode=8", want: `400 {"error":"Invalid mode: \"8\" (octal, 1 to 777)","code":"invalid"}`},
		{query: "path=/tmp/x&mode=7777", want: `400 {"error":"Invalid mode: \"7777\" (octal, 1 to 777)","code":"invalid"}`},
		{query: "path=/tmp/x&parents=yes", want: `400 {"error":"Invalid parents: \"yes\" (\"true\" or \"false\")","code":"invalid"}`},
		{query: "path=/tmp/x", headers: []string{"Content-Range: bytes 0-1/2"}, want: `400 {"error":"Invalid Content-Range: a file is sent as a whole","code":"invalid"}`},
	} {
		a := r.put(tt.query, "content", tt.headers...)
		if got := fmt.Sprintf("%d %s", a.status, strings.TrimSpace(a.body)); got != tt.want {
			t.Errorf("PUT %s: %s, want %s", tt.query, got, tt.want)
		}
	}
	for path, want := range map[string]string{
		"/tmp/x":      "200 content",
		"/tmp/d/e/f":  "200 content",
		"/tmp/absent": `404 {"error":"open /tmp/absent: no such file or directory","code":"not_found"}`,
	} {
		a := r.get("/files?path=" + path)
		if got := fmt.Sprintf("%d %s", a.status, strings.TrimSpace(a.body)); got != want {
			t.Errorf("GET %s: %s, want %s", path, got, want)
		}
	}
	if a := r.get("/files?path=/tmp"); a.status != 409 {
		t.Errorf("GET of a directory: %d %q", a.status, a.body)
	}
}

func TestRawConditions(t *testing.T) {
	r, _ := newFaulty(t, Options{})
	r.put("path=/tmp/x", "0123456789")
	get := func(method string, headers ...string) answer {
		t.Helper()
		q := r.request(method, "/files?path=/tmp/x", nil)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			q.Header.Set(name, value)
		}
		return r.send(q)
	}
	whole := get(http.MethodGet)
	etag := whole.header.Get("ETag")
	if whole.header.Get("Content-Length") != "10" || whole.header.Get("Accept-Ranges") != "bytes" || etag == "" ||
		whole.header.Get("Last-Modified") == "" || whole.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%v", whole.header)
	}
	if a := get(http.MethodHead); a.status != 200 || a.body != "" || a.header.Get("Content-Length") != "10" || a.header.Get("ETag") != etag {
		t.Errorf("HEAD: %d %q %v", a.status, a.body, a.header)
	}
	for _, tt := range []struct {
		headers []string
		want    string
	}{
		{[]string{"Range: bytes=2-4"}, "206 234"},
		{[]string{"Range: bytes=7-"}, "206 789"},
		{[]string{"Range: bytes=-2"}, "206 89"},
		{[]string{"Range: bytes=0-0"}, "206 0"},
		{[]string{"Range: bytes=5-100"}, "206 56789"},
		{[]string{"Range: bytes=10-"}, "416 invalid range: failed to overlap"},
		{[]string{"Range: bytes=4-2"}, "416 invalid range"},
		{[]string{"Range: lines=1-2"}, "416 invalid range"},
		{[]string{"Range: bytes=2-4", "If-Range: " + etag}, "206 234"},
		{[]string{"Range: bytes=2-4", `If-Range: "other"`}, "200 0123456789"},
		{[]string{"If-None-Match: " + etag}, "304 "},
		{[]string{`If-Match: "other"`}, "412 "},
	} {
		a := get(http.MethodGet, tt.headers...)
		if got := fmt.Sprintf("%d %s", a.status, strings.TrimSpace(a.body)); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.headers, got, tt.want)
		}
	}
	r.put("path=/tmp/x", "0123456780")
	if a := get(http.MethodGet, "If-None-Match: "+etag); a.status != 200 {
		t.Errorf("after a change: %d", a.status)
	}
}

// FuzzRange tests that the response to any range is a part of the file, the whole file, or a
// refusal.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=0-0,2-3", "bytes=9-1", "bytes=", "x", "bytes=99999999999999999999-"} {
		f.Add(s)
	}
	r, _ := newFaulty(f, Options{})
	content := "the content of a file"
	r.put("path=/tmp/x", content)
	f.Fuzz(func(t *testing.T, header string) {
		for _, c := range header {
			if c < ' ' || c > '~' {
				return // no client can send it
			}
		}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.http.URL+"/files?path=/tmp/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+secret)
		q.Header.Set("Range", header)
		resp, err := r.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			t.Fatal(err)
		case resp.StatusCode == 200 && string(b) != content, resp.StatusCode == 416 && int64(len(b)) > 1000:
			t.Fatalf("%q: %d %q", header, resp.StatusCode, b)
		case resp.StatusCode == 206 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "multipart/") && !strings.Contains(content, string(b)):
			t.Fatalf("%q: %q", header, b)
		case resp.StatusCode != 200 && resp.StatusCode != 206 && resp.StatusCode != 416:
			t.Fatalf("%q: %s", header, resp.Status)
		}
	})
}
