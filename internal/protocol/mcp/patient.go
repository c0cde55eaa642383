package mcp

import (
	"context"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// patientTransport reports the end of the input only when all requests are answered: the SDK drops
// the answers after it.
type patientTransport struct{ sdk.Transport }

// Connect implements sdk.Transport.
func (t patientTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &patient{Connection: c, closed: make(chan struct{})}, nil
}

type patient struct {
	sdk.Connection
	open    sync.WaitGroup // requests; Read is not called concurrently
	closing sync.Once
	closed  chan struct{}
}

// Read implements sdk.Connection.
func (p *patient) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := p.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		p.open.Add(1)
	}
	if err == io.EOF {
		answered := make(chan struct{})
		go func() { p.open.Wait(); close(answered) }()
		select {
		case <-answered:
		case <-p.closed:
		case <-ctx.Done():
		}
	}
	return m, err
}

// Write implements sdk.Connection.
func (p *patient) Write(ctx context.Context, m jsonrpc.Message) error {
	err := p.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		p.open.Done()
	}
	return err
}

// Close implements sdk.Connection.
func (p *patient) Close() error {
	p.closing.Do(func() { close(p.closed) })
	return p.Connection.Close()
}
