package session

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/proto"
	"berth/session/secrets"
)

// invalid returns an InvalidArgument error about a field of a request.
func invalid(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, format, args...)
}

func seconds(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}

func checkClass(c proto.RuntimeClass) error {
	if c != proto.ClassRunc && c != proto.ClassGVisor {
		return invalid("runtime_class", "runtime_class %q is not known; use %q or %q", c, proto.ClassRunc,
			proto.ClassGVisor)
	}
	return nil
}

func checkSpan(field string, d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return invalid(field, "%s must be from %d to %d", field, int64(lo.Seconds()), int64(hi.Seconds()))
	}
	return nil
}

// checkLimits refuses limits that the kernel would refuse later with a less clear error. A request may lower the
// daemon's limits but not raise them.
func checkLimits(l, most proto.Limits) error {
	least := LeastLimits
	switch {
	case l.CPUs < 0 || l.CPUs > 0 && l.CPUs < least.CPUs || math.IsNaN(l.CPUs) || l.CPUs > most.CPUs:
		return invalid("limits.cpus", "limits.cpus must be from %g to %g, which is this daemon's limit", least.CPUs,
			most.CPUs)
	case outside(l.MemoryBytes, least.MemoryBytes, most.MemoryBytes):
		return invalid("limits.memory_bytes", "limits.memory_bytes must be from %d to %d, which is this daemon's limit",
			least.MemoryBytes, most.MemoryBytes)
	case outside(l.PIDs, least.PIDs, most.PIDs):
		return invalid("limits.pids", "limits.pids must be from %d to %d, which is this daemon's limit", least.PIDs,
			most.PIDs)
	case outside(l.DiskBytes, least.DiskBytes, most.DiskBytes):
		return invalid("limits.disk_bytes", "limits.disk_bytes must be from %d to %d, which is this daemon's limit",
			least.DiskBytes, most.DiskBytes)
	case outside(l.OpenFiles, least.OpenFiles, most.OpenFiles):
		return invalid("limits.open_files", "limits.open_files must be from %d to %d, which is this daemon's limit",
			least.OpenFiles, most.OpenFiles)
	}
	return nil
}

// outside reports whether a limit is negative, above most, or below least. 0 means the default and is allowed.
func outside(n, least, most int64) bool { return n < 0 || n > 0 && n < least || n > most }

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("labels", "%d labels are too many; %d is the limit", len(labels), maxLabels)
	}
	for k, v := range labels {
		if k == "" || len(k) > maxLabelBytes || len(v) > maxLabelBytes || !printable(k) || !printable(v) {
			return invalid("labels", "label %.64q: keys and values must be printable UTF-8 of at most %d bytes, "+
				"keys not empty", k, maxLabelBytes)
		}
	}
	return nil
}

func checkEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return invalid("env", "%d environment variables are too many; %d is the limit", len(env), maxEnv)
	}
	size := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || !utf8.ValidString(k) {
			return invalid("env", "environment variable %.64q: a name must not be empty and not hold '=' or NUL", k)
		}
		if strings.ContainsRune(v, 0) {
			return invalid("env", "environment variable %.64q: its value holds a NUL byte", k)
		}
		size += len(k) + len(v) + 2
	}
	if size > maxEnvBytes {
		return invalid("env", "the environment has %d bytes; %d is the limit", size, maxEnvBytes)
	}
	return nil
}

// printable reports whether s is UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// checkSecrets checks secrets together with the environment that they go into.
func checkSecrets(values, env map[string]string) error {
	if err := checkEnv(values); err != nil {
		return invalid("secrets", "secrets: %s", strings.ReplaceAll(proto.AsError(err).Message, "environment variable",
			"secret"))
	}
	for name, value := range values {
		if _, ok := env[name]; ok {
			return invalid("secrets",
				"secret %.64q: there is an environment variable of that name; leave one of them out", name)
		}
		if len(value) < secrets.MinSecret || len(value) > maxSecret {
			return invalid("secrets", "secret %.64q: it must have %d to %d bytes; what is shorter cannot be hidden, "+
				"so give it as env", name, secrets.MinSecret, maxSecret)
		}
	}
	return nil
}

// checkExec checks whether the session may run the command now, and fills in its defaults.
func (s *Session) checkExec(ctx context.Context, cmd *proto.Cmd) error {
	rec := s.record()
	if rec.unsealErr != nil {
		return rec.unsealErr
	}
	if err := s.core.cfg.checkCmd(cmd, rec.Job); err != nil {
		return err
	}
	return s.core.cfg.mayRun(ctx)
}

