package tenant

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Interval is the longest time until the store sees that the file has changed or that a token has
// expired. A request is checked against the file of that moment.
const Interval = time.Second

// Store finds the bearers of tokens. Its methods may be called concurrently.
type Store struct {
	path    string
	log     *slog.Logger
	stop    chan struct{}
	stopped chan struct{}

	mu     sync.Mutex
	info   fs.FileInfo // of the file that was read last; nil for none
	looked bool
	failed error // why the file cannot be used
	tokens []*live
}

// live is a token of the file.
type live struct {
	Token
	sum   [sha256.Size]byte
	valid context.Context // ends when the token is revoked or expires
	end   context.CancelFunc
}

// Open returns the store of a file, which need not exist. It logs an unusable file and accepts no
// token of it until it is repaired.
func Open(path string, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{path: path, log: log, stop: make(chan struct{}), stopped: make(chan struct{})}
	s.mu.Lock()
	s.refresh()
	s.mu.Unlock()
	go s.watch()
	return s
}

// Close ends the store. Contexts of Find end.
func (s *Store) Close() {
	close(s.stop)
	<-s.stopped
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(nil)
}

// watch looks for changes and for expired tokens, for the sake of open connections.
func (s *Store) watch() {
	defer close(s.stopped)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		s.mu.Lock()
		s.refresh()
		now := time.Now()
		for _, t := range s.tokens {
			if t.Expired(now) {
				t.end()
			}
		}
		s.mu.Unlock()
	}
}

// Find returns the bearer of a token, and a context that ends when the token is revoked or expires.
// ok is false if the file has no such token. Unauthenticated: the token has expired. Unavailable:
// the file cannot be used. Find compares all hashes in constant time.
func (s *Store) Find(token string) (c sandbar.Client, valid context.Context, ok bool, err error) {
	sum := sha256.Sum256([]byte(token))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	var found *live
	for _, t := range s.tokens {
		if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			found = t
		}
	}
	switch {
	case s.failed != nil:
		return c, nil, false, s.failed
	case found == nil:
		return c, nil, false, nil
	case found.Expired(time.Now()):
		found.end()
		return c, nil, false, &sandbar.Error{Code: sandbar.Unauthenticated, Message: "the token " + sandbar.Quote(found.Name, 80) + " has expired", Fix: "let the operator create another one"}
	}
	return found.Client(), found.valid, true, nil
}

// refresh reads the file if it has changed. The caller has mu.
func (s *Store) refresh() {
	info, err := os.Stat(s.path)
	if err == nil && s.looked && s.info != nil && os.SameFile(info, s.info) && info.ModTime().Equal(s.info.ModTime()) && info.Size() == s.info.Size() && info.Mode() == s.info.Mode() {
		return
	}
	if os.IsNotExist(err) && s.looked && s.info == nil && s.failed == nil {
		return
	}
	tokens, info, err := read(s.path)
	before := s.failed
	s.looked, s.info, s.failed = true, info, err
	switch {
	case err != nil:
		s.replace(nil)
		if before == nil || before.Error() != err.Error() {
			s.log.Error("the tokens of tenants are refused", "error", err)
		}
		return
	case before != nil:
		s.log.Info("the tokens of tenants are accepted again", "count", len(tokens))
	}
	s.replace(tokens)
}

// replace replaces the tokens. The contexts of unchanged ones go on. The caller has mu.
func (s *Store) replace(tokens []Token) {
	old := map[string]*live{}
	for _, t := range s.tokens {
		old[t.Name] = t
	}
	s.tokens = nil
	for _, t := range tokens {
		if o := old[t.Name]; o != nil && o.Hash == t.Hash && o.Client() == t.Client() && sameEnd(o.Expires, t.Expires) {
			s.tokens = append(s.tokens, o)
			delete(old, t.Name)
			continue
		}
		l := &live{Token: t}
		if _, err := hex.Decode(l.sum[:], []byte(t.Hash)); err != nil {
			continue // not possible: read has checked it
		}
		l.valid, l.end = context.WithCancel(context.Background())
		s.tokens = append(s.tokens, l)
	}
	for _, t := range old {
		t.end()
	}
}

func sameEnd(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}
