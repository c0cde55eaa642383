package image

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/sandbar-dev/sandbar"
)

// The daemon and the unpacker exchange messages over a socket: four bytes of length, most
// significant first, and JSON. The daemon sends the job and answers requests. A descriptor of an
// answer is attached to its length.

// message is one message.
type message struct {
	Kind string `json:"kind"`
	// ID is the number of a request, and of its answer.
	ID uint32 `json:"id,omitempty"`
	// Text is the argument of a request: the address, the file, or the ID of an image.
	Text string `json:"text,omitempty"`
	// Manifest is the digest of the manifest in kindKnown.
	Manifest string    `json:"manifest,omitempty"`
	Job      *job      `json:"job,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Result   *result   `json:"result,omitempty"`
	Fault    *fault    `json:"fault,omitempty"`
}

// Kinds of messages.
const (
	kindJob      = "job"      // to the unpacker, first
	kindAnswer   = "answer"   // to the unpacker, with a descriptor or a fault
	kindDial     = "dial"     // request: a connection to Text, host:port
	kindOpen     = "open"     // request: the file Text of the layout
	kindKnown    = "known"    // request: continue unless the store has image Text
	kindProgress = "progress" // to the daemon
	kindDone     = "done"     // to the daemon, last: a result or a fault
)

// Kinds of jobs.
const (
	jobPull    = "pull"
	jobArchive = "archive" // the archive is descriptor inputFD
	jobLayout  = "layout"  // its files are requested
)

// job is the job of an unpacker.
type job struct {
	Kind   string `json:"kind"`
	Dir    string `json:"dir"`    // the staging directory
	Memory int64  `json:"memory"` // bytes of memory that the unpacker may use
	Limits Limits `json:"limits"`
	Arch   string `json:"arch"`
	Pick   string `json:"pick,omitempty"`

	Reference   string            `json:"reference,omitempty"`
	Registries  []string          `json:"registries,omitempty"`
	Insecure    []string          `json:"insecure,omitempty"`
	Credentials *credentials      `json:"credentials,omitempty"` // nil: none
	Proxy       map[string]string `json:"proxy,omitempty"`       // the variables that name proxies
}

// credentials is authn.AuthConfig, whose own JSON form loses fields.
type credentials struct{ Username, Password, Auth, IdentityToken, RegistryToken string }

func (c *credentials) authenticator() authn.Authenticator {
	if c == nil {
		return authn.Anonymous
	}
	return authn.FromConfig(authn.AuthConfig(*c))
}

// result is the unpacker's report.
type result struct {
	ID       string `json:"id"`
	Manifest string `json:"manifest,omitempty"`
	Image    Image  `json:"image"`
}

// errProtocol: the other side sent a malformed message.
var errProtocol = errors.New("the message is malformed")

// maxMessage bounds a message, in bytes.
const maxMessage = maxDocument

func encodeMessage(m *message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > maxMessage {
		return nil, malformed("its configuration has more than " + size(maxMessage))
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), nil
}

// readBody reads the message after its length.
func readBody(r io.Reader, head []byte) (*message, error) {
	n := binary.BigEndian.Uint32(head)
	if n > maxMessage {
		return nil, errProtocol
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	m := &message{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, errProtocol
	}
	return m, nil
}

// fault is an error in a message: a *sandbar.Error if Code is set, otherwise the fields that
// identify other errors.
type fault struct {
	Code    sandbar.Code  `json:"code,omitempty"`
	Field   string        `json:"field,omitempty"`
	Message string        `json:"message,omitempty"`
	Fix     string        `json:"fix,omitempty"`
	Cause   string        `json:"cause,omitempty"`
	Errno   syscall.Errno `json:"errno,omitempty"`
	Timeout bool          `json:"timeout,omitempty"`
}

func faultOf(err error) *fault {
	f := &fault{}
	if e, ok := errors.AsType[*sandbar.Error](err); ok {
		f.Code, f.Field, f.Message, f.Fix = e.Code, e.Field, e.Message, e.Fix
		if err = e.Err; err == nil {
			return f
		}
	}
	f.Cause = err.Error()
	_ = errors.As(err, &f.Errno)
	var network net.Error
	f.Timeout = errors.As(err, &network) && network.Timeout()
	return f
}

// maxText bounds each text of a fault, in bytes.
const maxText = 4 << 10

// text returns an untrusted text as one line without control characters.
func text(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxText)], "?"))
}

func (f *fault) err() error {
	var cause error
	if f.Cause != "" {
		cause = &remoteError{text(f.Cause), f.Errno, f.Timeout}
	}
	if f.Code == "" && cause != nil {
		return cause
	}
	code := f.Code
	if !slices.Contains(sandbar.Codes, code) {
		code = sandbar.Internal
	}
	return &sandbar.Error{Code: code, Field: text(f.Field), Message: text(f.Message), Fix: text(f.Fix), Err: cause}
}

// remoteError is an error of the other process.
type remoteError struct {
	text    string
	errno   syscall.Errno
	timeout bool
}

func (c *remoteError) Error() string   { return c.text }
func (c *remoteError) Timeout() bool   { return c.timeout }
func (c *remoteError) Temporary() bool { return c.timeout }

func (c *remoteError) Unwrap() error {
	if c.errno == 0 {
		return nil
	}
	return c.errno
}
