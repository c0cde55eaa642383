package kubernetes

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// Constants of every pod.
const (
	// hostname is that of every sandbox.
	hostname = "sandbar"
	// agentDir is the read-only directory of the agent's executable.
	agentDir = "/.sandbar"
	// porterUID is the user and group of porters.
	porterUID = 65532
	// firstUID and uids are the range of users of sandboxes.
	firstUID = 100_000
	uids     = 1 << 30
	// agentThreads is more than the number of threads of an agent when it sets the process limit.
	// Setup adds the exact number.
	agentThreads = 0
	// terminationSeconds is the time between SIGTERM and SIGKILL for what is left when a pod is
	// deleted. The agent and the porter end by the end of their connection.
	terminationSeconds = 1
	// porterMemory is the memory limit of a porter.
	porterMemory = 64 << 20
	// requestedCPU is the share of a processor for which the scheduler makes room, in thousandths.
	requestedCPU = 10
)

// Names of containers and volumes.
const (
	containerAgent  = "sandbox"
	containerPorter = "porter"
	volumeAgent     = "agent"
	volumeKeys      = "keys"
)

// parts are the writable directories of a sandbox, with their share of its disk in eighths.
func parts() []part {
	return []part{{"home", sandbar.DefaultDir, 5}, {"tmp", "/tmp", 2}, {"shm", "/dev/shm", 1}}
}

type part struct {
	volume, dir string
	eighths     int64
}

// newUID returns a user for a sandbox. The kernel counts the processes of a user on the whole node,
// so no two sandboxes of a node may have the same.
func newUID() int64 {
	var b [4]byte
	rand.Read(b[:])
	return firstUID + int64(binary.BigEndian.Uint32(b[:])%uids)
}

// bare returns a pod without containers.
func (d *Driver) bare(name string, uid int64) *corev1.Pod {
	no, yes, grace := false, true, int64(terminationSeconds)
	p := &corev1.Pod{ObjectMeta: d.gateway.meta(name), Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &grace,
		Hostname: hostname, DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}},
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &uid, RunAsGroup: &uid,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
	}}
	maps.Copy(p.Labels, d.opt.labels)
	if d.opt.runtimeClass != "" {
		p.Spec.RuntimeClassName = &d.opt.runtimeClass
	}
	return p
}

// container returns a container with no rights.
func (d *Driver) container(name, image string, command ...string) corev1.Container {
	no, yes := false, true
	c := corev1.Container{Name: name, Image: image, Command: command, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}
	if d.opt.neverPull {
		c.ImagePullPolicy = corev1.PullNever
	}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(requestedCPU, resource.DecimalSI)}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	return c
}

// porter returns the porter's container.
func (d *Driver) porter(args ...string) corev1.Container {
	c := d.container(containerPorter, d.opt.agentImage, append([]string{"/" + porter.Name}, args...)...)
	uid := int64(porterUID)
	c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup = &uid, &uid
	c.Env = []corev1.EnvVar{{Name: porter.UIDEnv, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(porterMemory, resource.BinarySI)}
	c.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(porterMemory/4, resource.BinarySI)
	return c
}

// servingPorter adds the porter of a sandbox to a pod.
func (d *Driver) servingPorter(p *corev1.Pod) {
	mode := int32(0o444)
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: volumeKeys, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: d.gateway.name, DefaultMode: &mode}}})
	c := d.porter(porter.ModeServe)
	c.VolumeMounts = []corev1.VolumeMount{{Name: volumeKeys, MountPath: porter.KeyDir, ReadOnly: true}}
	p.Spec.Containers = append(p.Spec.Containers, c)
}

