package kubernetes

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func TestOptions(t *testing.T) {
	with := func(pairs ...string) map[string]string {
		m := map[string]string{optionAgentImage: "agent"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	o, err := parseOptions(with(optionImages, " a, b,", optionLabels, "team=search, x.y/z=", optionAgentBy, byCopy, optionPull, "never"))
	if err != nil {
		t.Fatal(err)
	}
	if len(o.images) != 2 || o.images[1] != "b" || o.labels["team"] != "search" || o.agentBy != byCopy || !o.neverPull || o.image != DefaultImage {
		t.Errorf("parsed %+v", o)
	}
	for name, raw := range map[string]map[string]string{
		"nope":           with("nope", "x"),
		optionAgentImage: {},
		optionAgentBy:    with(optionAgentBy, "magic"),
		optionPull:       with(optionPull, "always"),
		optionReach:      with(optionReach, "proxy"),
		optionLabels:     with(optionLabels, "a b=c"),
	} {
		if _, err := parseOptions(raw); sandbar.CodeOf(err) != sandbar.Invalid || sandbar.AsError(err).Field != name || sandbar.AsError(err).Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseOptions(with(optionLabels, labelSandbox+"=x")); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("a label of the driver: %v", err)
	}
}

// The presets have images of the driver's own, whatever the option images allows.
func TestPresets(t *testing.T) {
	d := &Driver{opt: options{image: "default"}}
	for _, c := range []struct{ node, name, image, ref string }{
		{"", "python", sandbar.ImageHost, "default"}, {"", "node", "node", DefaultNode}, {"mine", "node", "node", "mine"}, {"", "ruby", "", ""},
	} {
		d.opt.node = c.node
		image, ref, ok := d.Preset(t.Context(), c.name)
		if image != c.image || ref != c.ref || ok != (c.ref != "") {
			t.Errorf("%+v: %q, %q, %t", c, image, ref, ok)
		}
		if err := d.checkImage(c.name); (err == nil) != ok || ok && (d.image(c.name) != ref || d.image(image) != ref) {
			t.Errorf("%+v: %v, %q", c, err, d.image(c.name))
		}
	}
}

// Every pod has what the pod security standard "restricted" demands, and its own user.
func TestPod(t *testing.T) {
	g, err := newGateway(&api{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.lease.Name, g.lease.UID = g.name, "lease-uid"
	d := &Driver{gateway: g, opt: options{image: "image", agentImage: "agent", labels: map[string]string{"team": "search"}, runtimeClass: "gvisor"}}
	d.maxAge = time.Hour
	for _, copies := range []bool{false, true} {
		if d.opt.agentBy = byVolume; copies {
			d.opt.agentBy = byCopy
		}
		p := d.pod("name", "sb_id", sandbar.Spec{Limits: sandbar.Limits{Memory: 64 << 20, CPUs: 0.25, Disk: 8 << 20}}, 123456)
		if p.Labels["team"] != "search" || p.Labels[labelSandbox] != "sb_id" || p.Labels[labelGateway] != g.name || len(p.OwnerReferences) != 1 || p.OwnerReferences[0].UID != "lease-uid" {
			t.Errorf("metadata %+v", p.ObjectMeta)
		}
		s := p.Spec
		if s.ActiveDeadlineSeconds == nil || *s.ActiveDeadlineSeconds != 3600 {
			t.Errorf("the deadline is %v", s.ActiveDeadlineSeconds)
		}
		if *s.AutomountServiceAccountToken || *s.EnableServiceLinks || s.HostNetwork || s.HostPID || s.HostIPC || *s.RuntimeClassName != "gvisor" ||
			!*s.SecurityContext.RunAsNonRoot || *s.SecurityContext.RunAsUser != 123456 || s.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("pod %+v", s)
		}
		all := append(append([]corev1.Container{}, s.InitContainers...), s.Containers...)
		if want := map[bool]int{false: 2, true: 3}[copies]; len(all) != want {
			t.Errorf("%d containers, want %d", len(all), want)
		}
		for _, c := range all {
			k := c.SecurityContext
			if *k.AllowPrivilegeEscalation || !*k.ReadOnlyRootFilesystem || len(k.Capabilities.Drop) != 1 || k.Capabilities.Drop[0] != "ALL" {
				t.Errorf("container %s: %+v", c.Name, k)
			}
			for _, m := range c.VolumeMounts {
				if m.Name == volumeKeys && c.Name != containerPorter {
					t.Errorf("the container %s mounts the keys", c.Name)
				}
			}
		}
		agent := s.Containers[1]
		if agent.Resources.Limits.Memory().Value() != 64<<20 || agent.Resources.Limits.Cpu().MilliValue() != 250 {
			t.Errorf("limits %v", agent.Resources.Limits)
		}
		var disk int64
		for _, v := range s.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory {
				disk += v.EmptyDir.SizeLimit.Value()
			}
		}
		if disk != 8<<20 {
			t.Errorf("the writable directories have %d bytes", disk)
		}
	}
	if a, b := newUID(), newUID(); a == b || a < firstUID || b < firstUID {
		t.Errorf("users %d and %d", a, b)
	}
}

func TestPodFailure(t *testing.T) {
	waiting := func(reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		code sandbar.Code
	}{
		"starts":      {waiting("ContainerCreating"), ""},
		"no image":    {waiting("ErrImageNeverPull"), sandbar.NotFound},
		"bad runtime": {waiting("RunContainerError"), sandbar.Unsupported},
		"no room": {&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}},
			sandbar.Exhausted},
		"evicted": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}}, sandbar.Unavailable},
	} {
		err := podFailure(c.pod)
		if c.code == "" && err != nil || c.code != "" && sandbar.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrors(t *testing.T) {
	a := &api{host: "https://server", namespace: "ns"}
	r := schema.GroupResource{Resource: pods}
	for code, errs := range map[sandbar.Code][]error{
		sandbar.NotFound:    {apierrors.NewNotFound(r, "x")},
		sandbar.Exists:      {apierrors.NewAlreadyExists(r, "x")},
		sandbar.Conflict:    {apierrors.NewConflict(r, "x", errors.New("changed"))},
		sandbar.Exhausted:   {apierrors.NewForbidden(r, "x", errors.New("exceeded quota: pods"))},
		sandbar.Unsupported: {apierrors.NewForbidden(r, "x", errors.New("violates PodSecurity")), apierrors.NewInvalid(schema.GroupKind{}, "x", nil)},
		sandbar.Unavailable: {apierrors.NewUnauthorized("expired"), apierrors.NewTooManyRequests("slow down", 1), errors.New("connection refused")},
	} {
		for _, err := range errs {
			got := a.failed(t.Context(), "doing it", err)
			if sandbar.CodeOf(got) != code || !strings.HasPrefix(got.Error(), "doing it: ") {
				t.Errorf("%v: code %q: %v", err, sandbar.CodeOf(got), got)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	for name, files := range map[string][wire.Counters]string{
		"version 1": {wire.MemoryPeak1: "4096\n", wire.MemoryOOM1: "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", wire.CPUTime1: "5000\n"},
		"version 2": {wire.MemoryPeak2: "4096\n", wire.MemoryEvents2: "oom 5\noom_kill 3\noom_group_kill 0\n", wire.CPUTime2: "usage_usec 5\nuser_usec 1\n"},
	} {
		if got, want := parseUsage(files), (client.Usage{PeakMemory: 4096, OOMKills: 3, CPU: 5 * time.Microsecond}); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	var none [wire.Counters]string
	for i := range none {
		none[i] = "-7 nonsense\n"
	}
	if got := parseUsage(none); got != (client.Usage{}) {
		t.Errorf("nonsense: %+v", got)
	}
}

// The status of a pod tells why its sandbox has died.
func TestDeathOf(t *testing.T) {
	ended := func(reason string, code int32) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: containerAgent, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}}}}}
	}
	disrupted := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}}
	}
	evicted := ended("Error", 137)
	evicted.Reason, evicted.Message = "Evicted", "Usage of EmptyDir volume exceeds the limit"
	now := metav1.Now()
	for says, p := range map[string]*corev1.Pod{
		"ran out of memory":                      {Status: ended(reasonOOM, 137)},
		"evicted its pod: \"Usage of EmptyDir":   {Status: evicted},
		"deadline":                               {Status: corev1.PodStatus{Reason: "DeadlineExceeded"}},
		"shuts down":                             {Status: corev1.PodStatus{Reason: "NodeShutdown"}},
		"is lost":                                {Status: corev1.PodStatus{Reason: "NodeLost"}},
		"drain of the node":                      {Status: disrupted("EvictionByEvictionAPI")},
		"is not usable":                          {Status: disrupted("DeletionByTaintManager")},
		"higher priority":                        {Status: disrupted("PreemptionByScheduler")},
		"its pod was ended: \"NewReason\"":       {Status: disrupted("NewReason")},
		"ended: \"StartError\", exit code 128":   {Status: ended("StartError", 128)},
		"somebody else deleted its pod":          {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}},
		"its pod ended: \"UnexpectedAdmission\"": {Status: corev1.PodStatus{Reason: "UnexpectedAdmission"}},
	} {
		d, known := deathOf(p, "")
		if !known || sandbar.CodeOf(d.Err) != sandbar.Gone || !strings.Contains(d.Err.Error(), says) || d.OutOfMemory != (says == "ran out of memory") {
			t.Errorf("%s: %+v, %v", says, d, known)
		}
	}
	for _, p := range []*corev1.Pod{{}, {Status: ended("Completed", 0)}} {
		if d, known := deathOf(p, ""); known {
			t.Errorf("%+v: %+v", p.Status, d)
		}
	}
	for _, p := range []*corev1.Pod{nil, {ObjectMeta: metav1.ObjectMeta{UID: "another"}}} {
		if d, known := deathOf(p, "uid"); !known || d.OutOfMemory || d.Err == nil {
			t.Errorf("%+v: %+v", p, d)
		}
	}
}
