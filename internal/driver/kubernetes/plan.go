package kubernetes

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

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
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: part.volume, MountPath: part.dir})
	}
	c.Resources.Limits = limits(s.Limits)
	p.Spec.Volumes = append(p.Spec.Volumes, d.agentVolume())
	if d.opt.copies {
		install := d.porter(porter.ModeInstall, agentDir)
		install.Name = "install"
		install.VolumeMounts = []corev1.VolumeMount{{Name: volumeAgent, MountPath: agentDir}}
		p.Spec.InitContainers = []corev1.Container{install}
	}
	p.Spec.Containers = append(p.Spec.Containers, c)
	return p
}

// agentVolume returns the volume with the agent: its image, or an empty directory for the init
// container.
func (d *Driver) agentVolume() corev1.Volume {
	v := corev1.Volume{Name: volumeAgent}
	if d.opt.copies {
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
	return &wire.Setup{
		Prebuilt: true, Dir: sandbar.DefaultDir, UID: uint32(uid), GID: uint32(uid), Rlimits: rows,
		TagResource: uint32(policy.TagLocks), Seccomp: d.filters.all, ProgramSeccomp: d.filters.programs,
		Landlock: policy.Landlock([]string{"/"}, []string{sandbar.DefaultDir, "/tmp", "/dev/shm"}),
		Env:      environment(s.Env), Mitigate: d.mitigate,
	}, nil
}

// rlimitNofile is RLIMIT_NOFILE.
const rlimitNofile = 7

// environment returns the initial environment of every program. That of the image is not in it: the
// daemon does not read images.
func environment(spec map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"HOME=" + sandbar.DefaultDir, "USER=user", "LOGNAME=user", "SHELL=/bin/sh", "TMPDIR=/tmp", "TERM=dumb"}
	for _, k := range slices.Sorted(maps.Keys(spec)) {
		env = append(env, k+"="+spec[k])
	}
	return env
}
