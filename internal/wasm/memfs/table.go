package memfs

// A table finds inodes by number: a radix tree of 64-way nodes whose height
// grows with the largest number. It is persistent: a node of an earlier epoch
// belongs to a snapshot as well and is copied before it is changed. So the
// value of a table can be kept as it is, and that is a snapshot.
type table struct {
	root   *branch
	height int // levels of branches; 0 when the table is empty
}

const (
	tableBits = 6
	tableFan  = 1 << tableBits
)

// A branch is one node: of kids above, of inodes on the lowest level.
type branch struct {
	epoch  uint64
	used   int // slots that are not nil
	kids   *[tableFan]*branch
	inodes *[tableFan]*inode
}

func newBranch(epoch uint64, lowest bool) *branch {
	if lowest {
		return &branch{epoch: epoch, inodes: new([tableFan]*inode)}
	}
	return &branch{epoch: epoch, kids: new([tableFan]*branch)}
}

// owned returns the branch if it is of this epoch, else a copy that is.
func (b *branch) owned(epoch uint64) *branch {
	if b.epoch == epoch {
		return b
	}
	c := &branch{epoch: epoch, used: b.used}
	if b.kids != nil {
		kids := *b.kids
		c.kids = &kids
	} else {
		inodes := *b.inodes
		c.inodes = &inodes
	}
	return c
}

// slot is the index of n at a level; level 1 is the lowest.
func slot(n uint64, level int) int {
	return int(n>>(tableBits*(level-1))) & (tableFan - 1)
}

// fits reports whether a tree of this height can hold n.
func fits(n uint64, height int) bool {
	return height*tableBits >= 64 || n>>(tableBits*height) == 0
}

// get returns the inode with number n, nil when there is none.
func (t *table) get(n uint64) *inode {
	if !fits(n, t.height) || t.root == nil {
		return nil
	}
	b := t.root
	for level := t.height; level > 1; level-- {
		if b = b.kids[slot(n, level)]; b == nil {
			return nil
		}
	}
	return b.inodes[slot(n, 1)]
}

// put stores an inode under its number.
func (t *table) put(epoch uint64, i *inode) {
	if t.root == nil {
		t.root, t.height = newBranch(epoch, true), 1
	}
	for !fits(i.number, t.height) {
		up := newBranch(epoch, false)
		up.kids[0], up.used = t.root, 1
		t.root, t.height = up, t.height+1
	}
	t.root = t.root.owned(epoch)
	b := t.root
	for level := t.height; level > 1; level-- {
		s := slot(i.number, level)
		kid := b.kids[s]
		if kid == nil {
			kid = newBranch(epoch, level == 2)
			b.used++
		}
		b.kids[s] = kid.owned(epoch)
		b = b.kids[s]
	}
	s := slot(i.number, 1)
	if b.inodes[s] == nil {
		b.used++
	}
	b.inodes[s] = i
}

// remove forgets number n, and with it the branches that it leaves empty.
func (t *table) remove(epoch uint64, n uint64) {
	if t.get(n) == nil {
		return
	}
	t.root = t.root.owned(epoch).without(epoch, n, t.height)
	if t.root == nil {
		t.height = 0
	}
}

// without returns the branch, which is of this epoch, less number n; nil when
// nothing is left of it.
func (b *branch) without(epoch uint64, n uint64, level int) *branch {
	s := slot(n, level)
	if level == 1 {
		b.inodes[s] = nil
		b.used--
	} else if b.kids[s] = b.kids[s].owned(epoch).without(epoch, n, level-1); b.kids[s] == nil {
		b.used--
	}
	if b.used == 0 {
		return nil
	}
	return b
}