// pod returns the pod of a sandbox, whose programs have this user.
func (d *Driver) pod(name string, id sandbar.ID, s sandbar.Spec, uid int64) *corev1.Pod {
	p := d.bare(name, uid)
	p.Labels[labelSandbox] = string(id)
	if d.maxAge > 0 {
		seconds := int64(d.maxAge / time.Second)
		p.Spec.ActiveDeadlineSeconds = &seconds
	}
	d.servingPorter(p)
	c := d.container(containerAgent, d.image(s.Image), agentDir+"/"+agent.Name, agent.ModeDial, strconv.Itoa(porter.AgentPort))
	c.Env = agentEnv()
	c.WorkingDir = "/"
	c.VolumeMounts = []corev1.VolumeMount{{Name: volumeAgent, MountPath: agentDir, ReadOnly: true}}
	for _, part := range parts() {
		v := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		if s.Limits.Disk > 0 {
			v.SizeLimit = resource.NewQuantity(s.Limits.Disk/8*part.eighths+s.Limits.Disk%8*part.eighths/8, resource.BinarySI)
		}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: part.volume, VolumeSource: corev1.VolumeSource{EmptyDir: v}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: part.volume, MountPath: d.mountPath(part.dir)})
	}
	c.Resources.Limits = limits(s.Limits)
	p.Spec.Volumes = append(p.Spec.Volumes, d.agentVolume())
	if d.opt.agentBy == byCopy {
		install := d.porter(porter.ModeInstall, agentDir)
		install.Name = "install"
		install.VolumeMounts = []corev1.VolumeMount{{Name: volumeAgent, MountPath: agentDir}}
		p.Spec.InitContainers = []corev1.Container{install}
	}
	p.Spec.Containers = append(p.Spec.Containers, c)
	if d.guest {
		guestLimits(p, s.Limits)
	}
	return p
}

// mountPath returns the path at which a pod mounts a writable directory. gVisor's shim replaces a
// volume at "/dev/shm", exactly so written, by memory without a size.
func (d *Driver) mountPath(dir string) string {
	if d.guest {
		return dir + "/"
	}
	return dir
}

// guestMemory is what a pod on gVisor holds before its first program: gVisor's kernel, the
// processes that open files for it, the agent and the porter. With systrap they hold 40 MiB. The
// rest would be for what the watchdog does not count, such as pipes.
const guestMemory = 44 << 20

// guestLimits changes the limits of a pod's containers for gVisor. There they all run in the pod's
// cgroup, whose limits are the sums, so the processors of all are those of the sandbox.
func guestLimits(p *corev1.Pod, l sandbar.Limits) {
	list := limits(l)
	all := list.Cpu().MilliValue()
	change := func(c *corev1.Container) {
		part := all / 10
		if c.Name == containerAgent {
			part = all - part
		} else {
			c.Resources.Limits[corev1.ResourceMemory] = *resource.NewQuantity(guestMemory+policy.GVisorSlack(max(l.Memory, 0)), resource.BinarySI)
			c.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(guestMemory, resource.BinarySI)
		}
		if all > 0 {
			c.Resources.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(part, resource.DecimalSI)
			c.Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(min(part, requestedCPU), resource.DecimalSI)
		}
	}
	for i := range p.Spec.InitContainers {
		change(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		change(&p.Spec.Containers[i])
	}
}

// unchanged returns an error if the cluster has changed a limit of a pod, for example by a webhook.
func unchanged(asked, made *corev1.Pod) error {
	got := map[string]corev1.ResourceList{}
	for _, c := range made.Spec.Containers {
		got[c.Name] = c.Resources.Limits
	}
	for _, c := range asked.Spec.Containers {
		for name, want := range c.Resources.Limits {
			if q := got[c.Name][name]; q.Cmp(want) != 0 {
				return changed("the "+string(name)+" of the container "+c.Name, &q, &want)
			}
		}
	}
	if !hasAgent(asked, made) {
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the cluster has dropped the volume with the agent's image from a new pod: it has no image volumes",
			Fix: "set the option " + optionAgentBy + " to " + byCopy}
	}
	sizes := map[string]*resource.Quantity{}
	for _, v := range made.Spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory {
			sizes[v.Name] = v.EmptyDir.SizeLimit
		}
	}
	for _, v := range asked.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
			continue
		}
		if q := sizes[v.Name]; q == nil || q.Cmp(*v.EmptyDir.SizeLimit) != 0 {
			return changed("the size of the volume "+v.Name, q, v.EmptyDir.SizeLimit)
		}
	}
	return nil
}

// hasAgent reports whether a pod has the volume with the agent as it was asked for. A server that
// does not know image volumes drops it.
func hasAgent(asked, made *corev1.Pod) bool {
	image := func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volumeAgent && v.Image != nil })
	}
	return image(asked) == image(made)
}

// changed is the error for a limit that the cluster has changed.
func changed(what string, is, want *resource.Quantity) error {
	said := "none"
	if is != nil {
		said = is.String()
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits", Message: "the cluster has changed a limit of a new pod: " + what + " is " + said + " instead of " + want.String(),
		Fix: "exempt the namespace from the webhook, or from the policy, that changes pods"}
}

