package e2b

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

const (
	// maxRecords and maxRecordBytes bound the log of a sandbox, whose oldest records are dropped;
	// maxRecord bounds one record, in bytes.
	maxRecords     = 1000
	maxRecordBytes = 256 << 10
	maxRecord      = 2 << 10
)

// The kinds of records.
const (
	startedRecord = "start"
	endedRecord   = "end"
)

// record is an entry in the log of a sandbox: the start or the end of a command, or output.
type record struct {
	at      time.Time
	kind    string // or the name of the stream
	pid     int
	message string
	failed  bool
}

// logbook is the log of a sandbox. It is in memory alone. Its methods may be called concurrently.
type logbook struct {
	mu      sync.Mutex
	records []record
	bytes   int
}

// add adds a record of a process. Messages are cut at maxRecord.
func (b *logbook) add(kind string, pid int, failed bool, message []byte) {
	text := string(message[:min(len(message), maxRecord)])
	if len(message) > maxRecord {
		text += "…"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := time.Now()
	b.records = append(b.records, record{at, kind, pid, text, failed})
	b.bytes += len(text)
	drop := 0
	for ; b.bytes > maxRecordBytes || len(b.records)-drop > maxRecords; drop++ {
		b.bytes -= len(b.records[drop].message)
	}
	b.records = slices.Delete(b.records, 0, drop)
}

// logLine is a record for clients.
type logLine struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

func (r record) line() logLine {
	l := logLine{r.at.UTC(), "info", strings.ToValidUTF8(r.message, "\ufffd"), map[string]string{"logger": "process", "event": r.kind}}
	if r.pid != 0 {
		l.Fields["pid"] = strconv.Itoa(r.pid)
	}
	if r.failed {
		l.Level = "error"
	}
	return l
}

// levels are the levels of log entries, the lowest first.
func levels() []string { return []string{"debug", "info", "warn", "error"} }

// logQuery selects log entries.
type logQuery struct {
	cursor   time.Time // zero: from the end that direction begins at
	backward bool
	level    int
	search   string
	limit    int
}

func decodeLogQuery(q url.Values, old bool) (logQuery, error) {
	l := logQuery{limit: maxRecords, search: q.Get("search"), level: max(0, slices.Index(levels(), q.Get("level")))}
	number := func(name string, most int64) (int64, error) {
		text := q.Get(name)
		if text == "" {
			return -1, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > most {
			return 0, invalid(name, name+" must be a number from 0 to "+strconv.FormatInt(most, 10), "")
		}
		return n, nil
	}
	from := "cursor"
	if old {
		from = "start"
	}
	ms, err := number(from, 1<<50)
	if err != nil {
		return l, err
	}
	if ms >= 0 {
		l.cursor = time.UnixMilli(ms)
	}
	limit, err := number("limit", maxRecords)
	if err != nil {
		return l, err
	}
	if limit >= 0 {
		l.limit = int(limit)
	}
	switch direction := q.Get("direction"); {
	case old || direction == "" || direction == "forward":
	case direction == "backward":
		l.backward = true
	default:
		return l, invalid("direction", "direction must be forward or backward", "")
	}
	if level := q.Get("level"); level != "" && !slices.Contains(levels(), level) {
		return l, invalid("level", "level must be one of "+strings.Join(levels(), ", "), "")
	}
	return l, nil
}

// lines returns the entries that a query selects, in its direction.
func (b *logbook) lines(q logQuery) []logLine {
	b.mu.Lock()
	all := slices.Clone(b.records)
	b.mu.Unlock()
	return pick(q, all, func(r record) (logLine, bool) {
		l := r.line()
		return l, q.selects(l.Timestamp, l.Level, l.Message)
	})
}

// lines returns the entries of a build's log that a query selects, in its direction.
func (j *job) lines(q logQuery) []logEntry {
	j.mu.Lock()
	all := slices.Clone(j.logs)
	j.mu.Unlock()
	return pick(q, all, func(l logEntry) (logEntry, bool) { return l, q.selects(l.Timestamp, l.Level, l.Message) })
}

// pick returns the first entries that a query selects, in its direction. entry returns the entry of
// an element, and whether it is selected. pick may reorder all.
func pick[T, E any](q logQuery, all []T, entry func(T) (E, bool)) []E {
	if q.backward {
		slices.Reverse(all)
	}
	picked := []E{}
	for _, x := range all {
		if len(picked) == q.limit {
			break
		}
		if e, ok := entry(x); ok {
			picked = append(picked, e)
		}
	}
	return picked
}

// selects reports whether a query selects an entry.
func (q logQuery) selects(at time.Time, level, message string) bool {
	past := !q.cursor.IsZero() && (!q.backward && at.Before(q.cursor) || q.backward && at.After(q.cursor))
	return !past && slices.Index(levels(), level) >= q.level && strings.Contains(message, q.search)
}

// oldLogs is the answer of the old path. A line is an object in JSON.
type oldLogs struct {
	Logs    []oldLog  `json:"logs"`
	Entries []logLine `json:"logEntries"`
}

type oldLog struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

// serveLogs serves the log of a sandbox.
func (e *entry) serveLogs(w http.ResponseWriter, r *http.Request, old bool) error {
	q, err := decodeLogQuery(r.URL.Query(), old)
	if err != nil {
		return err
	}
	if _, _, err := e.info(r.Context()); err != nil {
		return err
	}
	lines := e.log.lines(q)
	if !old {
		answer(w, http.StatusOK, map[string]any{"logs": lines})
		return nil
	}
	all := oldLogs{Logs: []oldLog{}, Entries: lines}
	for _, l := range lines {
		fields := map[string]string{"level": l.Level, "message": l.Message}
		for name, value := range l.Fields {
			fields[name] = value
		}
		b, err := json.Marshal(fields)
		if err != nil {
			return err
		}
		all.Logs = append(all.Logs, oldLog{l.Timestamp, string(b)})
	}
	answer(w, http.StatusOK, all)
	return nil
}

// logStart logs the start of a process, with its command.
func (l *life) logStart(p *process) {
	args := p.info.Config.Args
	text := p.info.Config.Cmd
	if n := len(args); n > 0 {
		text = args[n-1] // of a shell
	}
	l.log.add(startedRecord, p.info.PID, false, []byte(text))
}

// logEnd logs the end of a process.
func (l *life) logEnd(p *process) {
	r, err := p.run.Wait(l.server.all) // it has ended
	if err != nil {
		return
	}
	text, failed := r.Outcome.String(), r.Outcome != sandbar.Exited || r.ExitCode != 0
	if r.Outcome == sandbar.Exited {
		text = "exit status " + strconv.Itoa(r.ExitCode)
	}
	l.log.add(endedRecord, p.info.PID, failed, []byte(text))
}

// logOutput logs a piece of output.
func (p *process) logOutput(c sandbar.Chunk) {
	kind := "stdout"
	switch {
	case p.pty:
		return // it has what people type
	case c.Stream == sandbar.Stderr:
		kind = "stderr"
	}
	p.log.add(kind, int(p.pid.Load()), false, c.Data)
}
