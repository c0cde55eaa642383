package control

import (
	"fmt"
	"io/fs"
	"net/http"

	"github.com/sandbar-dev/sandbar/client/wire"
)

// maxPage is the most entries of a directory in one response.
const maxPage = 1000

// serveDir responds with a page of a directory.
func (e *entry) serveDir(w http.ResponseWriter, r *http.Request) {
	d, err := e.dir(r)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, d)
}

func (e *entry) dir(r *http.Request) (wire.Dir, error) {
	q, err := query(r, []string{"path", "after"})
	if err != nil {
		return wire.Dir{}, err
	}
	all, err := e.sandbox.FS().ReadDir(r.Context(), pathOf(q), q.Get("after"), maxPage+1)
	if err != nil {
		return wire.Dir{}, err
	}
	d := wire.Dir{Entries: []wire.Entry{}}
	if d.More = len(all) > maxPage; d.More {
		all = all[:maxPage]
	}
	for _, f := range all {
		d.Entries = append(d.Entries, wire.Entry{Name: f.Name, Type: typeOf(f.Mode), Size: f.Size,
			Mode: fmt.Sprintf("%04o", f.Mode.Perm()), Modified: f.ModTime.UTC()})
	}
	return d, nil
}

func typeOf(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return wire.TypeFile
	case fs.ModeDir:
		return wire.TypeDir
	case fs.ModeSymlink:
		return wire.TypeLink
	}
	return wire.TypeOther
}
