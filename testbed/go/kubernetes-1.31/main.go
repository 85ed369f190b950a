// One program that is every Kubernetes component, picked by the first argument: they share nearly all of
// their code, so one binary is a third of the size and of the build of six.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/logs/json/register"
)

func main() {
	components := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-proxy":              proxy.NewProxyCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	if len(os.Args) > 1 && components[os.Args[1]] != nil {
		component := components[os.Args[1]]
		os.Args = os.Args[1:]
		os.Exit(cli.Run(component()))
	}
	fmt.Fprintln(os.Stderr, "the first argument names a component:")
	for name := range components {
		fmt.Fprintln(os.Stderr, "  "+name)
	}
	os.Exit(2)
}
