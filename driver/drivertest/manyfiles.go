package drivertest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// fileAbilityCases test the optional interfaces of an FS.
func fileAbilityCases() []testCase {
	return []testCase{
		fileAbility("chown", "Owner", changeOwners),
		fileAbility("read-many", "BatchReader", readMany),
		fileAbility("read-many-bounds", "BatchReader", readManyBounds),
		fileAbility("rename-new", "Mover", renameNew),
		fileAbility("put", "Putter", putFiles),
	}
}

// fileAbility is a case for sandboxes whose FS implements T.
func fileAbility[T any](name, what string, run func(*C, driver.Sandbox, sandbar.FS, T)) testCase {
	n := need{ofDriver: true, unmet: func(s *suite) string {
		if _, ok := s.sampleSandbox.FS().(T); ok {
			return ""
		}
		return "the files of the driver's sandboxes have no " + what
	}}
	return testCase{name: name, needs: []need{n}, run: func(c *C) {
		b := c.box()
		files := b.FS()
		run(c, b, files, files.(T))
	}}
}

// readAll reads all files, with as many calls of ReadFiles as needed.
func readAll(c *C, r sandbar.BatchReader, paths []string, most int) map[string]sandbar.FileContent {
	all := map[string]sandbar.FileContent{}
	for rest := paths; len(rest) > 0; {
		got, err := r.ReadFiles(c.ctx, rest, most)
		c.ok(err, "ReadFiles")
		if len(got) == 0 || len(got) > min(len(rest), sandbar.MaxReadFiles) {
			c.Fatalf("ReadFiles of %d files answered for %d", len(rest), len(got))
		}
		for i, f := range got {
			if f.Err != nil && (len(f.Data) > 0 || f.Complete) {
				c.Errorf("ReadFiles of %s gives %d bytes and the error %v", sandbar.Quote(rest[i], 60), len(f.Data), f.Err)
			}
			all[rest[i]] = f
		}
		rest = rest[len(got):]
	}
	return all
}

func readMany(c *C, b driver.Sandbox, _ sandbar.FS, r sandbar.BatchReader) {
	c.exited(c.sh(b, `printf hello > a; : > empty; mkdir d; printf deep > d/f; mkfifo p; ln -s a l; ln -s nowhere dangling; ln -s d dl; head -c 70000 /dev/zero > big`), 0, "preparing")
	long := strings.Repeat("x", 100_000)
	want := map[string]struct {
		text  string
		whole bool
		codes []sandbar.Code
	}{
		"a": {"hello", true, nil}, "empty": {"", true, nil}, "d/f": {"deep", true, nil}, "dl/f": {"deep", true, nil},
		"./d/../a": {"hello", true, nil}, sandbar.DefaultDir + "/a": {"hello", true, nil},
		"big":      {strings.Repeat("\x00", sandbar.MaxFileContent), false, nil},
		"d":        {codes: []sandbar.Code{sandbar.Conflict}},
		"p":        {codes: []sandbar.Code{sandbar.Conflict}},
		"l":        {codes: []sandbar.Code{sandbar.Conflict, sandbar.Invalid}},
		"dangling": {codes: []sandbar.Code{sandbar.Conflict, sandbar.Invalid}},
		"nothing":  {codes: []sandbar.Code{sandbar.NotFound}}, "no/such": {codes: []sandbar.Code{sandbar.NotFound}},
		"a/below": {codes: []sandbar.Code{sandbar.Conflict, sandbar.NotFound}},
		"":        {codes: []sandbar.Code{sandbar.Invalid}}, "a\x00": {codes: []sandbar.Code{sandbar.Invalid}},
		long: {codes: []sandbar.Code{sandbar.Invalid}}, "/dev/null": {codes: []sandbar.Code{sandbar.Conflict, sandbar.Denied}},
	}
	var paths []string
	for path := range want {
		paths = append(paths, path)
	}
	got := readAll(c, r, paths, 1<<30)
	for path, w := range want {
		g, what := got[path], "ReadFiles of "+sandbar.Quote(path, 60)
		switch {
		case w.codes != nil:
			c.code(g.Err, what, w.codes...)
		case g.Err != nil || string(g.Data) != w.text || g.Complete != w.whole:
			c.Errorf("%s: %d bytes, whole %v, error %v; want %d bytes, whole %v", what, len(g.Data), g.Complete, g.Err, len(w.text), w.whole)
		}
	}
	for most, whole := range map[int]bool{0: false, 4: false, 5: true, 6: true} {
		if g := readAll(c, r, []string{"a"}, most)["a"]; g.Complete != whole || string(g.Data) != "hello"[:min(most, 5)] {
			c.Errorf("at most %d bytes of 5: %q, whole %v", most, g.Data, g.Complete)
		}
	}
	_, err := r.ReadFiles(c.ctx, []string{"a"}, -1)
	c.code(err, "ReadFiles with a negative size", sandbar.Invalid)
	if got, err := r.ReadFiles(c.ctx, nil, 1); len(got) != 0 || err != nil {
		c.Errorf("ReadFiles of no files: %v, %v", got, err)
	}
}

