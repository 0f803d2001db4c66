package validate

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"berth/proto"
)

// Command checks a command whose defaults are filled in.
func Command(cmd *proto.Cmd) error {
	return cmp.Or(checkProgram(cmd), checkPlace(cmd), checkBounds(cmd), checkModes(cmd), Env(cmd.Env),
		checkSecrets(cmd.Secrets, cmd.Env))
}

func checkProgram(cmd *proto.Cmd) error {
	size := len(cmd.Command)
	for _, a := range cmd.Argv {
		size += len(a)
	}
	switch {
	case cmd.Command == "" && len(cmd.Argv) == 0:
		return Error("command", "nothing to run; set command (text for bash) or argv (a program and its arguments)")
	case cmd.Command != "" && len(cmd.Argv) > 0:
		return Error("argv", "command and argv exclude each other; set one")
	case len(cmd.Argv) > 0 && cmd.Argv[0] == "":
		return Error("argv", "argv[0] is empty; it must name a program")
	case size > maxCommand:
		return proto.Errorf(proto.TooLarge, "", "command", "the command has %d bytes; %d is the limit; put it into "+
			"a file and run that", size, maxCommand)
	case strings.ContainsRune(cmd.Command, 0) ||
		slices.ContainsFunc(cmd.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return Error("command", "the command holds a NUL byte")
	}
	return nil
}

func checkPlace(cmd *proto.Cmd) error {
	switch {
	case !proto.ValidJobID(cmd.JobID):
		return Error("job_id", "job_id %.80q: %s", cmd.JobID, proto.JobIDRule)
	case !proto.ValidUser(cmd.User):
		return Error("user", "user %.80q: %s", cmd.User, proto.UserRule)
	case strings.ContainsRune(cmd.Cwd, 0) || len(cmd.Cwd) > 4095:
		return Error("cwd", "cwd is not a path")
	}
	return nil
}

func checkBounds(cmd *proto.Cmd) error {
	switch t := cmd.TimeoutSeconds; {
	case cmd.Generation < 0:
		return Error("generation", "generation must be 0 or more; 0 takes whichever runs")
	case t < 0 || math.IsNaN(t) || t > maxExecTimeout.Seconds():
		return Error("timeout_seconds", "timeout_seconds must be from 0 to %d", int64(maxExecTimeout.Seconds()))
	case !(cmd.ReconnectSeconds >= 0 && cmd.ReconnectSeconds <= maxReconnect.Seconds()):
		return Error("reconnect_seconds", "reconnect_seconds must be from 0 to %d", int64(maxReconnect.Seconds()))
	case cmd.ReconnectSeconds > 0 && (cmd.Background || cmd.Detach):
		return Error("reconnect_seconds", "reconnect_seconds ends a command without a client, and background and "+
			"detach leave it running; use one of them")
	case cmd.MaxOutputBytes < 1 || cmd.MaxOutputBytes > maxOutputLimit:
		return Error("max_output_bytes", "max_output_bytes must be from 1 to %d", maxOutputLimit)
	}
	return nil
}

func checkModes(cmd *proto.Cmd) error {
	switch {
	case cmd.OnOutputLimit != proto.OutputTruncate && cmd.OnOutputLimit != proto.OutputFail &&
		cmd.OnOutputLimit != proto.OutputWait:
		return Error("on_output_limit", "on_output_limit %.80q: use %q, %q or %q", cmd.OnOutputLimit,
			proto.OutputTruncate, proto.OutputFail, proto.OutputWait)
	case cmd.Shell != "" && cmd.Command == "":
		return Error("shell", "a shell runs command, not argv")
	case cmd.Shell != "" && (cmd.TTY != nil || cmd.OpenStdin):
		return Error("shell", "a command in a shell has no terminal and no open standard input; run bash itself "+
			"with tty for that")
	case cmd.Shell != "" && !proto.ValidJobID(cmd.Shell):
		return Error("shell", "shell %.80q: %s", cmd.Shell, proto.JobIDRule)
	case cmd.TTY != nil && (cmd.TTY.Rows == 0 || cmd.TTY.Cols == 0):
		return Error("tty", "tty needs rows and cols of at least 1")
	case cmd.OpenStdin && cmd.Stdin != "":
		return Error("stdin", "stdin and open_stdin exclude each other; write the first bytes as a message")
	}
	return nil
}
