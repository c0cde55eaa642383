package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// APIServer is the address of the API server inside the cluster's network namespace; its port is
// 6443.
const APIServer = "10.99.0.254"

func nodeName(n int) string    { return "node" + strconv.Itoa(n+1) }
func nodeAddress(n int) string { return "10.99.0." + strconv.Itoa(n+1) }

// authority issues the certificates of a cluster, as files NAME.crt and NAME.key in dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	text []byte // the certificate in PEM
}

// writePKI writes the certificates and kubeconfigs of a cluster into dir.
func writePKI(dir string, nodes int) error {
	a := &authority{dir: dir}
	if err := a.issue("ca", pkix.Name{CommonName: "sandbar-test"}); err != nil {
		return err
	}
	type identity struct {
		file  string
		name  pkix.Name
		hosts []string
	}
	list := []identity{
		{"apiserver", pkix.Name{CommonName: "kube-apiserver"}, []string{APIServer, "127.0.0.1", "10.98.0.1", "localhost", "kubernetes.default"}},
		{"accounts", pkix.Name{CommonName: "service-accounts"}, nil},
		{"kubeletclient", pkix.Name{CommonName: "apiserver-kubelet-client", Organization: []string{"system:masters"}}, nil},
		{"admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, nil},
		{"controllers", pkix.Name{CommonName: "system:kube-controller-manager"}, nil},
		{"scheduler", pkix.Name{CommonName: "system:kube-scheduler"}, nil},
	}
	for n := range nodes {
		name := nodeName(n)
		list = append(list, identity{name, pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}, []string{nodeAddress(n)}})
	}
	for _, id := range list {
		if err := a.issue(id.file, id.name, id.hosts...); err != nil {
			return err
		}
	}
	return nil
}

// issue makes a key and a certificate, and a kubeconfig for its owner. The first certificate is the
// authority's own.
func (a *authority) issue(file string, name pkix.Name, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: name, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(7 * 24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return err
		}
		a.key, a.text = key, text
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	for ending, content := range map[string][]byte{".crt": text, ".key": keyText, ".kubeconfig": a.kubeconfig(text, keyText)} {
		if err := os.WriteFile(filepath.Join(a.dir, file+ending), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig returns a kubeconfig that contains all it needs.
func (a *authority) kubeconfig(cert, key []byte) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://%s:6443", certificate-authority-data: %s}}]
users: [{name: test, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, APIServer, encode(a.text), encode(cert), encode(key))
}
