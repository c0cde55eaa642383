package image

import (
	"encoding/json"

	"github.com/sandbar-dev/sandbar"
)

// config is the part of an image's configuration that is used here.
type config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Env        []string
		WorkingDir string
		User       string
		Entrypoint []string
		Cmd        []string
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// parseConfig decodes the configuration of an image with that many layers. An image for another
// platform than linux/arch is an error.
func parseConfig(raw []byte, arch string, layers int) (*config, error) {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("its configuration is no JSON of the right form")
	}
	if len(c.RootFS.DiffIDs) != layers {
		return nil, malformed("it has " + number(int64(layers)) + " layers, and its configuration lists " + number(int64(len(c.RootFS.DiffIDs))))
	}
	if c.OS != "linux" && c.OS != "" || c.Architecture != arch && c.Architecture != "" {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: "the image is for " + sandbar.Quote(c.OS+"/"+c.Architecture, 80) + ", and this host is linux/" + arch}
	}
	return &c, nil
}

// image returns the fields that the store keeps.
func (c *config) image() Image {
	return Image{Arch: c.Architecture, Env: c.Config.Env, WorkDir: c.Config.WorkingDir, User: c.Config.User,
		Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd}
}
