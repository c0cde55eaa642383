package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// parseYAML parses one document without aliases and merges: a configuration does not need them, and
// they can expand a small file to a huge one. It returns nil for text without a document. A *fault
// has the line.
func parseYAML(data []byte) (*yaml.Node, error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var doc, more yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlFault(err)
	}
	if err := loader.Load(&more); err == nil {
		return nil, &fault{line: more.Line, why: "there is a second document; only one is read"}
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlFault(err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, plain(root)
}

// yamlFault converts the parser's error to a fault with its line and reason.
func yamlFault(err error) *fault {
	if le, ok := errors.AsType[*yaml.LoadError](err); ok {
		return &fault{line: le.Mark.Line, why: strings.TrimPrefix(le.Message, "yaml: ")}
	}
	return &fault{why: err.Error()}
}

// plain refuses aliases, anchors, merges and keys that are not strings, recursively.
func plain(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return &fault{line: n.Line, why: "anchors and aliases are not read here; write the value out"}
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && (c.Kind != yaml.ScalarNode || c.ShortTag() != "!!str") {
			return &fault{line: c.Line, why: "a key is " + kindName(c) + " where a name is needed"}
		}
		if err := plain(c); err != nil {
			return err
		}
	}
	return nil
}

// pairs calls f for each key and value of a map, and refuses duplicate keys.
func pairs(n *yaml.Node, f func(key, value *yaml.Node) error) error {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if first, ok := seen[key.Value]; ok {
			return &fault{line: key.Line, got: sandbar.Quote(key.Value, 60), why: fmt.Sprintf("stands twice; first in line %d", first)}
		}
		seen[key.Value] = key.Line
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}
