package kernel

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// A shell cannot write frames. It writes the outputs of cells to its own outputs, and after each
// cell a mark to both: a NUL, the token of the cell, a blank, the exit status, and a NUL. The host
// chooses a random token for each cell.

// bootShell makes an interactive shell quiet. It keeps its outputs for the marks, so that a cell
// may redirect them. A shell must be interactive so that SIGINT ends the cell and not the shell.
const bootShell = `exec 200>&1 201>&2 2>/dev/null; set +H +o history; exec 2>&201; unset PS1 PS2 PROMPT_COMMAND HISTFILE SANDBAR
`

// shellCell returns the lines that run a cell. The mark is a line of its own, because SIGINT drops
// the line that runs.
func shellCell(c Cell, token string) (string, error) {
	var b strings.Builder
	for name, value := range c.Env {
		if !isIdentifier(name) {
			return "", &sandbar.Error{Code: sandbar.Invalid, Field: "env", Message: "a shell has no variables with the name " + sandbar.Quote(name, 40)}
		}
		b.WriteString(name + "=" + shellQuote(value) + " ")
	}
	if strings.ContainsRune(c.Code, 0) {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "code", Message: "the code has a NUL, which a shell cannot read"}
	}
	b.WriteString("eval " + shellQuote(c.Code) + " </dev/null\n")
	b.WriteString(markLine(token))
	return b.String(), nil
}

// markLine returns the line that writes a mark.
func markLine(token string) string {
	return `\builtin printf '\0%s %d\0' ` + token + ` $? >&200; \builtin printf '\0%s 0\0' ` + token + " >&201\n"
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func isIdentifier(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == "" && (s[0] < '0' || s[0] > '9')
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// maxStatus is the most digits of an exit status.
const maxStatus = 3

// marked finds the mark of the present token in one output, and passes on the rest.
type marked struct {
	output func(p []byte)
	found  func(status int)
	token  []byte // with its NUL and its blank; nil: no mark is expected
	held   []byte // may begin a mark
}

// expect sets the token of the next mark.
func (m *marked) expect(token string) { m.token = []byte("\x00" + token + " ") }

// Write never fails: bytes that are no mark are output.
func (m *marked) Write(p []byte) (int, error) {
	size := len(p)
	if len(m.held) > 0 {
		p = append(m.held, p...)
		m.held = nil
	}
	for len(p) > 0 {
		if m.token == nil {
			m.output(p)
			return size, nil
		}
		at := bytes.IndexByte(p, 0)
		if at < 0 {
			m.output(p)
			return size, nil
		}
		if at > 0 {
			m.output(p[:at])
			p = p[at:]
		}
		switch status, n, more := readMark(p, m.token); {
		case more:
			m.held = bytes.Clone(p)
			return size, nil
		case n > 0:
			p, m.token = p[n:], nil
			m.found(status)
		default:
			m.output(p[:1])
			p = p[1:]
		}
	}
	return size, nil
}

// readMark reads a mark at the beginning of p, which is not empty. n is its length, or 0 if there
// is none. more: p is a part of one.
func readMark(p, token []byte) (status, n int, more bool) {
	if len(p) < len(token) {
		return 0, 0, bytes.HasPrefix(token, p)
	}
	if !bytes.HasPrefix(p, token) {
		return 0, 0, false
	}
	digits := p[len(token):]
	end := bytes.IndexByte(digits, 0)
	if end < 0 {
		return 0, 0, len(digits) <= maxStatus
	}
	status, err := strconv.Atoi(string(digits[:end]))
	if end > maxStatus || err != nil || status < 0 || status > 255 {
		return 0, 0, false
	}
	return status, len(token) + end + 1, false
}

// statusError is the error of a cell whose last command failed.
func statusError(status int) sandbar.CellError {
	return sandbar.CellError{Name: "ExitStatus", Value: strconv.Itoa(status), Traceback: fmt.Sprintf("the last command exited with %d\n", status)}
}
