package fathom

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/backend"
)

// TestOver plays the transcripts over further drivers.
func TestOver(t *testing.T) {
	backends.Over(t, []backend.Case{{Name: "RealTranscripts", Run: TestRealTranscripts}})
}

// TestRealTranscripts plays the transcripts over a real driver: the scripts of the faulty driver
// become programs with the same effect, and the transcript's times and memory become ranges for a
// real program.
func TestRealTranscripts(t *testing.T) {
	testenv.Need(t, testenv.Python)
	wiretest.Protocol{
		Serve: func(t *testing.T, setup string) wiretest.Dial {
			s := readSetting(t, setup)
			s.engine.AllowDegraded = true
			return wiretest.WebSocket(newRigOver(t, backends.New(t), s.engine, s.options).url, nil)
		},
		Split:    splits,
		Rewrite:  realize,
		Patience: 2 * time.Minute,
	}.Run(t, "testdata/*.txtar")
}

// onlyFaulty returns the transcripts that need faults on command, which no real driver has.
func onlyFaulty() []string {
	return []string{"infrastructure-error.txtar", "internal-error.txtar", "network-error.txtar"}
}

// atOnce returns the transcripts that "make test" plays over drivers other than native; "make
// test-all" plays all.
func atOnce() []string {
	return []string{"both-streams.txtar", "cancel.txtar", "exit-code.txtar", "many.txtar", "oom.txtar", "output-limit.txtar", "overloaded.txtar",
		"signal.txtar", "stdin-env.txtar", "success.txtar", "timeout.txtar", "utf8.txtar"}
}

// realize rewrites a transcript for a real driver; nil if it is not played there.
func realize(t *testing.T, name string, text []byte) []byte {
	t.Helper()
	below := strings.HasPrefix(t.Name(), backend.Over)
	switch {
	case slices.Contains(onlyFaulty(), name):
		t.Log("only the faulty driver does that")
		return nil
	case below && !testenv.Long() && !slices.Contains(atOnce(), name),
		name == "languages.txtar" && !(testenv.Node.Met() && testenv.Elixir.Met() && backend.Has(t, "javascript") && backend.Has(t, "elixir")),
		name == "language-missing.txtar" && (backend.Has(t, "elixir") || backend.Name(t) == "vm"): // vm: the check takes longer than an admission waits
		t.Log("left to make test-all, or to a driver whose sandboxes have those languages, or lack them")
		return nil
	case name == "oom.txtar" && backend.Name(t) == "e2b":
		t.Log("the template decides on memory, and not the limit of a request")
		return nil
	}
	archive := txtar.Parse(text)
	for i, f := range archive.Files {
		var lines []string
		for line := range strings.Lines(string(f.Data)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		switch side, _, _ := strings.Cut(f.Name, " "); side {
		case "setup":
			lines = slices.DeleteFunc(lines, func(l string) bool { return l == "missing elixir" }) // the interpreter is missing
		case "client":
			lines = realRequests(t, lines)
		case "server":
			lines = realAnswers(t, lines)
		}
		archive.Files[i].Data = []byte(strings.Join(append(lines, ""), "\n"))
	}
	return txtar.Format(archive)
}

// realRequests puts real programs into requests. Malformed requests are left unchanged.
func realRequests(t *testing.T, lines []string) []string {
	t.Helper()
	for i, line := range lines {
		var ask struct{ Type, Language, Code string }
		if json.Unmarshal([]byte(line), &ask) != nil || ask.Type != wire.Execute {
			continue
		}
		program, err := realProgram(ask.Language, ask.Code)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		// Only the code is replaced; re-encoding could change other parts of the request.
		was, _ := json.Marshal(ask.Code)
		is, _ := json.Marshal(program)
		line = strings.Replace(line, `"code":`+string(was), `"code":`+string(is), 1)
		// The shortest time limits are for programs that start within them.
		line = strings.Replace(line, `"timeout_ms":500,`, `"timeout_ms":5000,`, 1)
		lines[i] = line
	}
	return lines
}

// realAnswers accepts any resource usage of a real program, and any split of its output.
func realAnswers(t *testing.T, lines []string) (out []string) {
	t.Helper()
	var last map[string]any
	for _, line := range lines {
		var m map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if d.Decode(&m) != nil { // a comment, an event
			out, last = append(out, line), nil
			continue
		}
		if m["type"] == wire.ResultType {
			m["resource_usage"] = map[string]string{"peak_memory_mb": "$int", "cpu_time_ms": "$int"}
		}
		if splits(m) != "" && last != nil && last["type"] == m["type"] && last["id"] == m["id"] {
			m["data"] = last["data"].(string) + m["data"].(string)
			out = out[:len(out)-1]
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out, last = append(out, string(bytes.TrimSpace(b))), m
	}
	return out
}

// realProgram returns a program with the effect of a script of the faulty driver. Any other text is
// returned unchanged.
func realProgram(language, script string) (string, error) {
	var commands []string
	for line := range strings.Lines(script) {
		c, err := shellCommand(strings.TrimSpace(line))
		if err != nil {
			return "", err
		}
		commands = append(commands, c)
	}
	shell := strings.Join(commands, "\n")
	switch language {
	case "shell":
		return shell, nil
	case "python":
		return "import os\nos.execv('/bin/sh', ['sh', '-c', " + strconv.QuoteToASCII(shell) + "])\n", nil
	case "javascript", "js":
		return "process.stdout.write(require('child_process').execFileSync('/bin/sh', ['-c', " + strconv.QuoteToASCII(shell) + "]))\n", nil
	case "elixir":
		if _, rest, ok := strings.Cut(script, "print stdout "); ok {
			return "IO.puts(" + strconv.QuoteToASCII(rest) + ")\n", nil
		}
	}
	return script, nil
}

// shellCommand returns the shell command for a command of the faulty driver.
func shellCommand(line string) (string, error) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "", "exit", "fn", "IO.puts(1)":
		return line, nil
	case "print", "write", "dribble":
		return shellWrite(verb, rest)
	case "block-until":
		return "sleep 1000", nil
	case "ignore-term":
		return "trap '' TERM", nil
	case "echo-stdin":
		return "cat", nil
	case "count-stdin":
		return "wc -c", nil
	case "env":
		return fmt.Sprintf(`if [ "${%[1]s+x}" ]; then printf '%%s=%%s\n' %[1]s "$%[1]s"; else echo '%[1]s is unset'; fi`, rest), nil
	case "signal":
		return "kill -" + rest + " $$", nil
	case "oom":
		// More than the limit, but less than a single allocation may have: where only the sum of
		// the used memory is limited, a larger allocation fails, and the program with it.
		return `exec python3 -c "b = b'x' * (300 << 20); import time; time.sleep(1000)"`, nil
	case "usage": // any usage
		return ":", nil
	}
	return "", fmt.Errorf("no shell command does %s", verb)
}

// shellWrite writes text to a stream, byte by byte if requested.
func shellWrite(verb, rest string) (string, error) {
	stream, text, _ := strings.Cut(rest, " ")
	if verb == "dribble" {
		text = text[:strings.LastIndexByte(text, ' ')]
	}
	if text[0] == '"' {
		var err error
		if text, err = strconv.Unquote(text); err != nil {
			return "", err
		}
	}
	if verb == "print" {
		text += "\n"
	}
	pause := ""
	if verb == "dribble" {
		pause = "'; sleep 0.001; printf '"
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "\\%03o%s", c, pause)
	}
	to := ""
	if stream == "stderr" {
		to = " >&2"
	}
	return "{ printf '" + b.String() + "'; }" + to, nil
}
