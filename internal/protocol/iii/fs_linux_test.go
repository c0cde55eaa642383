package iii

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// withID adds the sandbox to a request.
func withID(id string, ask object) object {
	o := object{"sandbox_id": id}
	for k, v := range ask {
		o[k] = v
	}
	return o
}

// tree creates files for a test, with a script that runs in /tmp/t.
func (c *client) tree(id, script string) {
	c.t.Helper()
	c.sh(id, "rm -rf /tmp/t; mkdir /tmp/t && cd /tmp/t && umask 022 && "+script)
}

func TestLsAndStat(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.tree(id, `printf 12345 >b; mkdir -m 1777 a; ln -s b link; ln -s nowhere dangling; chmod 4755 b; touch .hidden; mkfifo fifo; touch -d @1000 .hidden; printf x >"$(printf 'n\377')"`)
	var got []string
	for _, e := range c.call("sandbox::fs::ls", withID(id, object{"path": "/tmp/t"}))["entries"].([]any) {
		o := e.(map[string]any)
		size := o["size"]
		if o["is_dir"] == true {
			size = "-"
		}
		got = append(got, fmt.Sprintf("%v dir=%v link=%v %v %v", o["name"], o["is_dir"], o["is_symlink"], o["mode"], size))
	}
	want := []string{".hidden dir=false link=false 0644 0", "a dir=true link=false 1777 -", "b dir=false link=false 4755 5",
		"dangling dir=false link=true 0777 7", "fifo dir=false link=false 0644 0", "link dir=false link=true 0777 1", "n\ufffd dir=false link=false 0644 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for path, name := range map[string]string{"/tmp/t/.hidden": ".hidden", "/tmp/t/a/": "a", "/tmp/t/a/.": "a", "/": "/", "/tmp/..": "/tmp/..", "tmp/t/link": "link"} {
		if s := c.call("sandbox::fs::stat", withID(id, object{"path": path})); s["name"] != name {
			t.Errorf("%s: %v", path, s)
		}
	}
	if s := c.call("sandbox::fs::stat", withID(id, object{"path": "/tmp/t/.hidden"})); s["mtime"] != 1000.0 {
		t.Errorf("%v", s)
	}
	for path, code := range map[string]string{"/tmp/t/b": "S212", "/tmp/t/link": "S212", "/tmp/t/nope": "S211", "/tmp/t/b/x": "S216", "": "S211"} {
		c.failed("sandbox::fs::ls", withID(id, object{"path": path}), code)
	}
}

