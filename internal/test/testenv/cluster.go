package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
)

// clusterVersion is the version of the cluster that "make cluster" builds: Kubernetes',
// containerd's, and the number of the recipe, which changes with scripts/cluster.sh and the
// programs.
const clusterVersion = "1.37.2-2.4.2-1"

// ClusterDir is the directory of the cluster that "make cluster" builds, with the programs in bin.
// It is below TESTENV_CLUSTERS, by default sandbar in the user's cache directory, so that it
// outlives the working tree.
func ClusterDir() string {
	dir := os.Getenv("TESTENV_CLUSTERS")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			user = os.TempDir()
		}
		dir = filepath.Join(user, "sandbar")
	}
	return filepath.Join(dir, "cluster-"+clusterVersion)
}

// Cluster is root, runc, cgroup v1, the programs ip, iptables, mount, nsenter and unshare, and a
// Kubernetes in ClusterDir, so that tests can start a cluster (package cluster). With cgroup v2 the
// cluster is not tested yet.
var Cluster = require("Cluster", "as root, run \"make cluster\" with access to the Go module proxy (about 20 minutes, once)", func() error {
	for _, r := range []Requirement{Linux, Root, CgroupV1, Runc} {
		if err := r.Err(); err != nil {
			return err
		}
	}
	for _, name := range []string{"ip", "iptables", "mount", "nsenter", "unshare"} {
		if _, err := exec.LookPath(name); err != nil {
			return err
		}
	}
	return executable(filepath.Join(ClusterDir(), "bin", "kubernetes"))
})
