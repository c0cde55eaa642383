package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/porter"
)

// The subprotocols of a WebSocket of "exec" (k8s.io/apimachinery/pkg/util/remotecommand). Each of
// their messages begins with the number of a channel.
const (
	exec5 = "v5.channel.k8s.io"
	exec4 = "v4.channel.k8s.io"

	channelIn     = 0
	channelOut    = 1
	channelErrors = 2
	channelStatus = 3
)

const (
	// relayMessage is the most bytes of data in a message of the daemon's.
	relayMessage = 32 << 10
	// maxRelayMessage is the longest message that the daemon takes.
	maxRelayMessage = 1 << 20
	// execPause is the time between two attempts to start a program in a pod.
	execPause = 200 * time.Millisecond
	// relayPing is the pause between two pings, relayPong the longest wait for an answer.
	relayPing = 15 * time.Second
	relayPong = 20 * time.Second
)

// relay connects to the porter of a pod through the API server. The connection is the same as one
// to the pod's address, with TLS between the daemon and the porter: neither the API server nor the
// node can read it.
func (d *Driver) relay(ctx context.Context, name string) (net.Conn, error) {
	return d.exec(ctx, name, porter.ModeRelay)
}

// exec starts the porter's program with other arguments in the porter's container of a pod, and
// returns its input and output. At their end, Read returns the program's error and exit code.
func (d *Driver) exec(ctx context.Context, name string, args ...string) (net.Conn, error) {
	r := d.api.core.Get().Namespace(d.api.namespace).Resource(pods).Name(name).SubResource("exec").Param("container", containerPorter).
		Param("stdin", "true").Param("stdout", "true").Param("stderr", "true").Param("command", "/"+porter.Name)
	for _, a := range args {
		r = r.Param("command", a)
	}
	ws, resp, err := websocket.Dial(ctx, r.URL().String(), &websocket.DialOptions{HTTPClient: d.api.upgrades, Subprotocols: []string{exec5, exec4}})
	if err != nil {
		if said := refusal(resp); said != nil {
			err = said
		}
		return nil, d.api.failed(ctx, "starting a program in a pod", err)
	}
	ws.SetReadLimit(maxRelayMessage)
	near, far := net.Pipe()
	c := &relayed{Conn: near}
	d.running.Go(func() { c.carry(ws, far) })
	return c, nil
}

// refusal returns the API server's answer to a request that is no WebSocket then, nil if there is
// none.
func refusal(resp *http.Response) error {
	if resp == nil || resp.Body == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	b, _ := io.ReadAll(resp.Body) // the library keeps the first KiB
	var s metav1.Status
	if json.Unmarshal(b, &s) != nil || s.Message == "" {
		s = metav1.Status{Message: string(b)}
	}
	s.Status, s.Code = metav1.StatusFailure, int32(resp.StatusCode)
	if s.Reason == "" {
		s.Reason = apierrors.ReasonForError(apierrors.NewGenericServerResponse(resp.StatusCode, "get", corev1.Resource(pods), "", "", 0, false))
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// relayed is a connection through the API server.
type relayed struct {
	net.Conn

	mu  sync.Mutex
	why string // the program's error output, and how it ended
}

// Read reads the program's output.
func (c *relayed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.why != "" {
			err = errors.New(c.why)
		}
	}
	return n, err
}

// carry copies between a WebSocket and a connection until one of them ends, and closes both.
func (c *relayed) carry(ws *websocket.Conn, conn net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		defer cancel()
		message := make([]byte, 1+relayMessage) // the first byte is channelIn
		for {
			n, err := conn.Read(message[1:])
			if err != nil || ws.Write(ctx, websocket.MessageBinary, message[:1+n]) != nil {
				return
			}
		}
	})
	all.Go(func() {
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(relayPing):
			}
			bounded, done := context.WithTimeout(ctx, relayPong)
			err := ws.Ping(bounded)
			done()
			if err != nil {
				return
			}
		}
	})
	all.Go(func() {
		defer cancel()
		for {
			_, message, err := ws.Read(ctx)
			if err != nil || !c.take(message, conn) {
				return
			}
		}
	})
	<-ctx.Done()
	_ = ws.CloseNow()
	_ = conn.Close()
	all.Wait()
}

// take takes a message. It returns false at the end of the program.
func (c *relayed) take(message []byte, conn net.Conn) bool {
	if len(message) < 2 { // API servers begin each channel with an empty message
		return true
	}
	switch data := message[1:]; message[0] {
	case channelOut:
		_, err := conn.Write(data)
		return err == nil
	case channelErrors:
		c.say(string(data))
	case channelStatus:
		var s metav1.Status
		if json.Unmarshal(data, &s) == nil && s.Status != metav1.StatusSuccess {
			c.say(s.Message)
		}
		return false
	}
	return true
}

// say stores a part of the reason of the end.
func (c *relayed) say(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.why) < maxServerText {
		c.why = strings.TrimPrefix(c.why+"; "+strings.TrimSpace(text[:min(len(text), maxServerText)]), "; ")
	}
}

var _ net.Conn = (*relayed)(nil)

// reachedBy tells how the daemon reaches pods.
func (d *Driver) reachedBy() string {
	if d.opt.reach == byExec {
		return "through the API server (exec), which is slower than by their addresses"
	}
	return "by their addresses"
}

// errUnreachable is in the error of a pod whose address the daemon does not reach.
var errUnreachable = errors.New("the address is out of reach")

// unreachable returns the error of a pod to which the daemon cannot connect.
func unreachable(address string, err error) error {
	return &sandbar.Error{Code: sandbar.Unavailable, Err: errUnreachable, Message: "the daemon cannot connect to the pod's address " + address + ": " + sandbar.Quote(err.Error(), maxServerText),
		Fix: "run the daemon where it reaches the addresses of pods, such as inside the cluster, or set the option " + optionReach + " to " + byExec}
}
