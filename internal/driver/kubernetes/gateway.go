package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
	"github.com/sandbar-dev/sandbar/internal/linux/daemonid"
)

// The labels and annotations of the driver's objects.
const (
	labelPrefix  = "sandbar.dev/"
	labelGateway = labelPrefix + "gateway" // on all objects: the name of the daemon's Lease
	labelSandbox = labelPrefix + "sandbox" // on pods: the sandbox's id
	// annotationOwner is daemonid.Owner, on the Lease: daemons of the same host can tell by it at once
	// whether the process is alive.
	annotationOwner = labelPrefix + "owner"
)

const (
	// leaseDuration is how long a Lease is valid after its last renewal, renewEvery the time between
	// two renewals.
	leaseDuration = 40 * time.Second
	renewEvery    = 10 * time.Second
)

// gateway has the objects of this daemon in the cluster: the Lease that owns all others, the Secret
// with the keys, and the NetworkPolicy of the pods. All have the same name.
type gateway struct {
	api  *api
	log  *slog.Logger
	name string
	keys keys

	mu    sync.Mutex
	lease coordinationv1.Lease
	seen  map[types.UID]sighting // of other Leases
}

// sighting is when this daemon has first seen a Lease with a time of renewal. The clocks of two
// hosts may differ, so their times are not compared.
type sighting struct {
	renewed string
	first   time.Time // monotonic
}

// keys are the keys of a daemon and its porters. Each has a certificate that it has signed itself,
// and trusts only the other's.
type keys struct {
	daemon              tls.Certificate
	porters             *x509.CertPool
	porterCrt, porterPK []byte // PEM
	daemonCrt           []byte // PEM
}

func newGateway(a *api, log *slog.Logger) (*gateway, error) {
	var b [8]byte
	rand.Read(b[:])
	g := &gateway{api: a, log: log, name: "sandbar-" + hex.EncodeToString(b[:]), seen: map[types.UID]sighting{}}
	var err error
	g.keys, err = newKeys()
	return g, err
}

func newKeys() (keys, error) {
	daemonCrt, daemonKey, err := newCertificate("daemon.sandbar")
	if err != nil {
		return keys{}, err
	}
	k := keys{daemonCrt: daemonCrt, porters: x509.NewCertPool()}
	if k.daemon, err = tls.X509KeyPair(daemonCrt, daemonKey); err != nil {
		return keys{}, sandbar.Errorf(sandbar.Internal, "a new key: %w", err)
	}
	if k.porterCrt, k.porterPK, err = newCertificate(porter.ServerName); err != nil {
		return keys{}, err
	}
	k.porters.AppendCertsFromPEM(k.porterCrt)
	return k, nil
}

// certificateLife is longer than any daemon runs.
const certificateLife = 10 * 365 * 24 * time.Hour

// newCertificate makes a key and a certificate that it signs itself, in PEM.
func newCertificate(name string) (cert, key []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) {
		return nil, nil, sandbar.Errorf(sandbar.Internal, "making a key: %w", err)
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return fail(err)
	}
	now := time.Now()
	t := &x509.Certificate{SerialNumber: serial, DNSNames: []string{name}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, k.Public(), k)
	if err != nil {
		return fail(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return fail(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), nil
}

// selector selects the objects of this daemon.
func (g *gateway) selector() string { return labelGateway + "=" + g.name }

// meta returns the metadata of an object of this daemon.
func (g *gateway) meta(name string) metav1.ObjectMeta {
	g.mu.Lock()
	defer g.mu.Unlock()
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{labelGateway: g.name}, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Name: g.lease.Name, UID: g.lease.UID}}}
}

// open makes the objects.
func (g *gateway) open(ctx context.Context) error {
	seconds := int32(leaseDuration / time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: g.name, Labels: map[string]string{labelGateway: g.name}, Annotations: map[string]string{annotationOwner: daemonid.Owner()}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &g.name, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}
	var made coordinationv1.Lease
	if err := g.api.create(ctx, leases, lease, &made); err != nil {
		return err
	}
	g.mu.Lock()
	g.lease = made
	g.mu.Unlock()
	secret := &corev1.Secret{ObjectMeta: g.meta(g.name), Data: map[string][]byte{
		porter.CertFile: g.keys.porterCrt, porter.KeyFile: g.keys.porterPK, porter.PeerFile: g.keys.daemonCrt}}
	if err := g.api.create(ctx, secrets, secret, &corev1.Secret{}); err != nil {
		return err
	}
	return g.api.create(ctx, policies, g.policy(), &networkingv1.NetworkPolicy{})
}

