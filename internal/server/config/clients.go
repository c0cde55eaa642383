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

// maxNamed bounds the elements of a list with names. For clients it bounds the tokens with which a
// request is compared.
const maxNamed = 1000

var clientKeys = []string{"name", "token_file", "max_sandboxes", "max_queue", "rate", "burst"}

func (c *Config) clientFields() []field {
	return []field{
		{path: "clients", value: namedList(&c.Clients, "clients", func(c Client) string { return c.Name }, Client.show, readClient), instead: "none",
			allowed: "a list of at most 1000 maps with name, token_file and optionally max_sandboxes, max_queue, rate and burst",
			doc: "Clients with tokens of their own, which give the same access as the daemon's token, and with quotas: concurrent sandboxes, " +
				"executions and sandboxes in the queue, how many may start per second (rate) and at once (burst, default: rate). " +
				"A request beyond them is refused with a time to retry. Clients take turns in the queue, so that no client waits for all " +
				"requests of another: {name: ci, token_file: /etc/sandbar/ci.token, max_sandboxes: 8, max_queue: 100, rate: 20}."},
		{path: "tenants", value: namedList(&c.Tenants, "tenants", func(t Tenant) string { return t.Name }, Tenant.show, readTenant), instead: "none",
			allowed: "a list of at most 1000 maps with name and optionally max_sandboxes, cpus, memory, disk, rate and burst",
			doc: "Quotas of tenants, for all tokens of a tenant together (sandbar token create): concurrent sandboxes, waiting ones included, the " +
				"sums of their limits of cpus, memory and disk, and how many may start per second (rate) and at once (burst, default: rate). " +
				"A request beyond them is refused. With a quota of cpus, memory or disk, each sandbox must have that limit. " +
				"A tenant that is not listed has no quotas: {name: team-a, max_sandboxes: 8, cpus: 4, memory: 4 GiB, disk: 20 GiB, rate: 5}."},
		measure("max_connections", &c.MaxConnections, count, bounds[int64]{lo: 1, hi: 1000000}, "4096",
			"Concurrent connections to one listener. More are closed with an answer to retry, before their request is read."),
	}
}

// namedList reads and shows a setting that is a list of maps, each with a name of its own. plural
// is what they are.
func namedList[T any](list *[]T, plural string, nameOf func(T) string, show func(T) map[string]any, read func(*yaml.Node) (T, error)) tree {
	return tree{
		clear: func() { *list = nil },
		show: func() any {
			out := []any{}
			for _, one := range *list {
				out = append(out, show(one))
			}
			return out
		},
		read: func(n *yaml.Node) error {
			if n.Kind != yaml.SequenceNode {
				return &fault{line: n.Line, why: "is " + kindName(n) + " where a list is needed"}
			}
			if len(n.Content) > maxNamed {
				return &fault{line: n.Line, why: "has more than 1000 " + plural}
			}
			seen := map[string]bool{}
			for _, item := range n.Content {
				one, err := read(item)
				if err != nil {
					return err
				}
				if name := nameOf(one); seen[name] {
					return &fault{line: item.Line, got: sandbar.Quote(name, 60), why: "is the name of two " + plural}
				}
				seen[nameOf(one)] = true
				*list = append(*list, one)
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