// TestFileFailures tests every refused file operation: its code, the start of its message and the
// change in its fix.
func TestFileFailures(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.tree(id, `mkdir -p d/e full; echo x >f; echo x >full/f; mkfifo fifo; ln -s loop loop; mkdir -m 0 closed; head -c 1000 /dev/zero >zero`)
	const d = "/tmp/t/"
	for _, x := range []struct {
		op      string
		ask     object
		code    string
		message string
		fix     object // additional fields of the fix
	}{
		{"stat", object{"path": d + "x"}, "S211", "file not found: path not found: /tmp/t/x", nil},
		{"stat", object{"path": d + "f/x"}, "S216", "fs i/o error: /tmp/t/f/x: Not a directory (os error 20)", nil},
		{"stat", object{"path": d + "closed/x"}, "S215", "permission denied: /tmp/t/closed/x: Permission denied (os error 13)", nil},
		{"stat", object{"path": d + strings.Repeat("n", 300)}, "S216", "fs i/o error: /tmp/t/nnn", nil},
		{"stat", object{"path": d + "a\x00b"}, "S210", "", nil},
		{"ls", object{"path": d + "f"}, "S212", "not a directory or wrong type: not a directory: /tmp/t/f", nil},
		{"ls", object{"path": d + "closed"}, "S215", "permission denied: /tmp/t/closed", nil},
		{"mkdir", object{"path": d + "d"}, "S213", "already exists: path already exists: /tmp/t/d", nil},
		{"mkdir", object{"path": d + "x/y"}, "S211", "file not found: parent not found: /tmp/t/x/y", object{"parents": true}},
		{"mkdir", object{"path": d + "f/y", "parents": true}, "S216", "fs i/o error: ", nil},
		{"mkdir", object{"path": d + "x", "mode": "9x"}, "S210", "invalid octal mode: 9x", nil},
		{"mkdir", object{"path": d + "x", "mode": "0o750"}, "S210", "invalid octal mode: 0o750", object{"mode": "0750"}},
		{"rm", object{"path": d + "x"}, "S211", "file not found: path not found: /tmp/t/x", nil},
		{"rm", object{"path": d + "full"}, "S214", "directory not empty: directory not empty: /tmp/t/full", nil},
		{"rm", object{"path": "/usr/bin/env"}, "S216", "fs i/o error: /usr/bin/env: Read-only file system (os error 30)", nil},
		{"chmod", object{"path": d + "x", "mode": "0644"}, "S211", "file not found: path not found: /tmp/t/x", nil},
		{"chmod", object{"path": d + "f", "mode": "rwx"}, "S210", "invalid octal mode: rwx", nil},
		{"chmod", object{"path": d + "f", "mode": "04755"}, "S210", d + "f: change mode of \"" + d + "f\": the mode 04755 has the set-user-ID", nil},
		{"chmod", object{"path": d, "mode": "2755", "recursive": true}, "S210", d + ": change mode of", nil},
		{"mkdir", object{"path": d + "x", "mode": "6755"}, "S210", d + "x: make directory", nil},
		{"write", object{"path": d + "x", "content": "c", "mode": "4755"}, "S210", d + "x: create", nil},
		{"chmod", object{"path": d + "loop", "mode": "0644"}, "S216", "fs i/o error: /tmp/t/loop: ", nil},
		{"chmod", object{"path": d + "f", "mode": "0644", "uid": 12345}, "S215", "permission denied: /tmp/t/f: Operation not permitted (os error 1)", nil},
		{"chmod", object{"path": d + "full", "mode": "0700", "gid": 12345, "recursive": true}, "S215", "permission denied: /tmp/t/full: Operation not permitted (os error 1)", nil},
		{"chmod", object{"path": d + "f", "mode": "0644", "uid": 0}, "S215", "permission denied: /tmp/t/f: Operation not permitted (os error 1)", nil},
		{"mv", object{"src": d + "x", "dst": d + "y"}, "S211", "file not found: src not found: /tmp/t/x", nil},
		{"mv", object{"src": d + "f", "dst": d + "x/y"}, "S211", "file not found: dst not found: /tmp/t/x/y", nil},
		{"mv", object{"src": d + "f", "dst": d + "d"}, "S213", "already exists: dst already exists: /tmp/t/d", nil},
		{"mv", object{"src": d + "f", "dst": d + "d", "overwrite": true}, "S216", "fs i/o error: ", nil},
		{"mv", object{"src": d + "d", "dst": d + "full", "overwrite": true}, "S214", "directory not empty: ", nil},
		{"read", object{"path": d + "x"}, "S211", "file not found: path not found: /tmp/t/x", nil},
		{"read", object{"path": d + "d"}, "S212", "not a directory or wrong type: is a directory: /tmp/t/d", nil},
		{"read", object{"path": d + "fifo"}, "S216", "fs i/o error: /tmp/t/fifo: ", nil},
		{"write", object{"path": d + "x/y", "content": "c"}, "S211", "parent directory not found: parent not found: /tmp/t/x/y", object{"parents": true}},
		{"write", object{"path": d + "f/y", "content": "c"}, "S211", "parent directory not found: ", nil}, // a file is in the way
		{"write", object{"path": d + "f/y", "content": "c", "parents": true}, "S216", "fs i/o error: ", nil},
		{"write", object{"path": d + "d", "content": "c"}, "S216", "fs i/o error: /tmp/t/d: Is a directory (os error 21)", nil},
		{"write", object{"path": d + "x", "content": "c", "mode": "8"}, "S210", "invalid octal mode: 8", nil},
		{"write", object{"path": d + "x"}, "S001", "invalid request: exactly one of content and content_b64", nil},
		{"write", object{"path": d + "x", "content": "a", "content_b64": "YQ=="}, "S001", "invalid request: exactly one", nil},
		{"write", object{"path": d + "x", "content_b64": "YQ"}, "S001", "invalid request: content_b64 is not valid base64", nil},
		{"write", object{"path": d + "x", "content": object{"channel_id": "no", "access_key": "no", "direction": "read"}}, "S218", "fs channel aborted: ", nil},
		{"grep", object{"path": d + "x", "pattern": "a"}, "S211", "file not found: path not found: /tmp/t/x", nil},
		{"grep", object{"path": d, "pattern": "("}, "S217", "invalid regex pattern: bad regex: ", nil},
		{"grep", object{"path": d, "pattern": "a", "recursive": false}, "S210", "grep: /tmp/t/ is a directory and recursive is false", object{"recursive": true}},
		{"grep", object{"path": d + "fifo", "pattern": "a"}, "S216", "fs i/o error: /tmp/t/fifo", nil},
		{"grep", object{"path": d + "loop", "pattern": "a"}, "S216", "fs i/o error: /tmp/t/loop", nil},
		{"sed", object{"path": d, "files": []string{d + "f"}, "pattern": "a", "replacement": "b"}, "S210", "sed: provide exactly one of files or path, not both", nil},
		{"sed", object{"pattern": "a", "replacement": "b"}, "S210", "sed: provide exactly one of files or path", nil},
		{"sed", object{"path": d, "pattern": "", "replacement": "b", "regex": false}, "S210", "sed: the pattern is empty", nil},
		{"sed", object{"path": d, "pattern": "(", "replacement": "b"}, "S217", "invalid regex pattern: ", nil},
		{"sed", object{"path": d, "pattern": "a", "replacement": "b", "recursive": false}, "S210", "sed: /tmp/t/ is a directory", object{"recursive": true}},
		{"sed", object{"path": d + "x", "pattern": "a", "replacement": "b"}, "S211", "file not found: ", nil},
	} {
		if backend.Root(t) && regexp.MustCompile("/closed|permi|Read-only").MatchString(fmt.Sprint(x.ask, x.message)) {
			continue // root may do it
		}
		if x.ask["path"] == "/usr/bin/env" && backend.Name(t) == "gvisor" {
			// gVisor checks the directory's owner before it checks for a read-only file system.
			x.code, x.message = "S215", "permission denied: /usr/bin/env: Permission denied (os error 13)"
		}
		t.Run(fmt.Sprint(x.op, x.ask), func(t *testing.T) {
			ask := withID(id, x.ask)
			got := c.failed("sandbox::fs::"+x.op, ask, x.code)
			if !strings.HasPrefix(got["message"].(string), x.message) {
				t.Errorf("%v", got["message"])
			}
			if x.fix == nil {
				if got["fix"] != nil {
					t.Errorf("there is a fix: %v", got["fix"])
				}
				return
			}
			var want object
			for k, v := range x.fix {
				want = withID("", ask)
				want[k] = v
			}
			if diff := cmp.Diff(map[string]any(want), got["fix"]); diff != "" {
				t.Errorf("fix (-want +got):\n%s", diff)
			}
			// The fix can be sent unchanged.
			c.call("sandbox::fs::"+x.op, want)
			c.sh(id, "rm -rf /tmp/t/x")
		})
	}
}

