package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

const (
	envdPort = "49983"
	// keepalive is the longest silence of a stream that is asked for, in seconds.
	keepalive = 10
	// maxMessage bounds a message of a stream, in bytes.
	maxMessage = 8 << 20
	// flagEnd is the flag of the last envelope of a stream, headLen the length of an envelope's
	// head: flags, and the length of the message.
	flagEnd = 2
	headLen = 5
)

// box is a sandbox of the service, as far as its envd is concerned.
type box struct {
	*service
	id, token, traffic string
	base               string
}

// header returns the headers of a request to envd. user "" is the template's default user.
func (b *box) header(user, contentType string) http.Header {
	h := http.Header{"E2b-Sandbox-Id": {b.id}, "E2b-Sandbox-Port": {envdPort}, "Content-Type": {contentType}, "Connect-Protocol-Version": {"1"}}
	if b.token != "" {
		h.Set("X-Access-Token", b.token)
	}
	if b.traffic != "" {
		h.Set("E2b-Traffic-Access-Token", b.traffic)
	}
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	return h
}

// upload writes a file, with its parents.
func (b *box) upload(ctx context.Context, path, user string, content []byte) error {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "file")
	if err == nil {
		_, err = part.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return sandbar.Errorf(sandbar.Internal, "encoding the agent: %w", err)
	}
	_, err = b.do(ctx, request{what: "uploading the agent", method: http.MethodPost, url: b.base + "/files?" + url.Values{"path": {path}, "username": {user}}.Encode(),
		header: b.header("", w.FormDataContentType()), body: form.Bytes(), bound: uploadBound, again: true})
	return err
}

// The messages of process.Process.
type (
	startMessage struct {
		Process processConfig `json:"process"`
		Stdin   bool          `json:"stdin"`
	}
	processConfig struct {
		Cmd  string            `json:"cmd"`
		Args []string          `json:"args"`
		Envs map[string]string `json:"envs,omitempty"`
		Cwd  string            `json:"cwd"`
	}
	inputMessage struct {
		Process selector `json:"process"`
		Input   input    `json:"input"`
	}
	selector struct {
		PID uint32 `json:"pid"`
	}
	input struct {
		Stdin []byte `json:"stdin"`
	}
	// event is a message of a stream. At most one member is set.
	event struct {
		Start *struct {
			PID uint32 `json:"pid"`
		} `json:"start"`
		Data *struct {
			Stdout []byte `json:"stdout"`
			Stderr []byte `json:"stderr"`
		} `json:"data"`
		End *struct {
			ExitCode int    `json:"exitCode"`
			Exited   bool   `json:"exited"`
			Status   string `json:"status"`
		} `json:"end"`
	}
)

// stream is the output of a process. One goroutine may read it.
type stream struct {
	box  *box
	body io.ReadCloser
	pid  uint32
}

// start starts a process and returns when it has started. ctx bounds the stream; caller is without
// the caller's own bounds.
func (b *box) start(ctx context.Context, what, user string, m startMessage) (*stream, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "%s: %w", what, err)
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw)))
	q := request{what: what, method: http.MethodPost, url: b.base + "/process.Process/Start", header: b.header(user, "application/connect+json"), body: append(body, raw...)}
	q.header.Set("Keepalive-Ping-Interval", strconv.Itoa(keepalive))
	resp, failed := b.send(ctx, ctx, q)
	if failed != nil {
		return nil, failed.Error
	}
	s := &stream{box: b, body: resp.Body}
	e, err := s.next()
	if err == nil && e.Start == nil {
		err = errProtocol
	}
	if err != nil {
		resp.Body.Close()
		if ctx.Err() != nil {
			return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "%s: %w", what, ctx.Err())
		}
		return nil, sandbar.Errorf(sandbar.Unavailable, "%s: %w", what, err)
	}
	s.pid = e.Start.PID
	return s, nil
}

var errProtocol = errors.New("the service breaks the protocol of its streams")

// next returns the next event. io.EOF: the stream has ended in order.
func (s *stream) next() (event, error) {
	var m struct {
		Event event `json:"event"`
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	var head [headLen]byte
	if _, err := io.ReadFull(s.body, head[:]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // an end has an envelope
		}
		return event{}, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if head[0]&^flagEnd != 0 || size > maxMessage {
		return event{}, errProtocol
	}
	var raw bytes.Buffer
	if n, err := io.Copy(&raw, io.LimitReader(s.body, size)); err != nil || n < size {
		return event{}, errors.Join(io.ErrUnexpectedEOF, err)
	}
	if json.Unmarshal(raw.Bytes(), &m) != nil {
		return event{}, errProtocol
	}
	switch {
	case m.Error != nil:
		return event{}, errors.New("the service says " + sandbar.Quote(m.Error.Code+": "+m.Error.Message, maxText))
	case head[0]&flagEnd != 0:
		return event{}, io.EOF
	}
	return m.Event, nil
}

// maxOutput bounds the output of run, in bytes.
const maxOutput = 1 << 20

// run runs a program to its end and returns its output.
func (b *box) run(ctx context.Context, what, user string, args ...string) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	s, err := b.start(bounded, what, user, startMessage{Process: processConfig{Cmd: args[0], Args: args[1:], Cwd: "/"}})
	if err != nil {
		return nil, err
	}
	defer s.body.Close()
	var out, said []byte
	for {
		e, err := s.next()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "%s: %w", what, ctx.Err())
		case err != nil:
			return nil, sandbar.Errorf(sandbar.Unavailable, "%s: %w", what, err)
		case e.End != nil && (!e.End.Exited || e.End.ExitCode != 0):
			return nil, sandbar.Errorf(sandbar.Unsupported, "%s: the sandbox says %s", what, sandbar.Quote(e.End.Status+": "+string(said), maxText))
		case e.End != nil:
			return out, nil
		case e.Data != nil:
			if out = append(out, e.Data.Stdout...); len(out) > maxOutput {
				return nil, sandbar.Errorf(sandbar.Unsupported, "%s: the output is larger than %d bytes", what, maxOutput)
			}
			said = append(said, e.Data.Stderr[:min(len(e.Data.Stderr), maxText-min(len(said), maxText))]...)
		}
	}
}

// send passes input to a process. After an error, how much has arrived is unknown.
func (b *box) input(ctx context.Context, pid uint32, data []byte) error {
	raw, err := json.Marshal(inputMessage{Process: selector{pid}, Input: input{Stdin: data}})
	if err != nil {
		return sandbar.Errorf(sandbar.Internal, "encoding input: %w", err)
	}
	_, err = b.do(ctx, request{what: "sending to the agent", method: http.MethodPost, url: b.base + "/process.Process/SendInput", header: b.header("", "application/json"), body: raw, bound: callBound})
	return err
}
