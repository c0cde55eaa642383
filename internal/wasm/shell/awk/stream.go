package awk

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// inputs are the input files of the command line.
type inputs struct {
	next    int // index in ARGV
	current *recordReader
	closer  io.Closer
	used    bool // a file was named
	done    bool
}

func (i *inputs) close() {
	if i.closer != nil {
		_ = i.closer.Close()
	}
	i.current, i.closer = nil, nil
}

// skipFile ends the current file.
func (i *inputs) skipFile() { i.close() }

// streams are the open files and commands of a program.
type streams struct {
	readers map[string]*reader
	writers map[string]*writer
	order   []string // names of writers in the order of opening
}

type reader struct {
	*recordReader
	close  io.Closer
	status int // exit status of a command
}

type writer struct {
	*bufio.Writer
	close   io.Closer
	command string // the output is the standard input of this command
	buf     *bytes.Buffer
}

func (s *streams) init() { s.readers, s.writers = map[string]*reader{}, map[string]*writer{} }

// recordReader splits a stream into records.
type recordReader struct{ r *bufio.Reader }

func newRecordReader(r io.Reader) *recordReader {
	return &recordReader{bufio.NewReaderSize(r, 32<<10)}
}

// read returns the next record with the separator rs.
func (in *interp) read(r *recordReader, rs string) (string, bool) {
	switch {
	case rs == "":
		return in.readParagraph(r)
	case len(rs) == 1:
		return in.readUntil(r, rs[0])
	}
	return in.readRegex(r, rs)
}

func (in *interp) readUntil(r *recordReader, end byte) (string, bool) {
	var long []byte
	for {
		piece, err := r.r.ReadSlice(end)
		long = append(long, piece...)
		if len(long) > maxString {
			throw("record is too long")
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return string(long), len(long) > 0
		}
		return string(long[:len(long)-1]), true
	}
}

// readParagraph reads up to an empty line.
func (in *interp) readParagraph(r *recordReader) (string, bool) {
	var lines []string
	size := 0
	for {
		line, ok := in.readUntil(r, '\n')
		if !ok || line == "" && len(lines) > 0 {
			return strings.Join(lines, "\n"), len(lines) > 0
		}
		if line == "" {
			continue
		}
		if size += len(line); size > maxString {
			throw("record is too long")
		}
		lines = append(lines, line)
	}
}

// readRegex reads up to a match of rs. It reads the whole rest of the stream, because a match could
// continue at the end of any part.
func (in *interp) readRegex(r *recordReader, rs string) (string, bool) {
	rest, err := io.ReadAll(io.LimitReader(r.r, maxString+1))
	if err != nil || len(rest) == 0 {
		return "", false
	}
	if len(rest) > maxString {
		throw("input is too long for a regular expression as RS")
	}
	text := string(rest)
	for _, m := range in.dynamic(rs).All(text, -1) {
		if m[1] > m[0] {
			r.r = bufio.NewReader(strings.NewReader(text[m[1]:]))
			return text[:m[0]], true
		}
	}
	r.r = bufio.NewReader(strings.NewReader(""))
	return strings.TrimSuffix(text, "\n"), true
}

// nextRecord reads the next record of the input.
func (in *interp) nextRecord() bool {
	for {
		if in.in.current == nil && !in.nextFile() {
			return false
		}
		in.step()
		text, ok := in.read(in.in.current, in.globals[varRS].v.s)
		if !ok {
			in.in.close()
			continue
		}
		in.setRecord(text)
		in.count(varNR)
		in.count(varFNR)
		return true
	}
}

func (in *interp) count(i int) { in.globals[i].v = num(in.globals[i].v.number() + 1) }

// nextFile opens the next file of ARGV, or standard input if there is none.
func (in *interp) nextFile() bool {
	if in.in.done {
		return false
	}
	for {
		in.in.next++
		if in.in.next >= int(in.globals[varARGC].v.number()) {
			break
		}
		key := strconv.Itoa(in.in.next)
		v, ok := in.globals[varARGV].arr.m[key]
		name := v.text("%.6g")
		if !ok || name == "" {
			continue
		}
		if isAssignment(name) {
			in.assignText(name)
			continue
		}
		in.in.used = true
		if in.openInput(name) {
			return true
		}
	}
	in.in.done = true
	if in.in.used {
		return false
	}
	return in.openInput("-")
}

