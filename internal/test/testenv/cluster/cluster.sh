# The first process of a cluster: it prepares its namespaces, and starts the control plane and the
# nodes. Arguments: the cluster's directory, the directory of the programs, the number of nodes, the
# prefix of its cgroups, and the path of runc.
#
# Addresses: 10.99.0.N are the nodes, 10.99.0.254 is the API server, 10.97.N.0/24 are the pods of node
# N, 10.98.0.0/16 are services.
set -e
dir=$1 bin=$2 nodes=$3
kube=$bin/kubernetes pki=$dir/pki log=$dir/log
mount --make-rslave /
mount -t proc proc /proc
mount --make-rshared /
ip link set lo up
ip link add br0 type bridge
ip addr add 10.99.0.254/16 dev br0
ip link set br0 up
ip route add blackhole default
echo 1 >/proc/sys/net/ipv4/ip_forward
# The kubelet changes settings of the whole machine. It finds copies with the values that it wants,
# and no other setting is writable, besides those of the network namespace.
mount --bind /proc/sys /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,ro /proc/sys
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
	name=${setting%=*}
	file=$dir/sysctl.${name##*/}
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "/proc/sys/$name"
done
mkdir "$dir/etcd"
mount -t tmpfs -o size=1g tmpfs "$dir/etcd"
"$kube" etcd --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
	--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
	--listen-peer-urls http://127.0.0.1:2380 >"$log/etcd" 2>&1 &
"$kube" kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address=0.0.0.0 --advertise-address=10.99.0.254 \
	--tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
	--kubelet-client-certificate="$pki/kubeletclient.crt" --kubelet-client-key="$pki/kubeletclient.key" \
	--kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
	--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/accounts.crt" \
	--service-account-signing-key-file="$pki/accounts.key" --service-cluster-ip-range=10.98.0.0/16 \
	--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true --profiling=false >"$log/apiserver" 2>&1 &
"$kube" kube-controller-manager --kubeconfig="$pki/controllers.kubeconfig" --service-account-private-key-file="$pki/accounts.key" \
	--root-ca-file="$pki/ca.crt" --use-service-account-credentials --flex-volume-plugin-dir="$dir/flex" \
	--leader-elect=false --bind-address=127.0.0.1 --profiling=false >"$log/controllers" 2>&1 &
"$kube" kube-scheduler --kubeconfig="$pki/scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1 --profiling=false >"$log/scheduler" 2>&1 &
for n in $(seq "$nodes"); do
	unshare --mount --net --uts --propagation unchanged sh "$dir/node.sh" "$dir" "$bin" "$n" "$4$n" "$5" >"$log/node$n" 2>&1 &
	pid=$!
	until [ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
	ip link add "v$n" type veth peer name eth0 netns "$pid"
	ip link set "v$n" master br0 up
	ip route add "10.97.$n.0/24" via "10.99.0.$n"
done
: >"$dir/up"
# The first process of a PID namespace gets orphans, and wait reaps them.
while :; do
	sleep 1000 &
	wait $!
done
