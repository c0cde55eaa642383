package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// checkUserNS creates a user namespace. There is no other reliable check: four different
// switches can forbid it.
func checkUserNS() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot create a user namespace: %w", err)
	}
	return nil
}

// controllers are the cgroup controllers that the limits of sandboxes need.
var controllers = []string{"memory", "pids", "cpu"}

func checkCgroupV1() error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	for _, c := range controllers {
		i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return m.kind == "cgroup" && slices.Contains(m.options, c) })
		if i < 0 {
			return fmt.Errorf("controller %s is not on a version 1 hierarchy", c)
		}
		if err := canMakeGroup(mounts[i].dir); err != nil {
			return fmt.Errorf("controller %s: %w", c, err)
		}
	}
	return nil
}

func checkCgroupV2() error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return m.kind == "cgroup2" })
	if i < 0 {
		return errors.New("the version 2 hierarchy is not mounted")
	}
	dir := filepath.Join(mounts[i].dir, ownGroupV2())
	if _, err := os.Stat(dir); err != nil {
		dir = mounts[i].dir // in a cgroup namespace made later than this process
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(b)), c) {
			return fmt.Errorf("controller %s is not on the version 2 hierarchy", c)
		}
	}
	return canMakeGroup(dir)
}

func checkPeakReset() error {
	if checkCgroupV1() == nil {
		return nil
	}
	if err := checkCgroupV2(); err != nil {
		return err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("the kernel's release %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 12 {
		return fmt.Errorf("this is Linux %d.%d, which cannot reset a peak of version 2", major, minor)
	}
	return nil
}

func checkFreezer() error {
	if err := checkCgroupV1(); err != nil && checkCgroupV2() != nil {
		return err
	}
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return m.kind == "cgroup2" })
	if i < 0 {
		return errors.New("the version 2 hierarchy is not mounted")
	}
	return canMakeGroup(filepath.Join(mounts[i].dir, ownGroupV2()))
}

// canMakeGroup creates a cgroup and removes it: permission bits show neither a read-only
// mount nor a container's seccomp profile.
func canMakeGroup(dir string) error {
	probe, err := os.MkdirTemp(dir, "sandbar-testenv-")
	if err != nil {
		return fmt.Errorf("cannot create a cgroup: %w", err)
	}
	return os.Remove(probe)
}

type cgroupMount struct {
	dir, kind string
	options   []string
}

// cgroupMounts returns the mounted cgroup hierarchies.
func cgroupMounts() ([]cgroupMount, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var mounts []cgroupMount
	for s := bufio.NewScanner(f); s.Scan(); {
		// device, directory, type, options, …
		w := strings.Fields(s.Text())
		if len(w) >= 4 && (w[2] == "cgroup" || w[2] == "cgroup2") {
			mounts = append(mounts, cgroupMount{dir: w[1], kind: w[2], options: strings.Split(w[3], ",")})
		}
	}
	return mounts, nil
}

// ownGroupV2 returns this process's cgroup path in the version 2 hierarchy.
func ownGroupV2() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path)
		}
	}
	return "/"
}
