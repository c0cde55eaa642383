package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/client"
	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

func (a *app) eventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what happens to the sandboxes of a daemon",
		Long: `Print what happens to the sandboxes of a daemon as it happens, one event in a line: its
time, its type, the sandbox and further facts as NAME=VALUE. "gap" stands for events
that the daemon no longer keeps. With --json the id of an event is what --after takes.

The command ends on Ctrl-C, or if the daemon cannot be reached for about 20 s.
` + remoteHelp,
		Example: "  sandbar events --type sandbox\n  sandbar events --after oldest --sandbox $id --json | jq -r .type",
		Args:    noArgs,
	}
	cmd.Flags().StringArray("sandbox", nil, "only events of this sandbox, its `ID` or name; may be repeated")
	cmd.Flags().StringArray("type", nil, "only events of this `TYPE`, or of all types with this first word; may be repeated")
	cmd.Flags().String("after", "", "continue after the event with this `ID`, or begin with the oldest kept event: oldest")
	cmd.Flags().Int("count", 0, "end after `N` events (default never)")
	cmd.Flags().Bool("json", false, "print JSON, one object in a line")
	return a.remoteCommand(cmd, (*remote).events)
}

// errEnough ends the stream after --count events.
var errEnough = errors.New("enough events")

func (r *remote) events([]string) error {
	f := r.cmd.Flags()
	var q client.EventQuery
	q.Sandboxes, _ = f.GetStringArray("sandbox")
	q.Types, _ = f.GetStringArray("type")
	q.After, _ = f.GetString("after")
	count, _ := f.GetInt("count")
	asJSON, _ := f.GetBool("json")
	if count < 0 {
		return usagef(r.cmd, "--count: %d is out of range (allowed: a number from 1 up)", count)
	}
	if err := checkUTF8(r.cmd, append(append([]string{q.After}, q.Sandboxes...), q.Types...)); err != nil {
		return err
	}
	left := count
	err := r.Events(r.ctx, q, func(n wire.Notification) error {
		var err error
		if asJSON {
			err = json.NewEncoder(r.app.stdout).Encode(n)
		} else {
			_, err = fmt.Fprintln(r.app.stdout, eventText(n))
		}
		if err != nil {
			return cli.OutputError(err)
		}
		if left--; left == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// eventText shows an event in a line.
func eventText(n wire.Notification) string {
	parts := []string{n.Time.Local().Format(time.RFC3339), n.Type}
	if n.Sandbox != "" {
		parts = append(parts, string(n.Sandbox))
	}
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	number := func(name string, n *int) {
		if n != nil {
			add(name, fmt.Sprint(*n))
		}
	}
	add("client", n.Client)
	add("from", string(n.From))
	add("reason", n.Reason)
	add("program", n.Program)
	add("context", n.Context)
	add("outcome", n.Outcome)
	number("exit_code", n.ExitCode)
	number("signal", n.Signal)
	if n.Failed {
		add("failed", "true")
	}
	add("action", n.Action)
	add("code", string(n.Code))
	if n.Missed != nil {
		add("missed", fmt.Sprint(*n.Missed))
	}
	return cli.Printable(strings.Join(parts, " "))
}
