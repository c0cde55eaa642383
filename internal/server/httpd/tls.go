package httpd

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// keyPair is a certificate that follows its files: each handshake checks whether they have changed
// (two stat calls). If a new pair is invalid, the old one stays in use.
type keyPair struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	seen    stamp // of the files that were read last, valid or not
}

// stamp identifies a version of the two files.
type stamp struct{ cert, key fileStamp }

type fileStamp struct {
	modified time.Time
	size     int64
}

func newKeyPair(certFile, keyFile string, logger *slog.Logger) (*keyPair, error) {
	p := &keyPair{certFile: certFile, keyFile: keyFile, logger: logger}
	seen, err := p.look()
	if err == nil {
		err = p.read(seen)
	}
	if err != nil {
		e := sandbar.Errorf(sandbar.Invalid, "the certificate and key for TLS cannot be used: %w", err)
		e.Field = "tls.cert"
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			e.Fix = "name two files that this user can read"
		} else {
			e.Fix = "tls.cert must hold a PEM certificate chain and tls.key its private key"
		}
		return nil, e
	}
	return p, nil
}

func (p *keyPair) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate(), nil },
	}
}

// certificate returns the pair in the files, or the last valid one.
func (p *keyPair) certificate() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, err := p.look()
	if err == nil && seen == p.seen {
		return p.current
	}
	if err == nil {
		if err = p.read(seen); err == nil {
			p.logger.Info("reloaded the certificate", "file", p.certFile)
			return p.current
		}
	}
	if seen != p.seen { // once per version of the files
		p.seen = seen
		p.logger.Error("the new certificate cannot be used; the old one stays", "file", p.certFile, "error", err.Error())
	}
	return p.current
}

func (p *keyPair) look() (stamp, error) {
	cert, err1 := os.Stat(p.certFile)
	key, err2 := os.Stat(p.keyFile)
	if err := errors.Join(err1, err2); err != nil {
		return stamp{}, err
	}
	return stamp{fileStamp{cert.ModTime(), cert.Size()}, fileStamp{key.ModTime(), key.Size()}}, nil
}

// read replaces the current certificate if the files contain a valid pair.
func (p *keyPair) read(seen stamp) error {
	pair, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return err
	}
	p.current, p.seen = &pair, seen
	return nil
}