// policy returns the NetworkPolicy of the pods: nothing goes out, and only the porter's port is
// open. The porter knows its daemon by a key.
func (g *gateway) policy() *networkingv1.NetworkPolicy {
	port, tcp := intstr.FromInt32(porter.Port), corev1.ProtocolTCP
	return &networkingv1.NetworkPolicy{ObjectMeta: g.meta(g.name), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelGateway: g.name}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}}},
	}}
}

// keep renews the Lease, and removes those of dead daemons, until ctx ends.
func (g *gateway) keep(ctx context.Context) {
	t := time.NewTicker(renewEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		g.round(ctx)
	}
}

// round renews the Lease, and removes those of dead daemons, once.
func (g *gateway) round(ctx context.Context) {
	err := g.renew(ctx)
	if sandbar.CodeOf(err) == sandbar.NotFound {
		g.log.Warn("the daemon's Lease was deleted, so its pods end; the daemon makes another", "lease", g.name)
		err = g.replace(ctx)
	}
	if err != nil && ctx.Err() == nil {
		g.log.Warn("the daemon's Lease could not be renewed", "lease", g.name, "error", err)
	}
	dead, err := g.dead(ctx)
	for _, l := range dead {
		err = errors.Join(err, g.api.remove(ctx, leases, l.Name, l.UID, nil))
	}
	if err != nil && ctx.Err() == nil {
		g.log.Warn("the Leases of dead daemons could not be removed", "error", err)
	}
}

// renew renews the Lease.
func (g *gateway) renew(ctx context.Context) error {
	g.mu.Lock()
	lease := g.lease.DeepCopy()
	g.mu.Unlock()
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	var now coordinationv1.Lease
	err := g.api.update(ctx, leases, g.name, lease, &now)
	if sandbar.CodeOf(err) == sandbar.Conflict { // an earlier update was stored, although its answer was lost
		err = g.api.get(ctx, leases, g.name, &now)
	}
	if err == nil {
		g.mu.Lock()
		g.lease = now
		g.mu.Unlock()
	}
	return err
}

// replace makes the objects anew after somebody deleted the Lease, for example another daemon while
// this one was stopped for longer than leaseDuration. Kubernetes removes all that the old Lease
// owns.
func (g *gateway) replace(ctx context.Context) error {
	err := errors.Join(g.api.remove(ctx, policies, g.name, "", nil), g.api.remove(ctx, secrets, g.name, "", nil))
	if err != nil {
		return err
	}
	if err := g.open(ctx); err != nil { // the next round tries again if there is no Lease
		return errors.Join(err, g.api.remove(ctx, leases, g.name, "", nil))
	}
	return nil
}

// dead returns the Leases of daemons that do not live any more: their process is known to be dead,
// or this daemon has not seen a renewal for the whole duration of the Lease.
func (g *gateway) dead(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	if err := g.api.list(ctx, leases, labelGateway, &list); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := map[types.UID]sighting{}
	var dead []coordinationv1.Lease
	for _, l := range list.Items {
		if l.Name == g.name || !strings.HasPrefix(l.Name, "sandbar-") {
			continue
		}
		s := g.seen[l.UID]
		if renewed := l.Spec.RenewTime.String(); s.renewed != renewed {
			s = sighting{renewed: renewed, first: time.Now()}
		}
		seen[l.UID] = s
		lasts := leaseDuration
		if n := l.Spec.LeaseDurationSeconds; n != nil {
			lasts = max(lasts, time.Duration(*n)*time.Second)
		}
		if time.Since(s.first) > lasts || daemonid.OwnerDead(l.Annotations[annotationOwner], daemonid.Scope(), daemonid.Alive) {
			dead = append(dead, l)
		}
	}
	g.seen = seen
	return dead, nil
}

// close removes the objects.
func (g *gateway) close(ctx context.Context) error {
	g.mu.Lock()
	uid := g.lease.UID
	g.mu.Unlock()
	if uid == "" {
		return nil
	}
	return errors.Join(g.api.remove(ctx, policies, g.name, "", nil), g.api.remove(ctx, secrets, g.name, "", nil), g.api.remove(ctx, leases, g.name, uid, nil))
}
