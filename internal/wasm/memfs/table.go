package memfs

// A table maps numbers to inodes. It is a persistent radix tree with 64 children per node, whose
// height grows with the largest number. A node of an earlier epoch is shared with a snapshot and
// copied before it is modified, so that a copy of the table value is a snapshot.
type table struct {
	root   *branch
	height int // levels of branches; 0 if the table is empty
}

const (
	tableBits = 6
	tableFan  = 1 << tableBits
)

// A branch is one node. Its children are branches, or inodes on the lowest level.
type branch struct {
	epoch  uint64
	used   int // number of slots that are not nil
	kids   *[tableFan]*branch
	inodes *[tableFan]*inode
}

func newBranch(epoch uint64, lowest bool) *branch {
	if lowest {
		return &branch{epoch: epoch, inodes: new([tableFan]*inode)}
	}
	return &branch{epoch: epoch, kids: new([tableFan]*branch)}
}

// owned returns the branch if it is of this epoch, or else a copy of this epoch.
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

// slot returns the index of n in a branch of a level; level 1 is the lowest.
func slot(n uint64, level int) int {
	return int(n>>(tableBits*(level-1))) & (tableFan - 1)
}

// fits reports whether a tree of this height can hold n.
func fits(n uint64, height int) bool {
	return height*tableBits >= 64 || n>>(tableBits*height) == 0
}

// get returns the inode with number n, or nil.
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

// put adds or replaces an inode.
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

// remove removes number n and the branches that become empty.
func (t *table) remove(epoch uint64, n uint64) {
	if t.get(n) == nil {
		return
	}
	t.root = t.root.owned(epoch).without(epoch, n, t.height)
	if t.root == nil {
		t.height = 0
	}
}

// without returns the branch, which must be of this epoch, without number n; nil if it becomes
// empty.
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