// readManyBounds asks for more files, longer names and more bytes than one call returns.
func readManyBounds(c *C, b driver.Sandbox, _ sandbar.FS, r sandbar.BatchReader) {
	const many, large, deep = 700, 60, 150
	name := strings.Repeat("n", 200)
	below := strings.Repeat(name+"/", 18)
	c.exited(c.sh(b, fmt.Sprintf(`mkdir s l && mkdir -p %s && for i in $(seq %d); do echo $i > s/$i; done && for i in $(seq %d); do head -c %d /dev/zero > l/$i; done && for i in $(seq %d); do echo $i > %s$i; done`,
		below, many, large, sandbar.MaxFileContent, deep, below)), 0, "preparing")
	var paths []string
	want := map[string]string{}
	add := func(path, text string) {
		paths = append(paths, path)
		want[path] = text
	}
	zeros := strings.Repeat("\x00", sandbar.MaxFileContent)
	for i := range many {
		add(fmt.Sprint("s/", i+1), fmt.Sprintln(i+1))
		if i < large {
			add(fmt.Sprint("l/", i+1), zeros)
		}
		if i < deep {
			add(fmt.Sprint(below, i+1), fmt.Sprintln(i+1))
		}
	}
	for path, g := range readAll(c, r, paths, sandbar.MaxFileContent) {
		if g.Err != nil || string(g.Data) != want[path] || !g.Complete {
			c.Fatalf("%s: %d bytes, whole %v, error %v; want all of %d bytes", sandbar.Quote(path, 60), len(g.Data), g.Complete, g.Err, len(want[path]))
		}
	}
}

// putFiles tests Put: new files, replaced files, symbolic links, and paths that cannot be written.
func putFiles(c *C, b driver.Sandbox, _ sandbar.FS, p sandbar.Putter) {
	c.exited(c.sh(b, `mkdir dir; echo old > old; echo kept > target; ln -s target link`), 0, "preparing")
	most := strings.Repeat("x", sandbar.MaxPut)
	for path, text := range map[string]string{"new": "text\n", "old": "new\n", "link": "not through it", "empty": "", "most": most, "a/b/c": "below"} {
		c.ok(p.Put(c.ctx, path, []byte(text), sandbar.CreateOptions{Mode: 0o755, Parents: true}), "Put of %s", path)
	}
	c.exited(c.sh(b, `test "$(cat new old link a/b/c)" = "$(printf 'text\nnew\nnot through itbelow')" && test "$(cat target)" = kept && test ! -L link &&
test -x new && test "$(wc -c < most)" -eq `+fmt.Sprint(sandbar.MaxPut)+` && test -f empty && test ! -s empty && test "$(ls -A | wc -l)" -eq 8`), 0, "files afterwards")
	c.code(p.Put(c.ctx, "dir", nil, sandbar.CreateOptions{}), "Put over a directory", sandbar.Conflict)
	c.code(p.Put(c.ctx, "no/where", nil, sandbar.CreateOptions{}), "Put without a directory", sandbar.NotFound)
	c.code(p.Put(c.ctx, "", nil, sandbar.CreateOptions{}), "Put of an empty path", sandbar.Invalid)
	c.code(p.Put(c.ctx, "x", []byte(most+"x"), sandbar.CreateOptions{}), "Put of too much", sandbar.Invalid)
	c.code(p.Put(c.ctx, "x", nil, sandbar.CreateOptions{Append: true}), "Put at the end", sandbar.Invalid)
	c.exited(c.sh(b, `test ! -e x && test "$(ls -A | wc -l)" -eq 8`), 0, "files after errors")
}

