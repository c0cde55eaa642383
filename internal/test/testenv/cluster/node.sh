# One node: containerd and a kubelet, in a network, mount and UTS namespace of their own. Arguments: the
# cluster's directory, the directory of the programs, the node's number, its cgroup, and the path of
# runc.
set -e
dir=$1 bin=$2 n=$3 group=$4 runc=$5
kube=$bin/kubernetes pki=$dir/pki log=$dir/log node=$dir/node$n
mkdir -p "$node/cni" "$node/kubelet" "$node/containerd"
mount --make-rprivate /
mount --make-rshared /
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set lo up
ip addr add "10.99.0.$n/16" dev eth0
ip link set eth0 up
ip route add default via 10.99.0.254
echo 1 >/proc/sys/net/ipv4/ip_forward
# What the programs leave there ends with the node.
for d in /run /var/log /var/lib; do mount -t tmpfs tmpfs "$d"; done
for m in 1 2; do
	[ "$m" = "$n" ] || ip route add "10.97.$m.0/24" via "10.99.0.$m"
done
cat >"$node/cni/10-sandbar.conflist" <<END
{"cniVersion": "1.0.0", "name": "sandbar", "plugins": [{"type": "ptp", "ipMasq": false,
 "ipam": {"type": "host-local", "dataDir": "$node/addresses", "ranges": [[{"subnet": "10.97.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
cat >"$node/containerd.toml" <<END
version = 3
root = "$node/containerd/root"
state = "$node/containerd/state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
address = "$node/containerd/grpc.sock"
[ttrpc]
address = "$node/containerd/ttrpc.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "sandbar.test/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["$bin"]
conf_dir = "$node/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "$runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = "$node/runsc.toml"
END
printf 'binary_name = "%s"\n[runsc_config]\nplatform = "systrap"\n' "$bin/runsc" >"$node/runsc.toml"
cat >"$node/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$group
containerRuntimeEndpoint: unix://$node/containerd/grpc.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: $pki/node$n.crt
tlsPrivateKeyFile: $pki/node$n.key
makeIPTablesUtilChains: false
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
maxPods: 250
podPidsLimit: 256
volumePluginDir: $node/plugins
clusterDNS: []
resolvConf: ""
featureGates: {EventedPLEG: true}
END
# Scripts of OnNode.
mkfifo "$node/in" "$node/out"
while :; do sh <"$node/in" >"$node/out" 2>&1 || :; done &
PATH=$bin:$PATH "$bin/containerd" -c "$node/containerd.toml" >"$log/containerd$n" 2>&1 &
until [ -S "$node/containerd/grpc.sock" ]; do sleep 0.05; done
"$bin/ctr" -a "$node/containerd/grpc.sock" -n k8s.io image import "$dir/pause.tar"
until "$kube" kubectl --kubeconfig "$pki/admin.kubeconfig" get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
exec "$kube" kubelet --config="$node/kubelet.yaml" --kubeconfig="$pki/node$n.kubeconfig" --hostname-override="node$n" \
	--node-ip="10.99.0.$n" --root-dir="$node/kubelet" --cert-dir="$node/kubelet/pki" >"$log/kubelet$n" 2>&1