// agentVolume returns the volume with the agent: its image, or an empty directory for the init
// container.
func (d *Driver) agentVolume() corev1.Volume {
	v := corev1.Volume{Name: volumeAgent}
	if d.opt.agentBy == byCopy {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
		return v
	}
	v.Image = &corev1.ImageVolumeSource{Reference: d.opt.agentImage, PullPolicy: corev1.PullIfNotPresent}
	if d.opt.neverPull {
		v.Image.PullPolicy = corev1.PullNever
	}
	return v
}

// limits returns what the container's cgroup enforces.
func limits(l sandbar.Limits) corev1.ResourceList {
	list := corev1.ResourceList{}
	if l.Memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(l.Memory, resource.BinarySI)
	}
	if l.CPUs > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(max(int64(l.CPUs*1000), 1), resource.DecimalSI)
	}
	return list
}

// agentEnv tunes the agent's Go runtime as in native: few threads and caches, rare garbage
// collection.
func agentEnv() []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "GOMAXPROCS", Value: "2"}, {Name: "GOGC", Value: "25"}, {Name: "GODEBUG", Value: "containermaxprocs=0,updatemaxprocs=0"},
		{Name: "GOMEMLIMIT", Value: "off"}, {Name: "GOTRACEBACK", Value: "single"}}
}

// setup returns the agent's plan.
func (d *Driver) setup(s sandbar.Spec, uid int64) (*wire.Setup, error) {
	rows, err := policy.Rlimits(s.Limits, policy.RlimitOptions{Enforced: d.caps.Enforced, AgentThreads: agentThreads})
	if err != nil {
		return nil, err
	}
	if s.Limits.Files <= 0 { // that of the runtime, which the agent cannot exceed
		rows = slices.DeleteFunc(rows, func(r wire.Rlimit) bool { return r.Resource == rlimitNofile })
	}
	setup := &wire.Setup{
		Prebuilt: true, Dir: sandbar.DefaultDir, UID: uint32(uid), GID: uint32(uid), Rlimits: rows,
		TagResource: uint32(d.tag), Seccomp: d.filters.all, ProgramSeccomp: d.filters.programs,
		Landlock: policy.Landlock([]string{"/"}, writable()),
		Env:      environment(s.Env), OwnEnv: imageEnv(), Mitigate: d.mitigate,
	}
	if d.guest {
		if n := uint64(2 * s.Limits.Disk); s.Limits.Disk > 0 {
			// gVisor has no Landlock, so programs can write to the file of the container's termination
			// message, which is on the node's disk. A sparse file may be larger than Disk.
			rows = append(rows, wire.Rlimit{Resource: policy.RlimitFSize, Soft: n, Hard: n})
		}
		setup.Rlimits = policy.GVisorRlimits(rows)
		if s.Limits.Memory > 0 {
			// Files are the host's memory, and not in the account of gVisor's kernel.
			setup.Watchdog, setup.WatchKernel, setup.WatchDisks = s.Limits.Memory, true, writable()
		}
	}
	return setup, nil
}

// writable returns the writable directories of a sandbox.
func writable() (dirs []string) {
	for _, p := range parts() {
		dirs = append(dirs, p.dir)
	}
	return dirs
}

// rlimitNofile is RLIMIT_NOFILE.
const rlimitNofile = 7

// environment returns the variables of every program that no image changes, and those of the Spec.
func environment(spec map[string]string) []string {
	env := []string{"HOME=" + sandbar.DefaultDir, "USER=user", "LOGNAME=user", "SHELL=/bin/sh", "TMPDIR=/tmp", "TERM=dumb"}
	for _, k := range slices.Sorted(maps.Keys(spec)) {
		env = append(env, k+"="+spec[k])
	}
	return env
}

// imageEnv gives programs the variables of the image, which the daemon does not read: the agent has
// them, with those of agentEnv and those that the cluster adds.
func imageEnv() wire.OwnEnv {
	o := wire.OwnEnv{Use: true, Below: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"},
		Omit: []string{"HOSTNAME", "KUBERNETES_*"}}
	for _, v := range agentEnv() {
		o.Omit = append(o.Omit, v.Name)
	}
	return o
}
