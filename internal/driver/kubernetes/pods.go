package kubernetes

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sandbar-dev/sandbar"
)

// podWatch follows the pods of this daemon with one watch.
type podWatch struct {
	api        *api
	controller cache.Controller

	mu    sync.Mutex
	known map[string]*podEntry // by name
}

// podEntry is a pod with those who wait for a change of it.
type podEntry struct {
	pod     *corev1.Pod   // nil: the pod does not exist
	changed chan struct{} // closed at the next change; nil if nobody waits
}

func newPodWatch(a *api, selector string, log *slog.Logger) *podWatch {
	w := &podWatch{api: a, known: map[string]*podEntry{}}
	logger := klog.Logger(logr.FromSlogHandler(log.Handler()))
	lw := &cache.ListWatch{ListWithContextFunc: selecting(selector, a.listPods), WatchFuncWithContext: selecting(selector, a.watchPods)}
	_, w.controller = cache.NewInformerWithOptions(cache.InformerOptions{Logger: &logger, ListerWatcher: lw, ObjectType: &corev1.Pod{}, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.set(o, false) },
		UpdateFunc: func(_, o any) { w.set(o, false) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			w.set(o, true)
		},
	}})
	return w
}

// selecting limits a list or a watch to a label.
func selecting[T any](selector string, f func(context.Context, metav1.ListOptions) (T, error)) func(context.Context, metav1.ListOptions) (T, error) {
	return func(ctx context.Context, o metav1.ListOptions) (T, error) {
		o.LabelSelector = selector
		return f(ctx, o)
	}
}

// run watches until ctx ends.
func (w *podWatch) run(ctx context.Context) { w.controller.RunWithContext(ctx) }

// synced waits until the first list has arrived.
func (w *podWatch) synced(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), w.controller.HasSynced) {
		return sandbar.Errorf(sandbar.Unavailable, "the API server at %s does not list the pods of the namespace %s", sandbar.Quote(w.api.host, 200), sandbar.Quote(w.api.namespace, 70))
	}
	return nil
}

// set stores the state of a pod.
func (w *podWatch) set(o any, gone bool) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.known[p.Name]
	if e == nil {
		e = &podEntry{}
		w.known[p.Name] = e
	}
	e.pod = p
	if gone {
		e.pod = nil
	}
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
	if gone {
		delete(w.known, p.Name)
	}
}

// get returns the state of a pod, nil if the watch does not know it, and a channel that is closed
// at the next change.
func (w *podWatch) get(name string) (*corev1.Pod, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.known[name]
	if e == nil {
		e = &podEntry{}
		w.known[name] = e
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.pod, e.changed
}

// forget forgets a pod that does not exist, for which somebody has waited.
func (w *podWatch) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.known[name]; e != nil && e.pod == nil {
		delete(w.known, name)
	}
}

// wait waits until done returns true or an error. It gets nil for a pod that does not exist.
func (w *podWatch) wait(ctx context.Context, name string, done func(*corev1.Pod) (bool, error)) error {
	for {
		p, changed := w.get(name)
		if ok, err := done(p); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for a pod: %w", ctx.Err())
		}
	}
}