func changeOwners(c *C, b driver.Sandbox, f sandbar.FS, o sandbar.Owner) {
	c.exited(c.sh(b, `mkdir -p t/u; echo x > t/u/f; echo x > outside; ln -s "$PWD/outside" t/l; ln -s f t/u/m`), 0, "preparing")
	own, err := f.Stat(c.ctx, "t")
	c.ok(err, "Stat")
	c.ok(o.Chown(c.ctx, "t", own.UID, own.GID, true), "Chown to the present owner")
	c.ok(o.Chown(c.ctx, "t/u/f", sandbar.SameID, sandbar.SameID, false), "Chown to SameID")
	c.code(o.Chown(c.ctx, "nothing", own.UID, own.GID, false), "Chown of a missing file", sandbar.NotFound)
	c.code(o.Chown(c.ctx, "nothing", own.UID, own.GID, true), "recursive Chown of a missing file", sandbar.NotFound)
	c.code(o.Chown(c.ctx, "", own.UID, own.GID, true), "Chown of an empty path", sandbar.Invalid)
	uid, gid := own.UID+4321, own.GID+1234
	err = o.Chown(c.ctx, "t", uid, gid, true)
	if err != nil { // most users have no permission for it
		c.code(err, "Chown to another user", sandbar.Denied)
		if !errors.Is(err, syscall.EPERM) {
			c.Errorf("the cause of %v is not EPERM", err)
		}
		uid, gid = own.UID, own.GID
	}
	for path, to := range map[string][2]uint32{"t": {uid, gid}, "t/u": {uid, gid}, "t/u/f": {uid, gid}, "outside": {own.UID, own.GID}} {
		if i, err := f.Stat(c.ctx, path); err != nil || [2]uint32{i.UID, i.GID} != to {
			c.Errorf("%s belongs to %d, %d (%v); want %v", path, i.UID, i.GID, err, to)
		}
	}
}

func renameNew(c *C, b driver.Sandbox, f sandbar.FS, m sandbar.Mover) {
	c.exited(c.sh(b, `for i in a b c d e f g h; do echo $i > $i; done; mkdir dir empty; echo x > dir/x; ln -s nowhere dangling`), 0, "preparing")
	c.ok(m.RenameNew(c.ctx, "a", "new"), "RenameNew")
	c.ok(m.RenameNew(c.ctx, "new", "dir/a"), "RenameNew into a directory")
	c.ok(m.RenameNew(c.ctx, "dir", "there"), "RenameNew of a directory")
	for _, to := range []string{"c", "b", "there", "empty", "dangling"} {
		c.code(m.RenameNew(c.ctx, "b", to), "RenameNew to "+to, sandbar.Exists)
	}
	c.code(m.RenameNew(c.ctx, "empty", "there"), "RenameNew of a directory to another", sandbar.Exists)
	c.code(m.RenameNew(c.ctx, "nothing", "x"), "RenameNew of a missing file", sandbar.NotFound)
	c.code(m.RenameNew(c.ctx, "b", ""), "RenameNew to an empty name", sandbar.Invalid)
	c.code(m.RenameNew(c.ctx, "", "x"), "RenameNew of an empty path", sandbar.Invalid)

	// Of concurrent Puts to the same path, one wins and no byte is lost.
	names := []string{"b", "c", "d", "e", "f", "g", "h"}
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = m.RenameNew(c.ctx, name, "won") })
	}
	all.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			continue
		}
		c.code(err, "RenameNew of "+names[i]+" to what another has taken", sandbar.Exists)
	}
	if r := c.sh(b, "cat won b c d e f g h 2>/dev/null | sort | tr -d '\n'; cat there/a there/x; readlink dangling"); won != 1 || r.out != "bcdefgha\nx\nnowhere\n" {
		c.Errorf("%d were renamed; there is %v", won, r)
	}
}
