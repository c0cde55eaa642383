package kubernetes

import (
	"context"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandbar-dev/sandbar"
)

// api has the calls to the API server. It has clients of three groups only, because the client of
// all groups would make the program a third larger.
type api struct {
	host      string // the server's URL
	namespace string
	core      rest.Interface
	leases    rest.Interface
	policies  rest.Interface
	scheme    *runtime.Scheme
	transport *http.Transport
	upgrades  *http.Client // for WebSockets, which HTTP/2 has not
}

// callBound bounds one call to the API server.
const callBound = 15 * time.Second

// openAPI finds the cluster.
func openAPI(o options) (*api, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "no Kubernetes cluster is configured: " + sandbar.Quote(err.Error(), maxServerText),
			Fix: "set the option " + optionKubeconfig + " of the driver kubernetes, or KUBECONFIG"}
	}
	a := &api{host: config.Host, namespace: o.namespace, scheme: runtime.NewScheme()}
	if a.namespace == "" {
		if a.namespace, _, err = loaded.Namespace(); err != nil {
			return nil, badOption(optionKubeconfig, sandbar.Quote(err.Error(), maxServerText), "correct the kubeconfig")
		}
	}
	metav1.AddToGroupVersion(a.scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(a.scheme); err != nil {
			return nil, sandbar.Errorf(sandbar.Internal, "the types of Kubernetes: %w", err)
		}
	}
	return a, a.connect(config)
}

// connect makes the clients, which share one connection. It has no idle timeout, so that the driver
// has one connection from New to Close.
func (a *api) connect(config *rest.Config) error {
	bad := func(err error) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the configuration of the Kubernetes cluster cannot be used: " + sandbar.Quote(err.Error(), maxServerText),
			Fix: "check it with kubectl"}
	}
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return bad(err)
	}
	a.transport = &http.Transport{TLSClientConfig: secured, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: callBound,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second}}
	if config.Proxy != nil {
		a.transport.Proxy = config.Proxy
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, a.transport)
	if err != nil {
		return bad(err)
	}
	client := &http.Client{Transport: wrapped}
	http1 := &http.Transport{TLSClientConfig: secured.Clone(), Proxy: a.transport.Proxy, TLSHandshakeTimeout: callBound, DisableKeepAlives: true}
	if wrapped, err = rest.HTTPWrappersForConfig(config, http1); err != nil {
		return bad(err)
	}
	a.upgrades = &http.Client{Transport: wrapped}
	for _, g := range []struct {
		to    *rest.Interface
		path  string
		group schema.GroupVersion
	}{
		{&a.core, "/api", corev1.SchemeGroupVersion}, {&a.leases, "/apis", coordinationv1.SchemeGroupVersion}, {&a.policies, "/apis", networkingv1.SchemeGroupVersion},
	} {
		c := rest.CopyConfig(config)
		c.APIPath, c.GroupVersion = g.path, &g.group
		c.NegotiatedSerializer = serializer.NewCodecFactory(a.scheme).WithoutConversion()
		c.QPS = -1 // the server limits its clients by itself
		if *g.to, err = rest.RESTClientForConfigAndClient(c, client); err != nil {
			return bad(err)
		}
	}
	return nil
}

// close closes the connection.
func (a *api) close() { a.transport.CloseIdleConnections() }

// The resources of the driver.
const (
	pods     = "pods"
	secrets  = "secrets"
	leases   = "leases"
	policies = "networkpolicies"
)

// client returns the client of a resource.
func (a *api) client(resource string) rest.Interface {
	switch resource {
	case leases:
		return a.leases
	case policies:
		return a.policies
	}
	return a.core
}

// create creates an object. into receives the stored one.
func (a *api) create(ctx context.Context, resource string, object, into runtime.Object) error {
	return a.call(ctx, "creating one of the "+resource, func(ctx context.Context) error {
		return a.client(resource).Post().Namespace(a.namespace).Resource(resource).Body(object).Do(ctx).Into(into)
	})
}

// update replaces an object, unless it has changed since it was read: Conflict.
func (a *api) update(ctx context.Context, resource, name string, object, into runtime.Object) error {
	return a.call(ctx, "updating one of the "+resource, func(ctx context.Context) error {
		return a.client(resource).Put().Namespace(a.namespace).Resource(resource).Name(name).Body(object).Do(ctx).Into(into)
	})
}

// get reads an object.
func (a *api) get(ctx context.Context, resource, name string, into runtime.Object) error {
	return a.call(ctx, "reading one of the "+resource, func(ctx context.Context) error {
		return a.client(resource).Get().Namespace(a.namespace).Resource(resource).Name(name).Do(ctx).Into(into)
	})
}

// remove deletes an object with this UID, "" for any. That it does not exist is no error. grace is
// the grace period of a pod in seconds, nil for that of its Spec.
func (a *api) remove(ctx context.Context, resource, name string, uid types.UID, grace *int64) error {
	o := &metav1.DeleteOptions{GracePeriodSeconds: grace}
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := a.call(ctx, "removing one of the "+resource, func(ctx context.Context) error {
		return a.client(resource).Delete().Namespace(a.namespace).Resource(resource).Name(name).Body(o).Do(ctx).Error()
	})
	// Conflict: another object has this name now.
	if c := sandbar.CodeOf(err); c == sandbar.NotFound || c == sandbar.Conflict {
		return nil
	}
	return err
}

// list lists the objects with a label.
func (a *api) list(ctx context.Context, resource, selector string, into runtime.Object) error {
	return a.call(ctx, "listing "+resource, func(ctx context.Context) error {
		return a.client(resource).Get().Namespace(a.namespace).Resource(resource).Param("labelSelector", selector).Do(ctx).Into(into)
	})
}

// listPods and watchPods are for an informer.
func (a *api) listPods(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := &corev1.PodList{}
	err := a.core.Get().Namespace(a.namespace).Resource(pods).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(list)
	return list, err
}

// watchSeconds is how long the API server keeps a watch.
const watchSeconds = 3600

func (a *api) watchPods(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	seconds := int64(watchSeconds)
	o.TimeoutSeconds = &seconds
	return a.core.Get().Namespace(a.namespace).Resource(pods).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
}

// call makes a call with callBound and converts its error.
func (a *api) call(ctx context.Context, what string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	return a.failed(ctx, what, f(bounded))
}