func TestMkdirRmChmodMv(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.tree(id, "true")
	do := func(op string, ask object) string {
		t.Helper()
		return text(c.call("sandbox::fs::"+op, withID(id, ask)))
	}
	mode := func(path string) string {
		t.Helper()
		return strings.TrimSpace(c.sh(id, "stat -c %a "+path))
	}
	const d = "/tmp/t/"
	var uid, gid int
	if _, err := fmt.Sscan(c.sh(id, "id -u; id -g"), &uid, &gid); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ got, want string }{
		{do("mkdir", object{"path": d + "a"}), `{"created":true}`},
		{mode(d + "a"), "755"},
		{do("mkdir", object{"path": d + "p/q/r", "parents": true, "mode": "1777"}), `{"created":true}`},
		{mode(d + "p/q/r"), "1777"},
		{mode(d + "p/q"), "755"},
		{do("mkdir", object{"path": d + "p/q/r", "parents": true, "mode": "0700"}), `{"created":false}`},
		{mode(d + "p/q/r"), "1777"},
		{do("mkdir", object{"path": d + "zero", "mode": ""}), `{"created":true}`},
		{mode(d + "zero"), "0"},
		{c.sh(id, "cd "+d+"; touch f p/f p/q/g; ln -s f l; ln -s nowhere p/dangling; ln -s ../f p/l"), ""},
		{do("chmod", object{"path": d + "l", "mode": "600"}), `{"updated":1}`},
		{mode(d + "f"), "600"},
		{do("chmod", object{"path": d + "p", "mode": "0770", "recursive": true}), `{"updated":5}`},
		{mode(d+"p/q/g") + " " + mode(d+"p/q/r") + " " + mode(d+"p") + " " + mode(d+"f"), "770 770 770 600"},
		{do("chmod", object{"path": d + "f", "mode": "0", "recursive": true}), `{"updated":1}`},
		{mode(d + "f"), "0"},
		{do("chmod", object{"path": d + "f", "mode": "1755", "uid": nil}), `{"updated":1}`},
		{mode(d + "f"), "1755"},
		// A chown to the present owner, then the mode.
		{do("chmod", object{"path": d + "f", "mode": "1711", "uid": uid, "gid": gid}), `{"updated":1}`},
		{mode(d + "f"), "1711"},
		{do("chmod", object{"path": d + "p", "mode": "1770", "uid": uid, "recursive": true}), `{"updated":5}`},
		{mode(d+"p/q/g") + " " + mode(d+"p"), "1770 1770"},
		{do("chmod", object{"path": d + "l", "mode": "1755", "gid": gid}), `{"updated":1}`},
		{mode(d + "f"), "1755"},
		{do("mv", object{"src": d + "f", "dst": d + "g"}), `{"moved":true}`},
		{do("mv", object{"src": d + "g", "dst": d + "p/f", "overwrite": true}), `{"moved":true}`},
		{mode(d + "p/f"), "1755"},
		{do("mv", object{"src": d + "p", "dst": d + "P"}), `{"moved":true}`},
		{do("mv", object{"src": d + "P/dangling", "dst": d + "dangling"}), `{"moved":true}`},
		{c.sh(id, "readlink "+d+"dangling"), "nowhere\n"},
		// Across file systems.
		{c.sh(id, "echo text >"+d+"far; chmod 6640 "+d+"far"), ""},
		{do("mv", object{"src": d + "far", "dst": "/dev/shm/far"}), `{"moved":true}`},
		{mode("/dev/shm/far") + c.sh(id, "cat /dev/shm/far; ls "+d+"far 2>&1 | wc -l"), "640text\n1\n"},
		{do("rm", object{"path": d + "l"}), `{"removed":true}`},
		{do("rm", object{"path": d + "a"}), `{"removed":true}`},
		{do("rm", object{"path": d + "P", "recursive": true}), `{"removed":true}`},
		{c.sh(id, "ls -A "+d), "dangling\nzero\n"},
	} {
		if x.got != x.want {
			t.Errorf("%q, want %q", x.got, x.want)
		}
	}
}

