package kubernetes

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandbar-dev/sandbar"
)

// The driver's options.
const (
	optionKubeconfig   = "kubeconfig"
	optionContext      = "context"
	optionNamespace    = "namespace"
	optionImage        = "image"
	optionImages       = "images"
	optionPython       = "python_image"
	optionNode         = "node_image"
	optionAgentImage   = "agent_image"
	optionAgentBy      = "agent_by"
	optionRuntimeClass = "runtime_class"
	optionLabels       = "labels"
	optionPull         = "pull"
	optionReach        = "reach"
)

// DefaultImage is the default image if the operator sets none.
const DefaultImage = "python:3.11-slim"

// The ways of agentBy to put the agent into a pod.
const (
	byAuto   = "auto"
	byVolume = "volume"
	byCopy   = "copy"
)

// The ways of reach to connect to a pod, besides byAuto.
const (
	byAddress = "address"
	byExec    = "exec"
)

// optionHelp returns the documentation of each option.
func optionHelp() map[string]string {
	return map[string]string{
		optionKubeconfig:   "path of a kubeconfig; default: inside a cluster its service account, otherwise KUBECONFIG or ~/.kube/config",
		optionContext:      "context of the kubeconfig; default: its current one",
		optionNamespace:    "namespace of the pods; default: that of the context or of the service account",
		optionImage:        "default image of sandboxes; default: " + DefaultImage,
		optionImages:       "further images that sandboxes may use, separated by commas; \"*\" means all",
		optionPython:       "image of the preset python; default: the option " + optionImage,
		optionNode:         "image of the preset node; default: " + DefaultNode,
		optionAgentImage:   "image with the programs sandbar-agent and sandbar-porter, as \"sandbar kubernetes image push\" prints it; default: that of \"sandbar kubernetes image load\"",
		optionAgentBy:      "\"volume\": the agent's image is a volume of the pod, from Kubernetes 1.35 on; \"copy\": an init container copies it; \"auto\" (default): the first that works in a pod that the driver makes at its start",
		optionRuntimeClass: "RuntimeClass of the pods, such as that of gVisor or Kata; default: the cluster's",
		optionLabels:       "labels of the pods, NAME=VALUE, separated by commas",
		optionPull:         "imagePullPolicy of the pods: \"missing\" (default) or \"never\"",
		optionReach:        "\"address\": connections go to the pods' addresses; \"exec\": through the API server, which is slower and needs the right to exec; \"auto\" (default): the first that works with the pod that the driver makes at its start",
	}
}

// options are the validated options of the driver.
type options struct {
	kubeconfig, context, namespace string
	image                          string
	images                         []string
	python, node                   string // "" for the default
	agentImage                     string
	agentBy                        string // byAuto until the driver knows
	runtimeClass                   string
	labels                         map[string]string
	neverPull                      bool
	reach                          string // byAuto until the driver knows
}

// anyImage in options.images allows every image.
const anyImage = "*"

// parseOptions validates the driver's section of the configuration. An unknown option or a
// malformed value is an Invalid error.
func parseOptions(raw map[string]string) (options, error) {
	known := optionHelp()
	for name := range raw {
		if _, ok := known[name]; !ok {
			return options{}, badOption(name, "there is no such option", "it has "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	o := options{kubeconfig: raw[optionKubeconfig], context: raw[optionContext], namespace: raw[optionNamespace], image: raw[optionImage], python: raw[optionPython], node: raw[optionNode],
		agentImage: raw[optionAgentImage], runtimeClass: raw[optionRuntimeClass], labels: map[string]string{}}
	if o.image == "" {
		o.image = DefaultImage
	}
	if o.agentImage == "" {
		return o, badOption(optionAgentImage, "it is required", "name an image with sandbar-agent and sandbar-porter in its top directory")
	}
	for ref := range strings.SplitSeq(raw[optionImages], ",") {
		if ref = strings.TrimSpace(ref); ref != "" {
			o.images = append(o.images, ref)
		}
	}
	if err := o.parseLabels(raw[optionLabels]); err != nil {
		return o, err
	}
	var err error
	if o.agentBy, err = choose(raw, optionAgentBy, byAuto, byVolume, byCopy); err != nil {
		return o, err
	}
	if o.reach, err = choose(raw, optionReach, byAuto, byAddress, byExec); err != nil {
		return o, err
	}
	pull, err := choose(raw, optionPull, "missing", "never")
	o.neverPull = pull == "never"
	return o, err
}

// choose returns the value of an option. The first one is the default.
func choose(raw map[string]string, name string, values ...string) (string, error) {
	v := cmp.Or(raw[name], values[0])
	if !slices.Contains(values, v) {
		return "", badOption(name, sandbar.Quote(v, 40)+" is not known", "give one of "+strings.Join(values, ", "))
	}
	return v, nil
}

// parseLabels parses the option labels.
func (o *options) parseLabels(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok || len(validation.IsQualifiedName(name)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return badOption(optionLabels, sandbar.Quote(pair, 100)+" is not a label", "use labels such as team=search")
		}
		if strings.HasPrefix(name, labelPrefix) {
			return badOption(optionLabels, "labels that begin with "+labelPrefix+" are the driver's own", "use another name")
		}
		o.labels[name] = value
	}
	return nil
}

func badOption(name, what, fix string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: name, Message: "option " + sandbar.Quote(name, 40) + " of the driver kubernetes: " + what, Fix: fix}
}