func isAssignment(s string) bool {
	name, _, ok := strings.Cut(s, "=")
	if !ok || name == "" || isDigit(name[0]) {
		return false
	}
	return strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func (in *interp) openInput(name string) bool {
	in.globals[varFNR].v = num(0)
	if name == "-" || name == "/dev/stdin" {
		in.in.current = newRecordReader(in.env.Stdin)
		in.globals[varFILENAME].v = str("")
		return true
	}
	f, err := in.env.Open(name)
	if err != nil {
		in.env.Warn("cannot open " + name + " (" + err.Error() + ")")
		in.status = 2
		return false
	}
	in.globals[varFILENAME].v = str(name)
	in.in.current, in.in.closer = newRecordReader(f), f
	return true
}

// getline evaluates a getline expression: 1 for a record, 0 at the end, -1 for an error.
func (in *interp) getline(g getline) value {
	if g.kind == 0 {
		if g.target == nil {
			return boolean(in.nextRecord())
		}
		record, split, joined, fields := in.record, in.split, in.joined, in.fields
		in.fields = nil
		ok := in.nextRecord()
		text := in.record
		in.record, in.split, in.joined, in.fields = record, split, joined, fields
		if ok {
			in.set(g.target, input(text))
		}
		return boolean(ok)
	}
	r := in.reader(g.kind, in.text(g.source))
	if r == nil {
		return num(-1)
	}
	in.step()
	text, ok := in.read(r.recordReader, in.globals[varRS].v.s)
	if !ok {
		return num(0)
	}
	if g.kind == '|' {
		in.count(varNR)
	}
	if g.target == nil {
		in.setRecord(text)
	} else {
		in.set(g.target, input(text))
	}
	return num(1)
}

// maxStreams bounds the open files and commands.
const maxStreams = 200

// reader returns the stream of a name for reading, and opens it if necessary.
func (in *interp) reader(kind byte, name string) *reader {
	key := string(kind) + name
	if r := in.io.readers[key]; r != nil {
		return r
	}
	if len(in.io.readers) >= maxStreams {
		throw("too many open files")
	}
	r := &reader{}
	switch {
	case kind == '|':
		in.flushAll()
		var out limitedBuffer
		r.status = in.env.Run(name, nil, &out)
		r.recordReader = newRecordReader(&out.Buffer)
	case name == "-" || name == "/dev/stdin":
		r.recordReader = newRecordReader(in.env.Stdin)
	default:
		f, err := in.env.Open(name)
		if err != nil {
			return nil
		}
		r.recordReader, r.close = newRecordReader(f), f
	}
	in.io.readers[key] = r
	return r
}

// limitedBuffer is a buffer with a maximum size.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxString {
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(p)
}

// destination returns the stream of a name for writing, and opens it if necessary.
func (in *interp) destination(redir, name string) *bufio.Writer {
	if redir == "" {
		return in.env.Stdout
	}
	key := name
	if redir == "|" {
		key = "|" + name
	}
	if w := in.io.writers[key]; w != nil {
		return w.Writer
	}
	if name == "/dev/stdout" || name == "-" && redir != "|" {
		return in.env.Stdout
	}
	if len(in.io.writers) >= maxStreams {
		throw("too many open files")
	}
	w := &writer{}
	if redir == "|" {
		w.command, w.buf = name, &bytes.Buffer{}
		w.Writer = bufio.NewWriter(w.buf)
	} else {
		f, err := in.env.Create(name, redir == ">>")
		if err != nil {
			throw("cannot open %s for output (%v)", name, err)
		}
		w.Writer, w.close = bufio.NewWriter(f), f
	}
	in.io.writers[key] = w
	in.io.order = append(in.io.order, key)
	return w.Writer
}

// write writes text. An error ends the program.
func (in *interp) write(w *bufio.Writer, text string) {
	if _, err := w.WriteString(text); err != nil {
		throw("write error: %v", err)
	}
}

func (in *interp) flushAll() {
	_ = in.env.Stdout.Flush()
	for _, w := range in.io.writers {
		_ = w.Flush()
	}
}

// closeStream closes the stream of a name and returns the exit status of a command, or -1 if no
// stream is open.
func (in *interp) closeStream(name string) float64 {
	status := float64(-1)
	for _, kind := range []string{"<", "|"} {
		if r := in.io.readers[kind+name]; r != nil {
			status = float64(r.status)
			if r.close != nil {
				_ = r.close.Close()
			}
			delete(in.io.readers, kind+name)
		}
	}
	for _, key := range []string{name, "|" + name} {
		if w := in.io.writers[key]; w != nil {
			status = in.closeWriter(w)
			delete(in.io.writers, key)
		}
	}
	return status
}

func (in *interp) closeWriter(w *writer) float64 {
	if err := w.Flush(); err != nil {
		in.env.Warn("write error: " + err.Error())
		in.status = 2
	}
	if w.command != "" {
		in.flushAll()
		return float64(in.env.Run(w.command, w.buf, nil))
	}
	if err := w.close.Close(); err != nil {
		return -1
	}
	return 0
}

// closeAll closes the input, and all outputs in the order of opening.
func (in *interp) closeAll() {
	in.in.close()
	_ = in.env.Stdout.Flush()
	for _, key := range in.io.order {
		if w := in.io.writers[key]; w != nil {
			in.closeWriter(w)
			delete(in.io.writers, key)
		}
	}
	for _, r := range in.io.readers {
		if r.close != nil {
			_ = r.close.Close()
		}
	}
}

func (in *interp) print(s printStmt) {
	var text string
	switch {
	case s.format:
		args := make([]value, len(s.args)-1)
		format := in.text(s.args[0])
		for i, x := range s.args[1:] {
			args[i] = in.eval(x)
		}
		text = in.sprintf(format, args)
	case len(s.args) == 0:
		text = in.getRecord() + in.globals[varORS].v.s
	default:
		var b strings.Builder
		ofmt := in.globals[varOFMT].v.s
		for i, x := range s.args {
			if i > 0 {
				b.WriteString(in.globals[varOFS].v.s)
			}
			b.WriteString(in.eval(x).text(ofmt))
		}
		b.WriteString(in.globals[varORS].v.s)
		text = b.String()
	}
	dest := ""
	if s.redir != "" {
		dest = in.text(s.dest)
	}
	in.write(in.destination(s.redir, dest), text)
	if s.redir == "|" && in.io.writers["|"+dest].buf.Len() > maxString {
		throw("too much output for the command %s", dest)
	}
}
