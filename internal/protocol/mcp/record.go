package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/truncate"
)

// outputDir is the directory for outputs that a result leaves out.
const outputDir = ".sandbar"

// record collects the output of one program, and reports it as progress if the client has asked for
// that. Its methods are called from one goroutine at a time.
type record struct {
	stdout, stderr, all bytes.Buffer
	images              []sdk.Content
	imageBytes          int
	links               []sdk.Content
	cut                 bool

	notify   func(text string, total int)
	tails    [3][]byte // the beginning of a character at the end of a stream's last piece
	notified int
}

func newRecord(ctx context.Context, c call) *record {
	r := &record{}
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return r
	}
	r.notify = func(text string, total int) {
		// A client that has left is noticed elsewhere.
		c.request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(total), Message: text})
	}
	return r
}

// output takes a piece of output.
func (r *record) output(c sandbar.Chunk) {
	one := &r.stdout
	if c.Stream == sandbar.Stderr {
		one = &r.stderr
	}
	one.Write(c.Data)
	r.all.Write(c.Data)
	if r.notify == nil || r.notified >= maxProgress {
		return
	}
	data := append(r.tails[c.Stream], c.Data...)
	whole := truncate.TrimPartialRune(data)
	r.tails[c.Stream] = bytes.Clone(data[len(whole):])
	if len(whole) == 0 {
		return
	}
	r.notified += len(whole)
	message := truncate.Text(whole)
	if r.notified >= maxProgress {
		message += "\n[further output is in the result only]\n"
	}
	r.notify(message, r.notified)
}

// note adds a paragraph to the text of the result.
func (r *record) note(text string) {
	if text == "" {
		return
	}
	if b := r.all.Bytes(); len(b) > 0 && b[len(b)-1] != '\n' {
		r.all.WriteByte('\n')
	}
	r.all.WriteString(text)
}

// end returns the result's common part. Output that is too long for it is written to a file.
func (r *record) end(ctx context.Context, b *box, o sandbar.Outcome, d time.Duration) ended {
	e := ended{Sandbox: string(b.ID()), Outcome: o.String(), DurationMS: float64(d.Microseconds()) / 1000}
	if r.all.Len() > maxText {
		r.cut = true
		e.OutputFile = r.save(ctx, b, "output", ".txt", r.all.Bytes())
	}
	e.Cut = r.cut
	e.Stdout, e.Stderr = shorten(r.stdout.Bytes(), ""), shorten(r.stderr.Bytes(), "")
	where := "this file could not be written"
	if e.OutputFile != "" {
		where = fmt.Sprintf("read_file with path %s and offset %d continues", e.OutputFile, maxText/2)
	}
	text := shorten(r.all.Bytes(), where)
	r.all.Reset()
	r.all.WriteString(text)
	return e
}

// shorten returns data as text of about maxText bytes: its beginning and its end. where says where
// the rest is.
func shorten(data []byte, where string) string {
	if len(data) <= maxText {
		return truncate.Text(data)
	}
	head, tail := truncate.TrimPartialRune(data[:maxText/2]), data[len(data)-maxText/2:]
	for len(tail) > 0 && tail[0]&0xc0 == 0x80 { // the rest of a character
		tail = tail[1:]
	}
	if where != "" {
		where = "; " + where
	}
	return fmt.Sprintf("%s\n[%d of %d bytes are left out%s]\n%s", truncate.Text(head), len(data)-len(head)-len(tail), len(data), where, truncate.Text(tail))
}

// save writes data to a new file of the sandbox, links it in the result and returns its path, or ""
// if it cannot be written.
func (r *record) save(ctx context.Context, b *box, name, extension string, data []byte) string {
	b.mu.Lock()
	b.files++
	file := fmt.Sprintf("%s/%s-%d%s", outputDir, name, b.files, extension)
	b.mu.Unlock()
	if ctx.Err() != nil || put(ctx, b.FS(), file, data, sandbar.CreateOptions{Parents: true}) != nil {
		return ""
	}
	size := int64(len(data))
	r.links = append(r.links, &sdk.ResourceLink{URI: uriOf(b.ID(), path.Join(sandbar.DefaultDir, file)), Name: path.Base(file), Size: &size})
	return file
}

// result returns the result. status is a last line, and empty the text of a result without output.
func (r *record) result(status, empty string) *sdk.CallToolResult {
	if status != "" {
		r.note("[" + status + "]")
	}
	text := r.all.String()
	if text == "" && len(r.images) == 0 {
		text = "[" + empty + "]"
	}
	res := &sdk.CallToolResult{}
	if text != "" {
		res.Content = append(res.Content, &sdk.TextContent{Text: text})
	}
	res.Content = append(append(res.Content, r.images...), r.links...)
	return res
}

