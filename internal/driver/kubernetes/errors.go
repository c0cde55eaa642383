package kubernetes

import (
	"context"
	"errors"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
)

// maxServerText is the longest message of the API server in an error, in bytes.
const maxServerText = 300

// failed converts the error of a call to the API server. caller is the context of the request; the
// call had a timeout of its own besides.
func (a *api) failed(caller context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if caller.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(caller), "%s: %w", what, caller.Err())
	}
	at := "the API server at " + sandbar.Quote(a.host, 200)
	said := ": " + sandbar.Quote(err.Error(), maxServerText)
	switch {
	case apierrors.IsNotFound(err):
		return &sandbar.Error{Code: sandbar.NotFound, Message: what + ": " + at + said}
	case apierrors.IsAlreadyExists(err):
		return &sandbar.Error{Code: sandbar.Exists, Message: what + ": " + at + said}
	case apierrors.IsConflict(err):
		return &sandbar.Error{Code: sandbar.Conflict, Message: what + ": " + at + said}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return &sandbar.Error{Code: sandbar.Exhausted, Message: what + ": the quota of the namespace " + sandbar.Quote(a.namespace, 70) + " is used up" + said,
			Fix: "wait until other sandboxes end, or raise the ResourceQuota"}
	case apierrors.IsForbidden(err):
		return &sandbar.Error{Code: sandbar.Unsupported, Message: what + ": " + at + " forbids it" + said,
			Fix: "give the daemon's account the missing right in the namespace " + a.namespace}
	case apierrors.IsUnauthorized(err):
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: what + ": " + at + " does not accept the daemon's credentials",
			Fix: "check the kubeconfig with kubectl; a token may have expired"}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &sandbar.Error{Code: sandbar.Unsupported, Message: what + ": " + at + " refuses it" + said}
	case apierrors.IsTooManyRequests(err):
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: what + ": " + at + " has too many requests", Fix: "try again"}
	case errors.Is(err, context.DeadlineExceeded):
		return &sandbar.Error{Code: sandbar.Unavailable, Err: err, Message: what + ": " + at + " does not answer", Fix: "check it with kubectl get --raw /readyz"}
	}
	return &sandbar.Error{Code: sandbar.Unavailable, Message: what + ": " + at + " cannot be used" + said, Fix: "check it with kubectl get --raw /readyz"}
}

// podFailure returns why a pod cannot start, nil if it still can.
func podFailure(p *corev1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &sandbar.Error{Code: sandbar.Exhausted, Message: "no node of the cluster has room for a new sandbox: " + sandbar.Quote(c.Message, maxServerText),
				Fix: "wait until other sandboxes end, ask for less, or add a node"}
		}
	}
	all := append(append([]corev1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...)
	for _, c := range all {
		if w := c.State.Waiting; w != nil {
			switch w.Reason {
			case "ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull", "InvalidImageName":
				return &sandbar.Error{Code: sandbar.NotFound, Field: "image", Message: "the cluster cannot get the image " + sandbar.Quote(c.Image, 100) + " (" + w.Reason + "): " + sandbar.Quote(w.Message, maxServerText),
					Fix: imageFix(c.Image + " " + w.Message)}
			case "CreateContainerError", "CreateContainerConfigError", "RunContainerError":
				return &sandbar.Error{Code: sandbar.Unsupported, Message: "a node cannot start a container (" + w.Reason + "): " + sandbar.Quote(w.Message, maxServerText)}
			}
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return &sandbar.Error{Code: sandbar.Unavailable, Message: "a new pod ended before it was ready: " + endOf(p), Fix: "try again; see kubectl get events"}
	}
	return nil
}

// endOf says why a pod ended.
func endOf(p *corev1.Pod) string {
	said := []string{string(p.Status.Phase)}
	if p.Status.Reason != "" || p.Status.Message != "" {
		said = append(said, p.Status.Reason+" "+p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			said = append(said, c.Name+": "+t.Reason+" "+t.Message)
		}
	}
	return sandbar.Quote(strings.Join(said, "; "), maxServerText)
}

// reasonOOM is the reason of a container that the kernel has killed for memory.
const reasonOOM = "OOMKilled"

// deathOf returns why a sandbox has died, from its pod; p is nil if the pod does not exist. known
// is false as long as the pod does not tell.
func deathOf(p *corev1.Pod, uid types.UID) (d client.Death, known bool) {
	if p == nil || p.UID != uid {
		return client.Death{Err: deathError("somebody else deleted its pod", "")}, true
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Reason == reasonOOM {
			return client.Death{OutOfMemory: true, Err: deathError("its pod ran out of memory: the kernel killed the container "+c.Name, "ask for more memory")}, true
		}
	}
	if said := statusDeath(p); said != "" {
		return client.Death{Err: deathError(said, "")}, true
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return client.Death{Err: deathError(disruption(c.Reason, p.Spec.NodeName)+": "+sandbar.Quote(c.Message, maxServerText), "")}, true
		}
	}
	if p.DeletionTimestamp != nil {
		return client.Death{Err: deathError("somebody else deleted its pod", "")}, true
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return client.Death{Err: deathError("the container "+c.Name+" of its pod ended: "+sandbar.Quote(t.Reason, 60)+", exit code "+strconv.Itoa(int(t.ExitCode)), "")}, true
		}
	}
	return client.Death{}, false
}

// statusDeath returns what a kubelet says about a pod that it has ended, "" for nothing.
func statusDeath(p *corev1.Pod) string {
	node, message := sandbar.Quote(p.Spec.NodeName, 70), sandbar.Quote(p.Status.Message, maxServerText)
	switch p.Status.Reason {
	case "":
		return ""
	case "Evicted":
		return "the node " + node + " evicted its pod: " + message
	case "DeadlineExceeded":
		return "its pod reached the deadline of its lifetime (activeDeadlineSeconds)"
	case "Terminated", "NodeShutdown", "Shutdown":
		return "the node " + node + " shuts down: " + message
	case "NodeLost":
		return "the node " + node + " is lost: " + message
	}
	return "its pod ended: " + sandbar.Quote(p.Status.Reason, 60) + " " + message
}

// disruption says who ends a pod, by the reason of its condition DisruptionTarget.
func disruption(reason, node string) string {
	node = sandbar.Quote(node, 70)
	switch reason {
	case "EvictionByEvictionAPI":
		return "its pod was evicted, as by a drain of the node " + node
	case "DeletionByTaintManager":
		return "its pod was deleted because the node " + node + " is not usable"
	case "DeletionByPodGC":
		return "its pod was deleted because the node " + node + " does not exist any more"
	case "PreemptionByScheduler":
		return "its pod had to leave the node " + node + " for a pod with a higher priority"
	case "TerminationByKubelet":
		return "the node " + node + " ended its pod"
	}
	return "its pod was ended: " + sandbar.Quote(reason, 60)
}

// lostError is the error of a sandbox whose connection has ended, while its pod, if it is known,
// says nothing about it.
func lostError(p *corev1.Pod) error {
	if p == nil {
		return deathError("the connection to its pod ended", "")
	}
	return deathError("the connection to its pod on the node "+sandbar.Quote(p.Spec.NodeName, 70)+" ended, and the cluster does not tell why", "see kubectl get nodes, and kubectl get events")
}

// deathError is the error of a sandbox that has died. what completes "the sandbox has ended: ".
func deathError(what, fix string) error {
	if fix == "" {
		fix = "create a new one"
	}
	return &sandbar.Error{Code: sandbar.Gone, Message: what, Fix: fix}
}
