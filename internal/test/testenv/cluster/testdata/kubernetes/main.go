// Command kubernetes is the whole of an unmodified Kubernetes in one program, for tests: etcd, the
// API server, the controller manager, the scheduler, the kubelet and kubectl. The first argument
// says which of them to be. One program links what they share once: 157 MB instead of 600.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "kubernetes: the first argument must name the component to be")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	var component *cobra.Command
	switch os.Args[0] {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		component = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		component = controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		component = scheduler.NewSchedulerCommand()
	case "kubelet":
		component = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		component = kubectl.NewDefaultKubectlCommand()
	default:
		fmt.Fprintf(os.Stderr, "kubernetes: %q is not a component: choose etcd, kube-apiserver, "+
			"kube-controller-manager, kube-scheduler, kubelet or kubectl\n", os.Args[0])
		os.Exit(2)
	}
	os.Exit(cli.Run(component))
}
