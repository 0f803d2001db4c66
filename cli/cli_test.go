package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/proto"
)

func TestEnded(t *testing.T) {
	for _, tt := range []struct {
		end    *proto.End
		status int
	}{
		{&proto.End{Reason: proto.EndExit}, 0},
		{&proto.End{Reason: proto.EndExit, ReturnCode: 7}, 7},
		{&proto.End{Reason: proto.EndSignal, ReturnCode: 139}, 139},
		{&proto.End{Reason: proto.EndNotStarted, ReturnCode: 127}, 127},
		{&proto.End{Reason: proto.EndLost, ReturnCode: -1}, 125},
		{&proto.End{Reason: proto.EndTimeout, ReturnCode: 0}, 125}, // a command that was cut short did not succeed
		{nil, 125},
	} {
		status := 0
		var exit app.ExitError
		if errors.As(ended(proto.Exec{End: tt.end}), &exit) {
			status = exit.Status
		}
		if status != tt.status {
			t.Errorf("%+v: %d, want %d", tt.end, status, tt.status)
		}
	}
}

// TestTimeoutOfACommand checks that a command with a terminal gets the longest timeout and others get the daemon's.
func TestTimeoutOfACommand(t *testing.T) {
	for _, tt := range []struct {
		flags execFlags
		want  float64
	}{
		{execFlags{}, 0},
		{execFlags{interactive: true}, 0},
		{execFlags{detach: true}, 0},
		{execFlags{tty: true}, 24 * 3600},
		{execFlags{tty: true, timeout: time.Minute}, 60},
		{execFlags{timeout: time.Minute}, 60},
	} {
		if cmd, err := tt.flags.command([]string{"true"}); err != nil || cmd.TimeoutSeconds != tt.want {
			t.Errorf("%+v: %v s, %v", tt.flags, cmd.TimeoutSeconds, err)
		}
	}
}

// TestUsagesNameOneWord checks that backquotes in a flag's usage enclose its value and not a command.
func TestUsagesNameOneWord(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); strings.Contains(name, " ") {
				t.Errorf("the help of %s has --%s %s", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(New(app.Config{}))
}
