//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// put replaces a file of the daemon's directory.
func (p *process) put(name, text string) {
	p.t.Helper()
	write(p.t, filepath.Join(p.dir, name), text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// SIGHUP applies new tokens, clients and settings. Running programs and connections that used old
// tokens continue.
func TestReload(t *testing.T) {
	eachDriver(t, func(t *testing.T, environ []string) {
		dir := t.TempDir()
		settings := "token_file: " + dir + "/token\nclients: [{name: ci, token_file: " + dir + "/ci}]\n"
		write(t, filepath.Join(dir, "config"), settings)
		write(t, filepath.Join(dir, "token"), "t\n")
		write(t, filepath.Join(dir, "ci"), "old-client\n")
		p := serve(t, dir, append(environ, "SANDBAR_CONFIG="+dir+"/config"))
		opens := func(want map[string]int) {
			t.Helper()
			for token, code := range want {
				if got, _ := p.get("/sandboxes", token); got != code {
					t.Errorf("token %q: status %d, want %d", token, got, code)
				}
			}
		}
		opens(map[string]int{"t": 200, "old-client": 200, "new": 401, "new-client": 401})

		id := p.expect(0, `sb_[a-z2-7]{26}\n`, ``, "create")
		under := p.command("exec", id, "--", "sh", "-c", "echo up; read line; echo got $line")
		in, err := under.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := under.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := under.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		if line, err := said.ReadString('\n'); line != "up\n" {
			t.Fatalf("the command under way: %q, %v", line, err)
		}
		ws, ctx := p.dial("t")

		p.put("token", "new\n")
		p.put("ci", "new-client\n")
		p.put("config", settings+"log: {level: warn}\nmax_queue: 7\n")
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.stderr.await(t, `level=WARN msg="changed settings need a restart" settings=\[max_queue\]`)
		opens(map[string]int{"t": 401, "old-client": 401, "new": 200, "new-client": 200})

		execute(ctx, t, ws, "shell", "echo still")
		until(ctx, t, ws, "result")
		io.WriteString(in, "it\n")
		in.Close()
		rest, _ := io.ReadAll(said)
		if err := under.Wait(); err != nil || string(rest) != "got it\n" {
			t.Errorf("the command that was under way: %v, %q", err, rest)
		}
		p.ends(0, syscall.SIGTERM)
		text, _ := p.stderr.look()
		if strings.Contains(text, "msg=stopped") {
			t.Error("the new level of the log is not in force")
		}
		for _, secret := range []string{"new-client", "old-client"} {
			if strings.Contains(text, secret) {
				t.Errorf("the token %s is in the log", secret)
			}
		}
	})
}

// An invalid configuration changes nothing, and the log has the reason. SIGHUP never ends the
// daemon.
func TestReloadOfMistakes(t *testing.T) {
	dir := t.TempDir()
	good := "token_file: " + dir + "/token\n"
	write(t, filepath.Join(dir, "config"), good)
	write(t, filepath.Join(dir, "token"), "first\n")
	p := serve(t, dir, []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true", "SANDBAR_CONFIG=" + dir + "/config"})
	for _, c := range []struct{ config, token, says string }{
		{"token_fiel: x\n", "second\n", `config:1`},
		{good + "limits: {default: {memory: lots}}\n", "second\n", `limits.default.memory`},
		{good, "two\nlines\n", `holds no token`},
		{good + "clients: [{name: a, token_file: " + dir + "/none}]\n", "second\n", `none`},
		{good + "clients: [{name: a, token_file: " + dir + "/token}]\n", "second\n", `also that of another client`},
	} {
		p.put("config", c.config)
		p.put("token", c.token)
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.stderr.await(t, `the old one stays in force" error="[^\n]*`+c.says)
		if code, _ := p.get("/metrics", "first"); code != 200 {
			t.Errorf("%s: the old token: status %d", c.config, code)
		}
		if code, _ := p.get("/metrics", "second"); code != 401 {
			t.Errorf("%s: the new token: status %d", c.config, code)
		}
	}
	p.put("config", good)
	p.put("token", "second\n")
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.stderr.await(t, `msg="reloaded the configuration and the tokens"`)
	if code, _ := p.get("/metrics", "second"); code != 200 {
		t.Errorf("after the mistakes: status %d", code)
	}
	p.ends(0, syscall.SIGTERM)
}
