package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// scene is one program and its expected outcome.
type scene struct {
	title    string
	language string
	needs    string // the interpreter, which the host may lack
	code     string
	stdin    string
	limits   limits
	quiet    bool // its output is too much to show
	check    func(outcome) error
}

// defaultLimits are the limits of scenes without their own.
var defaultLimits = limits{Timeout: 20_000, Memory: 256}

// programs are the scenes with ordinary programs.
func programs() []scene {
	return []scene{{
		title:    "Python, its output streaming in while it runs",
		language: "python",
		needs:    "python3",
		code: `import time, platform
for n in range(1, 4):
    print("line", n, flush=True)
    time.sleep(0.2)
print("Python", platform.python_version())`,
		check: ended(0, "line 3"),
	}, {
		title:    "JavaScript, reading its input",
		language: "javascript",
		needs:    "node",
		code: `const numbers = require('fs').readFileSync(0, 'utf8').trim().split(/\s+/).map(Number)
console.log(numbers.join(' + '), '=', numbers.reduce((a, b) => a + b))`,
		stdin: "1 2 3 4 5\n",
		check: ended(0, "1 + 2 + 3 + 4 + 5 = 15"),
	}, {
		title:    "Elixir",
		language: "elixir",
		needs:    "elixir",
		code: `1..5 |> Task.async_stream(&(&1 * &1)) |> Enum.map(&elem(&1, 1)) |> IO.inspect()
IO.puts("Elixir #{System.version()}")`,
		limits: limits{Timeout: 60_000, Memory: 512},
		check:  ended(0, "[1, 4, 9, 16, 25]"),
	}, {
		title:    "shell, looking around, and ending with a code of its own",
		language: "shell",
		code: `echo "I am $(id -u) on $(cat /proc/sys/kernel/hostname), process $$ of:"
for p in /proc/[0-9]*; do echo "  ${p#/proc/} $(cat $p/comm)"; done
echo "home: $(pwd)"; echo "to stderr" >&2
exit 3`,
		check: ended(3, "home: /home/user"),
	}, {
		title:    "an unknown language",
		language: "klingon",
		code:     "qapla'",
		check: func(o outcome) error {
			return expect(o.Error == "LANGUAGE_NOT_SUPPORTED" && o.Status == "", "an error LANGUAGE_NOT_SUPPORTED")
		},
	}}
}

// attacks are the scenes with malicious programs. address is the server's.
func attacks(address string) []scene {
	host, port, _ := strings.Cut(address, ":")
	return []scene{{
		title:    "reading this machine's secrets",
		language: "shell",
		code: `for f in /etc/shadow /etc/sudoers /root /home /var /proc/1/environ /proc/1/mem; do
  if [ -d $f ]; then echo "$f: $(ls -A $f 2>&1)"; else echo "$f: $(head -c 80 $f 2>&1)"; fi
done
env | grep TOKEN || echo "no token in the environment"`,
		check: func(o outcome) error {
			return errors.Join(ended(0, "no token in the environment")(o), keepsSecrets(o.Stdout))
		},
	}, {
		title:    "calling the server that runs it, and the network",
		language: "python",
		needs:    "python3",
		code: fmt.Sprintf(`import socket
for address in [(%q, %s), ("1.1.1.1", 53), ("169.254.169.254", 80)]:
    try:
        socket.create_connection(address, timeout=2).close()
        print(address, "REACHED")
    except OSError as e:
        print(address, e)`, host, port),
		check: func(o outcome) error {
			return errors.Join(ended(0, host)(o), expect(!strings.Contains(o.Stdout, "REACHED"), "nothing to be reached"))
		},
	}, {
		title:    "a fork bomb",
		language: "shell",
		code:     `b() { b | b & } 2>/dev/null; b; sleep 60`,
		limits:   limits{Timeout: 1500, Memory: 128},
		quiet:    true,
		check: func(o outcome) error {
			return expect(o.Status == "timeout" || o.Status == "failed" || o.Status == "oom", "the program to be killed or to fail")
		},
	}, {
		title:    "allocating all memory",
		language: "shell",
		code:     `x=12345678; while :; do x=$x$x; done`,
		limits:   limits{Timeout: 20_000, Memory: 32},
		check:    killed("oom"),
	}, {
		title:    "an endless loop that ignores being asked to stop",
		language: "shell",
		code:     `trap '' TERM INT HUP; while :; do :; done`,
		limits:   limits{Timeout: 500, Memory: 64},
		check:    killed("timeout"),
	}, {
		title:    "flooding whoever listens",
		language: "shell",
		code:     `while :; do echo 0123456789abcdef0123456789abcdef0123456789abcdef; done`,
		limits:   limits{Timeout: 20_000, Memory: 64, MaxOutput: 65_536},
		quiet:    true,
		check: func(o outcome) error {
			return errors.Join(
				expect(o.Error == "OUTPUT_LIMIT" && o.Status == "failed" && o.Exit == nil, "status failed and error OUTPUT_LIMIT"),
				expect(len(o.Stdout) == 65_536, "exactly 65536 bytes, not %d", len(o.Stdout)))
		},
	}, {
		title:    "leaving something behind",
		language: "shell",
		code:     `(setsid sh -c 'trap "" TERM HUP; exec sleep 1000' >/dev/null 2>&1 &); echo "a child of mine sleeps on"`,
		check:    ended(0, "sleeps on"),
	}}
}

// ended expects a program that exited and wrote the given text.
func ended(code int, text string) func(outcome) error {
	status := "completed"
	if code != 0 {
		status = "failed"
	}
	return func(o outcome) error {
		return errors.Join(
			expect(o.Status == status, "status %s", status),
			expect(o.Exit != nil && *o.Exit == code, "exit code %d", code),
			expect(strings.Contains(o.Stdout, text), "%q in its output", text))
	}
}

// killed expects a program that was killed.
func killed(status string) func(outcome) error {
	return func(o outcome) error {
		return errors.Join(expect(o.Status == status, "status %s", status), expect(o.Exit == nil, "no exit code"))
	}
}

func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("expected "+format, args...)
}

// keepsSecrets expects that a program's output contains no line of this machine's password file,
// or, if this user cannot read that, no line of its form.
func keepsSecrets(output string) error {
	shadow, _ := os.ReadFile("/etc/shadow")
	for line := range strings.Lines(string(shadow)) {
		if line = strings.TrimSpace(line); line != "" && strings.Contains(output, line) {
			return errors.New("expected /etc/shadow to be out of reach")
		}
	}
	return expect(!shadowLine.MatchString(output), "nothing that looks like /etc/shadow")
}

// shadowLine matches a line of shadow(5): a name, a hash, the day of the last change.
var shadowLine = regexp.MustCompile(`\b[a-z_][a-z0-9_-]*:[^:\s]*:[0-9]+:`)

// The number of programs that together runs at once, and the duration of each.
const (
	crowd      = 16
	crowdSleep = 300 * time.Millisecond
)
