package e2b

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The log has the newest records, within its bounds, and a query selects from it in its order.
func TestLogbook(t *testing.T) {
	var b logbook
	for i := range 2 * maxRecords {
		b.add("stdout", i, i%2 == 1, []byte("line"))
	}
	if n := len(b.lines(logQuery{limit: maxRecords})); n != maxRecords {
		t.Errorf("there are %d records", n)
	}
	long := []byte(strings.Repeat("x", 2*maxRecord))
	for range maxRecords {
		b.add("stderr", 0, false, long)
	}
	if n := len(b.lines(logQuery{limit: maxRecords})); b.bytes > maxRecordBytes || n < 100 || n > maxRecordBytes/maxRecord {
		t.Errorf("%d records have %d bytes", n, b.bytes)
	}
	b.add("end", 7, true, []byte("\xffnot text"))
	all := b.lines(logQuery{limit: 1, backward: true})
	if len(all) != 1 || all[0].Level != "error" || all[0].Message != "\ufffdnot text" || all[0].Fields["pid"] != "7" {
		t.Errorf("%+v", all)
	}
	if got := b.lines(logQuery{limit: 10, level: 3}); len(got) != 1 {
		t.Errorf("errors: %+v", got)
	}
	if got := b.lines(logQuery{limit: 10, search: "not text"}); len(got) != 1 {
		t.Errorf("a search: %+v", got)
	}
	if got := b.lines(logQuery{limit: 10, cursor: time.Now().Add(time.Hour)}); len(got) != 0 {
		t.Errorf("after the last one: %+v", got)
	}
}

// The log of a sandbox without commands is an empty list.
func TestLogs(t *testing.T) {
	r := newRig(t, Options{}, nil)
	c := r.create(`{}`)
	for _, path := range []string{"/sandboxes/", "/v2/sandboxes/"} {
		status, text := r.plane("GET", path+c.SandboxID+"/logs", "")
		var got struct{ Logs []json.RawMessage }
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || got.Logs == nil || len(got.Logs) > 0 {
			t.Errorf("%d %s", status, text)
		}
	}
}
