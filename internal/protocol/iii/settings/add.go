package settings

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// block is the configuration of the iii-sandbox worker from its documentation, as an element of the
// list of workers.
const block = `- name: iii-sandbox
  config:
    auto_install: true
    image_allowlist:
      - python
      - node
    default_idle_timeout_secs: 300
    max_concurrent_sandboxes: 32
    default_cpus: 1
    default_memory_mb: 512
`

// workers is the key of the list of workers in an engine's config.yaml.
const workers = "workers"

// Add appends the block of the iii-sandbox worker, with the defaults of its documentation, to the
// list of workers of an engine's config.yaml. It leaves the rest of the file unchanged, byte for
// byte. added is false if the file already has the block. Invalid: the file has no place for it;
// the error shows the block.
func Add(data []byte) (out []byte, added bool, err error) {
	root, err := parse(data)
	if err != nil {
		return nil, false, err
	}
	if root != nil && !isNull(root) {
		if _, found := search(root, 0); found {
			return data, false, nil
		}
	}
	out, ok := appended(data, root)
	if ok {
		// The edit is textual, so verify that the rest still has the same meaning.
		ok = meansTheSame(data, out)
	}
	if !ok {
		return nil, false, &sandbar.Error{Code: sandbar.Invalid, Field: worker,
			Message: "the file has no list of workers at its end to which the worker " + worker + " could be added",
			Fix:     "add to its workers:\n" + block}
	}
	return out, true, nil
}

// appended returns data with the block at its end. ok is false if its end is not the right place.
func appended(data []byte, root *yaml.Node) (out []byte, ok bool) {
	text := string(data)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	list := root
	if root != nil && root.Kind == yaml.MappingNode {
		list = member(root, workers)
	}
	switch {
	case root == nil || isNull(root), list == nil && root.Kind == yaml.MappingNode && root.Style&yaml.FlowStyle == 0:
		text += workers + ":\n" + indented(2)
	case list != nil && list.Kind == yaml.SequenceNode && list.Style&yaml.FlowStyle == 0 && len(list.Content) > 0:
		text += indented(list.Column - 1)
	default:
		return nil, false
	}
	return []byte(text), true
}

// indented returns the block indented by that many blanks.
func indented(by int) string {
	margin := strings.Repeat(" ", by)
	return margin + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n"+margin) + "\n"
}

// meansTheSame reports whether after equals before plus the block.
func meansTheSame(before, after []byte) bool {
	c, err := Load(after)
	if err != nil || len(c.ImageAllowlist) != len(presets()) {
		return false
	}
	oldRest, old, err := listOf(before)
	if err != nil {
		return false
	}
	rest, now, err := listOf(after)
	return err == nil && reflect.DeepEqual(oldRest, rest) && len(now) == len(old)+1 && slices.EqualFunc(old, now[:len(old)],
		func(a, b any) bool { return reflect.DeepEqual(a, b) })
}

// listOf splits a file into its list of workers and the rest.
func listOf(data []byte) (rest map[string]any, list []any, err error) {
	rest = map[string]any{}
	root, err := parse(data)
	if err != nil || root == nil || isNull(root) {
		return rest, nil, err
	}
	if root.Kind == yaml.SequenceNode {
		err = root.Decode(&list)
		return rest, list, err
	}
	if err := root.Decode(&rest); err != nil {
		return nil, nil, err
	}
	if rest[workers] != nil {
		var ok bool
		if list, ok = rest[workers].([]any); !ok {
			return nil, nil, errors.New("the workers are not a list")
		}
	}
	delete(rest, workers)
	return rest, list, nil
}
