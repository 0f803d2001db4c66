package app

import (
	"errors"
	"fmt"

	"berth/cli/term"
	"berth/client"
)

// kinds are what the daemon may say of that it does not exist, by the API's collection. what is the kind's name,
// where the daemon's own words go on with what to do over HTTP, or say what list says; list is the command that lists
// them, within what they belong to.
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

// words are what an error says. An error within others is told as they tell it.
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

// lister is the hint for what does not exist, or "".
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
