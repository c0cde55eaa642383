package httpd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certificate writes a key pair for 127.0.0.1 with the given serial number.
func certificate(t *testing.T, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der2, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der2}))
}

// serial performs a TLS handshake and returns the serial number of the server's certificate.
func serial(t *testing.T, addr string, c *tls.Config) (int64, error) {
	t.Helper()
	c.InsecureSkipVerify = true // self-signed; the test compares only the serial number
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	age := 100 // each write sets a later time, because the file system's clock may be coarse
	put := func(cert, key string) {
		write(t, certFile, cert)
		write(t, keyFile, key)
		age--
		when := time.Now().Add(-time.Duration(age) * time.Minute)
		os.Chtimes(certFile, when, when)
		os.Chtimes(keyFile, when, when)
	}
	put(certificate(t, 1))
	s, logs := start(t, func(o *Options) { o.Certificate, o.Key = certFile, keyFile })
	addr := s.listener.Addr().String()
	expect := func(want int64) {
		t.Helper()
		if got, err := serial(t, addr, &tls.Config{}); err != nil || got != want {
			t.Errorf("certificate %d, %v; want %d", got, err, want)
		}
	}
	expect(1)
	if !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Errorf("URL is %s", s.URL())
	}
	put(certificate(t, 2))
	expect(2)

	cert3, _ := certificate(t, 3)
	_, key4 := certificate(t, 4)
	put(cert3, key4) // certificate and key do not match
	expect(2)
	expect(2)
	if n := strings.Count(logs.String(), "the old one stays"); n != 1 {
		t.Errorf("a broken pair was logged %d times", n)
	}
	os.Remove(keyFile)
	expect(2)
	put(certificate(t, 5))
	expect(5)

	if _, err := serial(t, addr, &tls.Config{MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	resp, err := client.Get(s.URL() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != 200 || resp.ProtoMajor != 1 {
		t.Errorf("status %d, %s", resp.StatusCode, resp.Proto)
	}
}