// checkCmd checks a command and fills in the session's defaults.
func (c Config) checkCmd(cmd *proto.Cmd, job string) error {
	setDefault(&cmd.JobID, job)
	setDefault(&cmd.User, proto.UserDefault)
	setDefault(&cmd.MaxOutputBytes, c.MaxOutput)
	setDefault(&cmd.OnOutputLimit, proto.OutputTruncate)
	if cmd.TimeoutSeconds == 0 && !cmd.Background && !cmd.Resident {
		cmd.TimeoutSeconds = c.ExecTimeout.Seconds()
	}
	for _, check := range []func(*proto.Cmd) error{checkProgram, checkPlace, checkBounds, checkModes} {
		if err := check(cmd); err != nil {
			return err
		}
	}
	return cmp.Or(checkEnv(cmd.Env), checkSecrets(cmd.Secrets, cmd.Env))
}

func checkProgram(cmd *proto.Cmd) error {
	size := len(cmd.Command)
	for _, a := range cmd.Argv {
		size += len(a)
	}
	switch {
	case cmd.Command == "" && len(cmd.Argv) == 0:
		return invalid("command", "nothing to run; set command (text for bash) or argv (a program and its arguments)")
	case cmd.Command != "" && len(cmd.Argv) > 0:
		return invalid("argv", "command and argv exclude each other; set one")
	case len(cmd.Argv) > 0 && cmd.Argv[0] == "":
		return invalid("argv", "argv[0] is empty; it must name a program")
	case size > maxCommand:
		return proto.Errorf(proto.TooLarge, "", "command", "the command has %d bytes; %d is the limit; put it into "+
			"a file and run that", size, maxCommand)
	case strings.ContainsRune(cmd.Command, 0) ||
		slices.ContainsFunc(cmd.Argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return invalid("command", "the command holds a NUL byte")
	}
	return nil
}

func checkPlace(cmd *proto.Cmd) error {
	switch {
	case !proto.ValidJobID(cmd.JobID):
		return invalid("job_id", "job_id %.80q: %s", cmd.JobID, proto.JobIDRule)
	case cmd.User != proto.UserDefault && cmd.User != proto.UserRoot:
		return invalid("user", "user %.80q: use %q or %q", cmd.User, proto.UserDefault, proto.UserRoot)
	case strings.ContainsRune(cmd.Cwd, 0) || len(cmd.Cwd) > 4095:
		return invalid("cwd", "cwd is not a path")
	}
	return nil
}

func checkBounds(cmd *proto.Cmd) error {
	switch t := cmd.TimeoutSeconds; {
	case cmd.Generation < 0:
		return invalid("generation", "generation must be 0 or more; 0 takes whichever runs")
	case t < 0 || math.IsNaN(t) || t > maxExecTimeout.Seconds():
		return invalid("timeout_seconds", "timeout_seconds must be from 0 to %d", int64(maxExecTimeout.Seconds()))
	case cmd.MaxOutputBytes < 1 || cmd.MaxOutputBytes > maxOutputLimit:
		return invalid("max_output_bytes", "max_output_bytes must be from 1 to %d", maxOutputLimit)
	}
	return nil
}

func checkModes(cmd *proto.Cmd) error {
	switch {
	case cmd.OnOutputLimit != proto.OutputTruncate && cmd.OnOutputLimit != proto.OutputFail &&
		cmd.OnOutputLimit != proto.OutputWait:
		return invalid("on_output_limit", "on_output_limit %.80q: use %q, %q or %q", cmd.OnOutputLimit,
			proto.OutputTruncate, proto.OutputFail, proto.OutputWait)
	case cmd.OnOutputLimit == proto.OutputWait && durable(*cmd):
		return invalid("on_output_limit", "a command in the background, or one that is detached or has an "+
			"idempotency key, cannot wait for those who follow it")
	case cmd.Shell != "" && cmd.Command == "":
		return invalid("shell", "a shell runs command, not argv")
	case cmd.Shell != "" && (cmd.TTY != nil || cmd.OpenStdin):
		return invalid("shell", "a command in a shell has no terminal and no open standard input; run bash itself "+
			"with tty for that")
	case cmd.Shell != "" && !proto.ValidJobID(cmd.Shell):
		return invalid("shell", "shell %.80q: %s", cmd.Shell, proto.JobIDRule)
	case cmd.TTY != nil && (cmd.TTY.Rows == 0 || cmd.TTY.Cols == 0):
		return invalid("tty", "tty needs rows and cols of at least 1")
	case cmd.OpenStdin && cmd.Stdin != "":
		return invalid("stdin", "stdin and open_stdin exclude each other; write the first bytes as a message")
	}
	return nil
}
