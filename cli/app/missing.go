package app

import (
	"errors"
	"fmt"

	"berth/cli/term"
	"berth/client"
)

// kinds maps collections of the API to the words for a missing item. what names the kind, where the daemon's message
// continues with advice for HTTP or repeats the hint; "" keeps the daemon's message. list is the command that lists
// the items; the ID of what they belong to is appended.
var kinds = map[string]struct{ what, list string }{
	"containers": {"container", "berth ls"},
	"workspaces": {"", "berth workspaces ls"},
	"execs":      {"", "berth ps"},
	"jobs":       {"", "berth jobs ls"},
	"contexts":   {"", "berth contexts ls"},
	"tool_calls": {"call", "berth calls ls"},
	"files":      {"", "berth files ls"},
	"skills":     {"skill", "berth skills ls"},
	"versions":   {"version", "berth skills show"},
	"tools":      {"tool", "berth tools ls"},
	"tool_runs":  {"run", "berth tools runs"},
	"keys":       {"", "berth key ls --all"},
}

// words returns the message of an error. A MissingError may get a message of its own, unless other errors wrap it.
func words(err error) string {
	var m *client.MissingError
	if !errors.As(err, &m) || kinds[m.Kind].what == "" || err.Error() != m.Error() {
		return err.Error()
	}
	text := fmt.Sprintf("%s %q does not exist", kinds[m.Kind].what, m.Name)
	if m.In != "" {
		text += " in " + m.In
	}
	return text
}

// lister returns the hint for a missing item, or "".
func lister(m *client.MissingError) string {
	k, ok := kinds[m.Kind]
	if !ok {
		return ""
	}
	command := k.list
	if m.In != "" {
		command += " " + term.Quote([]string{m.In})
	}
	return "`" + command + "` lists those that there are"
}
