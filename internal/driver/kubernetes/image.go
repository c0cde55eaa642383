package kubernetes

import (
	"maps"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/kubernetes/agentimage"
)

// withAgentImage returns h with the name of the image of the programs as the option agent_image,
// unless that is set. Unsupported: there are no programs.
func withAgentImage(h driver.Host, programs agentimage.Programs) (driver.Host, error) {
	if h.Options[optionAgentImage] != "" {
		return h, nil
	}
	built, err := agentimage.Build(programs)
	if err != nil {
		return h, err
	}
	options := maps.Clone(h.Options)
	if options == nil {
		options = map[string]string{}
	}
	options[optionAgentImage] = built.Name()
	h.Options = options
	return h, nil
}

// imageFix returns the next step for an image that a node cannot get. said has the name of the
// image.
func imageFix(said string) string {
	if agentimage.Named(said) {
		return "load the agent's image on every node with `sandbar kubernetes image load`, or push it to a registry with `sandbar kubernetes image push` and set the option " + optionAgentImage
	}
	return "check the image's name, and that the nodes can pull it"
}