func TestWriteInline(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.tree(id, "echo old >target; ln -s target link")
	const d = "/tmp/t/"
	write := func(ask object) {
		t.Helper()
		c.call("sandbox::fs::write", withID(id, ask))
	}
	got := c.call("sandbox::fs::write", withID(id, object{"path": d + "f", "content": "héllo\n"}))
	if diff := cmp.Diff(object{"bytes_written": 7.0, "path": d + "f"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	write(object{"path": d + "empty", "content": ""})
	write(object{"path": d + "bytes", "content_b64": b64("\x00\xff"), "content": nil})
	write(object{"path": d + "x/y/z", "content": "deep", "parents": true, "mode": "0600"})
	write(object{"path": d + "link", "content": "new"})
	write(object{"path": d + "zero", "content": "z", "mode": "0"})
	write(object{"path": "tmp/t/relative", "content": "r", "mode": "0111"})
	out := c.sh(id, `cd /tmp/t; stat -c '%n %s %a %F' *; cat f target x/y/z; od -An -tx1 bytes`)
	want := `bytes 2 644 regular file
empty 0 644 regular empty file
f 7 644 regular file
link 3 644 regular file
relative 1 111 regular file
target 4 644 regular file
x SIZE 755 directory
zero 1 0 regular file
héllo
old
deep 00 ff
`
	out = regexp.MustCompile(`x \d+ 755`).ReplaceAllString(out, "x SIZE 755")
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func matches(o object) (all []string) {
	for _, m := range o["matches"].([]any) {
		m := m.(map[string]any)
		all = append(all, fmt.Sprintf("%s:%v:%s", m["path"], m["line"], m["content"]))
	}
	return all
}

func TestGrepFiles(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	closed := "echo needle >closed/c; chmod 0 closed"
	if backend.Root(t) {
		closed = ":"
	}
	c.tree(id, `mkdir -p src/deep .git node_modules closed; echo 'needle one' >src/a.js; printf 'x\nNEEDLE two\nneedle three' >src/deep/b.ts; echo needle >.git/config;
		echo needle >node_modules/m.js; printf 'needle\000' >binary; mkfifo fifo; ln -s src link; ln -s src/a.js filelink; ln -s ../.. src/loop; echo needle >.hidden; `+closed)
	for _, x := range []struct {
		name      string
		ask       object
		want      []string
		truncated bool
	}{
		{"everything", object{"path": "/tmp/t", "pattern": "needle"}, []string{"/tmp/t/.git/config:1:needle", "/tmp/t/.hidden:1:needle",
			"/tmp/t/node_modules/m.js:1:needle", "/tmp/t/src/a.js:1:needle one", "/tmp/t/src/deep/b.ts:3:needle three"}, false},
		{"case", object{"path": "/tmp/t/src/", "pattern": "needle", "ignore_case": true}, []string{"/tmp/t/src/a.js:1:needle one",
			"/tmp/t/src/deep/b.ts:2:NEEDLE two", "/tmp/t/src/deep/b.ts:3:needle three"}, false},
		{"globs", object{"path": "/tmp/t", "pattern": "needle", "include_glob": []string{"**/*.js", "src/deep/*"}, "exclude_glob": []string{"node_modules/*"}},
			[]string{"/tmp/t/src/a.js:1:needle one", "/tmp/t/src/deep/b.ts:3:needle three"}, false},
		{"one file", object{"path": "/tmp/t/src/a.js", "pattern": "n", "recursive": false}, []string{"/tmp/t/src/a.js:1:needle one"}, false},
		{"one file that is not chosen", object{"path": "/tmp/t/src/a.js", "pattern": "n", "include_glob": []string{"*.ts"}}, nil, false},
		{"a link to a directory", object{"path": "/tmp/t/link", "pattern": "one"}, []string{"/tmp/t/link/a.js:1:needle one"}, false},
		{"a link to a file", object{"path": "/tmp/t/filelink", "pattern": "one"}, []string{"/tmp/t/filelink:1:needle one"}, false},
		{"limits", object{"path": "/tmp/t/src", "pattern": "needle", "max_matches": 1, "max_line_bytes": 3}, []string{"/tmp/t/src/a.js:1:nee…"}, true},
		{"exactly the limit", object{"path": "/tmp/t/src", "pattern": "needle", "max_matches": 2}, []string{"/tmp/t/src/a.js:1:needle one", "/tmp/t/src/deep/b.ts:3:needle three"}, true},
		{"no limits", object{"path": "/tmp/t/src", "pattern": "needle", "max_matches": 0, "max_line_bytes": 0}, []string{"/tmp/t/src/a.js:1:needle one", "/tmp/t/src/deep/b.ts:3:needle three"}, false},
		{"nothing", object{"path": "/tmp/t", "pattern": "haystack"}, nil, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			got := c.call("sandbox::fs::grep", withID(id, x.ask))
			if diff := cmp.Diff(x.want, matches(got)); diff != "" || got["truncated"] != x.truncated {
				t.Errorf("truncated %v (-want +got):\n%s", got["truncated"], diff)
			}
		})
	}
	// Kernel file systems below the root are skipped.
	c.call("sandbox::fs::grep", withID(id, object{"path": "/", "pattern": "needle", "include_glob": []string{"*.js"}, "max_matches": 1}))
	if backend.Root(t) {
		return
	}
	// An unreadable file ends the search.
	c.sh(id, "chmod 0 /tmp/t/src/a.js")
	c.failed("sandbox::fs::grep", withID(id, object{"path": "/tmp/t", "pattern": "needle"}), "S215")
}

func TestGrepManyFilesInOrder(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.tree(id, `for d in $(seq -w 0 19); do mkdir d$d; for f in $(seq -w 0 99); do echo "line $d $f" >d$d/f$f; done; done`)
	got := matches(c.call("sandbox::fs::grep", withID(id, object{"path": "/tmp/t", "pattern": "line .."})))
	if len(got) != 2000 || !slices.IsSorted(got) || got[1999] != "/tmp/t/d19/f99:1:line 19 99" {
		t.Errorf("%d matches, the last is %q", len(got), got[len(got)-1])
	}
}

func TestSedFiles(t *testing.T) {
	c := newReal(t, Options{}).connect()
	id := c.create()
	c.tree(id, `mkdir d; printf 'foo foo\nfoo\n' >a; chmod 751 a; echo bar >b; ln -s a link; ln -s d dlink; printf 'foo\377' >bad; echo foo >d/x.js; echo foo >d/y.ts; echo foo >ro; chmod 444 ro`)
	before := c.sh(id, "stat -c %i /tmp/t/b")
	const d = "/tmp/t/"
	got := c.call("sandbox::fs::sed", withID(id, object{"files": []string{d + "a", d + "b", d + "missing", d + "bad", d + "link", d + "ro"},
		"pattern": "(f)oo", "replacement": "${1}u", "first_only": true}))
	want := []any{
		map[string]any{"path": d + "a", "replacements": 2.0, "success": true},
		map[string]any{"path": d + "b", "replacements": 0.0, "success": true},
		map[string]any{"path": d + "missing", "replacements": 0.0, "success": false, "error": "No such file or directory (os error 2)"},
		map[string]any{"path": d + "bad", "replacements": 0.0, "success": false, "error": "stream did not contain valid UTF-8"},
		map[string]any{"path": d + "link", "replacements": 1.0, "success": true},
		map[string]any{"path": d + "ro", "replacements": 1.0, "success": true},
	}
	if diff := cmp.Diff(want, got["results"]); diff != "" || got["total_replacements"] != 4.0 {
		t.Errorf("total %v (-want +got):\n%s", got["total_replacements"], diff)
	}
	if out := c.sh(id, "cd /tmp/t; cat a; stat -c '%a %F' a link ro; cat ro"); out != "fu fu\nfu\n751 regular file\n777 symbolic link\n444 regular file\nfu\n" {
		t.Errorf("%s", out)
	}
	if c.sh(id, "stat -c %i /tmp/t/b") != before {
		t.Error("a file in which nothing was replaced was written")
	}
	got = c.call("sandbox::fs::sed", withID(id, object{"path": d + "dlink", "pattern": "foo$", "replacement": "$1", "include_glob": []string{"*.js"}}))
	if diff := cmp.Diff([]any{map[string]any{"path": d + "dlink/x.js", "replacements": 1.0, "success": true}}, got["results"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = c.call("sandbox::fs::sed", withID(id, object{"path": d + "d", "pattern": "O", "replacement": "$1", "regex": false, "ignore_case": true}))
	if got["total_replacements"] != 2.0 || c.sh(id, "cat /tmp/t/d/x.js /tmp/t/d/y.ts") != "\nf$1$1\n" {
		t.Errorf("%v", got)
	}
	if got := text(c.call("sandbox::fs::sed", withID(id, object{"path": d + "d", "pattern": "x", "replacement": "", "include_glob": []string{"*.none"}}))); got != `{"results":[],"total_replacements":0}` {
		t.Errorf("%s", got)
	}
}
