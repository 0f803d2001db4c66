package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// TestReport checks that an error has its hint on a separate line, and cannot control the terminal.
func TestReport(t *testing.T) {
	dial := &client.DialError{Host: "http://h", Err: syscall.ECONNREFUSED}
	http := proto.Errorf(proto.NotFound, "", "", "gone; GET it")
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{nil, 0, ""},
		{ExitError{Status: 3}, 3, ""},
		{ErrInterrupted, 130, "berth: interrupted\n"},
		{dial, 125, "berth: no daemon answers at http://h: connection refused\nhint: start it with `berth serve`, " +
			"or name a running one with --host or BERTH_HOST\n"},
		{errors.Join(errors.New("a"), errors.New("b\x1b[1m")), 125, "berth: a\nberth: b\uFFFD[1m\n"},
		{WithHint(ErrInterrupted, "go on"), 130, "berth: interrupted\nhint: go on\n"},
		{Interruption{syscall.SIGINT}, 130, "berth: interrupted\n"},
		{WithHint(Interruption{syscall.SIGTERM}, "go on"), 143, "berth: terminated\nhint: go on\n"},
		{fmt.Errorf("%w: %w", Interruption{syscall.SIGHUP}, context.Canceled), 129, "berth: hangup\n"},
		{&client.MissingError{Err: http, Kind: "skills", Name: "s"}, 125, "berth: skill \"s\" does not exist\nhint: " +
			"`berth skills ls` lists those that there are\n"},
		{&client.MissingError{Err: http, Kind: "versions", Name: "v", In: "s t"}, 125, "berth: version \"v\" does " +
			"not exist in s t\nhint: `berth skills show 's t'` lists those that there are\n"},
		{&client.MissingError{Err: http, Kind: "execs", Name: "e", In: "c"}, 125, "berth: gone; GET it\nhint: " +
			"`berth ps c` lists those that there are\n"},
		{fmt.Errorf("reading: %w", &client.MissingError{Err: http, Kind: "skills", Name: "s"}), 125,
			"berth: reading: gone; GET it\nhint: `berth skills ls` lists those that there are\n"},
	} {
		var buf bytes.Buffer
		a := &App{Output: term.Output{Stderr: &buf}}
		if status := a.ReportError(tt.err); status != tt.status || buf.String() != tt.want {
			t.Errorf("%v: %d %q", tt.err, status, buf.String())
		}
	}
}