// commandSink implements engine.Sink.
type commandSink struct{ *record }

func (commandSink) Started() {}

// Output implements engine.Sink.
func (s commandSink) Output(c sandbar.Chunk) error {
	s.output(c)
	return nil
}

// codeSink implements engine.CellSink.
type codeSink struct {
	*record
	box   *box
	out   *codeResult
	spare []spare
}

// spare is a format of a result that is written to a file after the cell.
type spare struct {
	value     int
	extension string
	data      []byte
}

// Started implements engine.CellSink.
func (s *codeSink) Started(int) error { return nil }

// Output implements engine.CellSink.
func (s *codeSink) Output(c sandbar.Chunk) error {
	s.output(c)
	return nil
}

// Display implements engine.CellSink.
func (s *codeSink) Display(d sandbar.Display) error {
	v := codeValue{Text: shorten([]byte(d.Text), ""), Markdown: shorten([]byte(d.Markdown), ""), LaTeX: shorten([]byte(d.LaTeX), ""),
		JSON: small(d.JSON), Data: small(d.Data), Chart: small(d.Chart), Main: d.Main, Formats: formatsOf(d)}
	s.out.Results = append(s.out.Results, v)
	shown := s.image(d.PNG, "image/png", ".png")
	shown = s.image(d.JPEG, "image/jpeg", ".jpg") || shown
	if !shown {
		s.keep(".svg", []byte(d.SVG))
		s.keep(".pdf", d.PDF)
		if d.Text == "" && d.Markdown == "" {
			s.keep(".html", []byte(d.HTML))
		}
	}
	switch {
	case shown: // its text is the name of the figure's class
	case d.Text != "":
		s.note(d.Text + "\n")
	case d.Markdown != "":
		s.note(d.Markdown + "\n")
	case d.LaTeX != "":
		s.note(d.LaTeX + "\n")
	case len(d.JSON) > 0:
		s.note(string(d.JSON) + "\n")
	}
	return nil
}

// image adds an image to the result, or keeps it for a file if there are too many. It reports
// whether there is one.
func (s *codeSink) image(data []byte, mime, extension string) bool {
	switch {
	case len(data) == 0:
		return false
	case s.imageBytes+len(data) > maxImages:
		s.keep(extension, data)
		return true
	}
	s.imageBytes += len(data)
	s.images = append(s.images, &sdk.ImageContent{Data: data, MIMEType: mime})
	return true
}

// keep has a format of the last value written to a file. The engine bounds all formats together.
func (s *codeSink) keep(extension string, data []byte) {
	if len(data) > 0 {
		s.spare = append(s.spare, spare{len(s.out.Results) - 1, extension, data})
	}
}

// save writes the kept formats.
func (s *codeSink) save(ctx context.Context) {
	for _, x := range s.spare {
		file := s.record.save(ctx, s.box, "result", x.extension, x.data)
		s.out.Results[x.value].File = file
		if file != "" {
			s.note("[" + strings.ToUpper(x.extension[1:]) + " in " + file + "]\n")
		}
	}
}

// Error implements engine.CellSink.
func (s *codeSink) Error(e sandbar.CellError) error {
	s.out.Error = &codeError{Name: shorten([]byte(e.Name), ""), Value: shorten([]byte(e.Value), ""), Traceback: shorten([]byte(e.Traceback), "")}
	text := e.Traceback
	if text == "" {
		text = e.Name + ": " + e.Value
	}
	s.note(strings.TrimRight(text, "\n") + "\n")
	return nil
}

// small returns a JSON value that is small enough for a result, or nil.
func small(raw json.RawMessage) any {
	var v any
	if len(raw) == 0 || len(raw) > maxText || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

// formatsOf returns the MIME types of a result.
func formatsOf(d sandbar.Display) []string {
	all := []string{}
	for _, f := range []struct {
		mime string
		has  bool
	}{
		{"text/plain", d.Text != ""}, {"text/html", d.HTML != ""}, {"text/markdown", d.Markdown != ""}, {"image/svg+xml", d.SVG != ""},
		{"text/latex", d.LaTeX != ""}, {"application/javascript", d.JavaScript != ""}, {"image/png", len(d.PNG) > 0}, {"image/jpeg", len(d.JPEG) > 0},
		{"application/pdf", len(d.PDF) > 0}, {"application/json", len(d.JSON) > 0},
	} {
		if f.has {
			all = append(all, f.mime)
		}
	}
	for mime := range d.Extra {
		all = append(all, mime)
	}
	slices.Sort(all)
	return all
}
