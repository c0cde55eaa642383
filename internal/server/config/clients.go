package config

import (
	"crypto/subtle"

	"go.yaml.in/yaml/v4"

	"github.com/sandbar-dev/sandbar"
)

// Client is a client with its own token and limits. A limit of zero is no bound.
type Client struct {
	Name, TokenFile        string
	MaxSandboxes, MaxQueue int64
	Rate                   float64 // executions and sandboxes that may start per second
	Burst                  int64   // how many may start at once
}

// maxClients bounds the tokens with which a request is compared.
const maxClients = 1000

var clientKeys = []string{"name", "token_file", "max_sandboxes", "max_queue", "rate", "burst"}

func (c *Config) clientFields() []field {
	return []field{
		{path: "clients", value: c.clientsTree(), instead: "none",
			allowed: "a list of at most 1000 maps with name, token_file and, if you like, max_sandboxes, max_queue, rate and burst",
			doc: "Clients with their own tokens, which grant the same access as the daemon's token, and with limits: live sandboxes, " +
				"waiting executions and sandboxes, starts per second (rate) and starts at once (burst, default: rate). " +
				"Further requests are refused with the time after which to retry. The queue serves clients in turn, so that one client's requests " +
				"do not delay another's: {name: ci, token_file: /etc/sandbar/ci.token, max_sandboxes: 8, max_queue: 100, rate: 20}."},
		measure("max_connections", &c.MaxConnections, count, bounds[int64]{lo: 1, hi: 1000000}, "4096",
			"The maximum number of connections to one listener. Further ones get a response to retry and are closed, without their request being read."),
	}
}

// clientsTree reads the setting clients.
func (c *Config) clientsTree() tree {
	return tree{
		clear: func() { c.Clients = nil },
		show: func() any {
			out := []any{}
			for _, one := range c.Clients {
				out = append(out, one.show())
			}
			return out
		},
		read: func(n *yaml.Node) error {
			if n.Kind != yaml.SequenceNode {
				return &fault{line: n.Line, why: "is " + kindName(n) + " where a list is needed"}
			}
			if len(n.Content) > maxClients {
				return &fault{line: n.Line, why: "has more than 1000 clients"}
			}
			seen := map[string]bool{}
			for _, item := range n.Content {
				one, err := readClient(item)
				if err != nil {
					return err
				}
				if seen[one.Name] {
					return &fault{line: item.Line, got: sandbar.Quote(one.Name, 60), why: "is the name of two clients"}
				}
				seen[one.Name] = true
				c.Clients = append(c.Clients, one)
			}
			return nil
		},
	}
}

// show returns the set fields of a client.
func (c Client) show() map[string]any {
	m := map[string]any{"name": c.Name, "token_file": c.TokenFile}
	for key, n := range map[string]int64{"max_sandboxes": c.MaxSandboxes, "max_queue": c.MaxQueue, "burst": c.Burst} {
		if n != 0 {
			m[key] = n
		}
	}
	if c.Rate != 0 {
		m["rate"] = c.Rate
	}
	return m
}

func readClient(n *yaml.Node) (Client, error) {
	var c Client
	counts := bounds[int64]{lo: 1, hi: 1000000}
	err := readParts(n, "a client", clientKeys, map[string]value{
		"name":          text(&c.Name, checkName),
		"token_file":    text(&c.TokenFile, anyText),
		"max_sandboxes": measure("max_sandboxes", &c.MaxSandboxes, count, counts, "", "").value,
		"max_queue":     measure("max_queue", &c.MaxQueue, count, counts, "", "").value,
		"rate":          measure("rate", &c.Rate, cpus, bounds[float64]{lo: 0.001, hi: 1000000}, "", "").value,
		"burst":         measure("burst", &c.Burst, count, counts, "", "").value,
	})
	switch {
	case err != nil:
	case c.Name == "" || c.TokenFile == "":
		err = &fault{line: n.Line, why: "needs a name and a token_file"}
	case c.Burst != 0 && c.Rate == 0:
		err = &fault{line: n.Line, why: "has a burst without a rate"}
	}
	return c, err
}

// ClientTokens reads the tokens of Clients, by name. own is the daemon's token. Two equal tokens
// are an error, because the client could not be identified.
func (c *Config) ClientTokens(own string) (map[string]string, error) {
	tokens := map[string]string{}
	for _, one := range c.Clients {
		token, err := readToken(one.TokenFile, "clients")
		if err != nil {
			return nil, err
		}
		same := subtle.ConstantTimeCompare([]byte(token), []byte(own)) == 1
		for _, other := range tokens {
			same = same || subtle.ConstantTimeCompare([]byte(token), []byte(other)) == 1
		}
		if same {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "clients",
				Message: "clients: the token of " + sandbar.Quote(one.Name, 100) + " is also that of another client", Fix: "give each client a token of its own"}
		}
		tokens[one.Name] = token
	}
	return tokens, nil
}
