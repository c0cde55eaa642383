package settings

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// worker is the name of the block in a configuration of the iii engine.
const worker = "iii-sandbox"

// Load reads the settings from YAML: the block of the iii-sandbox worker alone, or a file with the
// block in one of the present and former layouts of the iii engine:
//
//   - name: iii-sandbox        a list of workers, at the top or anywhere below
//     config: {…}
//
//     iii-sandbox: {…}         a map of workers, at the top or anywhere below
//
// Unset fields have their defaults and unknown keys are ignored, as in the worker itself. A
// top-level key "sandbox", an older layout, is refused, and so is a file without a block; the
// errors are Invalid.
func Load(data []byte) (Config, error) {
	root, err := parse(data)
	if err != nil {
		return Config{}, err
	}
	block, err := find(root)
	if err != nil {
		return Config{}, err
	}
	c := Default()
	if block != nil {
		if err := block.Decode(&c); err != nil {
			return Config{}, unreadable(err)
		}
	}
	return c, c.Check()
}

// Holds reports whether a file is YAML in which Load finds the settings, valid or not. An empty
// file has none.
func Holds(data []byte) bool {
	root, err := parse(data)
	if err != nil || root == nil || isNull(root) {
		return false
	}
	if _, found := search(root, 0); found {
		return true
	}
	return root.Kind == yaml.MappingNode && len(root.Content) > 0 && bareBlock(root)
}

func unreadable(err error) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: worker,
		Message: "the configuration cannot be read: " + strings.TrimPrefix(err.Error(), "yaml: "),
		Fix:     "compare it with the fields of the iii-sandbox worker"}
}

// parse returns the single document of a file, nil for an empty one.
func parse(data []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, unreadable(err)
	}
	var doc yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF), err == nil && len(doc.Content) == 0:
		return nil, nil
	case err != nil:
		return nil, unreadable(err)
	}
	return doc.Content[0], nil
}

// find returns the node of the settings, nil if all are unset.
func find(root *yaml.Node) (*yaml.Node, error) {
	if root == nil || isNull(root) {
		return nil, nil
	}
	if root.Kind == yaml.MappingNode {
		if old := member(root, "sandbox"); old != nil {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "sandbox",
				Message: "line " + strconv.Itoa(old.Line) + ": the key \"sandbox\" at the top is an older layout, which is not read",
				Fix:     "move its fields to the config of the worker " + worker}
		}
	}
	n, found := search(root, 0)
	switch {
	case found && n != nil && !isNull(n) && n.Kind != yaml.MappingNode:
		return nil, unreadable(errors.New("line " + strconv.Itoa(n.Line) + ": the settings are not a map"))
	case found && n != nil && !isNull(n):
		return n, nil
	case found:
		return nil, nil
	case root.Kind == yaml.MappingNode && bareBlock(root):
		return root, nil
	}
	return nil, &sandbar.Error{Code: sandbar.Invalid, Field: worker,
		Message: "the file has no block for the worker " + worker,
		Fix:     "give \"- name: " + worker + "\" with \"config:\", or its fields alone"}
}

// maxDepth is the deepest nesting in which a block is searched.
const maxDepth = 8

// search finds the block in a file with other content.
func search(n *yaml.Node, depth int) (block *yaml.Node, found bool) {
	if depth > maxDepth {
		return nil, false
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if name := member(item, "name"); name != nil && name.Value == worker {
				return member(item, "config"), true
			}
			if block, found = search(item, depth+1); found {
				return block, true
			}
		}
	case yaml.MappingNode:
		if block := member(n, worker); block != nil {
			if config := member(block, "config"); config != nil {
				return config, true
			}
			return block, true
		}
		for i := 1; i < len(n.Content); i += 2 {
			if block, found = search(n.Content[i], depth+1); found {
				return block, true
			}
		}
	}
	return nil, false
}

// bareBlock reports whether a map has at least one of the fields.
func bareBlock(n *yaml.Node) bool {
	for _, field := range []string{"auto_install", "image_allowlist", "default_idle_timeout_secs",
		"max_concurrent_sandboxes", "max_concurrent_exec_per_sandbox", "max_exec_timeout_ms", "default_cpus",
		"default_memory_mb", "per_image_caps", "custom_images"} {
		if member(n, field) != nil {
			return true
		}
	}
	return len(n.Content) == 0
}

// member returns the value of a key, nil if there is none.
func member(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// bare returns an OCI reference without registry, tag and digest.
func bare(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	ref = ref[strings.LastIndexByte(ref, '/')+1:]
	ref, _, _ = strings.Cut(ref, ":")
	return ref
}
