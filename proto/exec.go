package proto

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Users that every container has. A command can also run as any other user of its image.
const (
	UserDefault = "user" // uid 1000
	UserRoot    = "root" // root of the container, nobody on the host
)

// maxUser bounds the name of a user with its group, in characters.
const maxUser = 256

// UserRule is what ValidUser takes, for errors.
const UserRule = `use "user", "root", or a user of the container: a name or UID, and a group or GID after a colon`

// ValidUser reports whether name may name a user: 1 to 256 printable characters. The container decides whether
// there is such a user.
func ValidUser(name string) bool {
	return name != "" && utf8.ValidString(name) && utf8.RuneCountInString(name) <= maxUser &&
		!strings.ContainsFunc(name, unicode.IsControl)
}

// A Cmd is one command to run in a container. Exactly one of command and argv is set.
type Cmd struct {
	Command string   `json:"command,omitempty" schema:"maxLength=1048576 noNUL"` // Text for bash.
	Argv    []string `json:"argv,omitempty" schema:"argv"`                       // Program and arguments, without a shell.
	// Name of a persistent shell that runs command and keeps its directory and variables; created at its first use.
	Shell string `json:"shell,omitempty" schema:"jobName"`
	// Job that the command belongs to: 1 to 64 letters, digits, '-' and '_'. Default: the job of the container.
	JobID string `json:"job_id,omitempty" schema:"jobName"`
	// Working directory: absolute, or relative to the directory of the job, which is the default.
	Cwd string `json:"cwd,omitempty" schema:"maxLength=4095 noNUL"`
	// Added to the environment of the container.
	Env map[string]string `json:"env,omitempty" schema:"env"`
	// More environment; the values are replaced wherever the command is recorded.
	Secrets map[string]string `json:"secrets,omitempty" schema:"secrets"`
	// user (default), root, or a user of the container: a name or UID, and a group or GID after a colon. It has the
	// groups that the container's /etc/group gives it, unless a group is named.
	User  string `json:"user,omitempty" schema:"user"`
	Stdin string `json:"stdin,omitempty"` // All of standard input. Excludes open_stdin.
	// IDs of stored files to put into $INPUT_DIR first.
	Files []string `json:"files,omitempty"`

	// Generation of the container that the command is for; 0 is any. If another one runs, or none, the answer is 409
	// and the command does not start.
	Generation int64 `json:"generation,omitempty"`

	OpenStdin bool `json:"open_stdin,omitempty"` // Keep standard input open for later writes.
	// Give it a terminal of this size. What it writes to stderr then arrives as stdout.
	TTY        *WindowSize `json:"tty,omitempty"`
	Background bool        `json:"background,omitempty"` // Answer as soon as it has started.
	// Keep it running when the client or the daemon goes away.
	Detach bool `json:"detach,omitempty"`

	// Runs the command at most once: the same key with the same command in the same container returns the same exec
	// for at least 24 hours. 1 to 255 printable ASCII characters. Such a command keeps running when its client goes
	// away.
	IdempotencyKey string `json:"idempotency_key,omitempty" schema:"retryKey"`
	// End it when no client has followed it or waited for it for this long, and not before: it goes on while its client
	// connects again, also when the daemon restarts. Not with background and detach.
	ReconnectSeconds float64 `json:"reconnect_seconds,omitempty" schema:"min=0 max=3600"`

	// At most 86400; 0 is the default of the daemon. Background commands have no default limit.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"min=0 max=86400"`
	// How much of each stream the result keeps; 0 is the default of the daemon.
	MaxOutputBytes int64 `json:"max_output_bytes,omitempty" schema:"min=0 max=16777216"`
	// truncate (default) keeps head and tail, fail ends the command, wait blocks it until the slowest follower has
	// caught up. With wait, a command that outlives its client waits only while somebody follows it, and keeps head and
	// tail while nobody does; with reconnect_seconds it waits for its client to come back, too.
	OnOutputLimit string `json:"on_output_limit,omitempty" schema:"enum=|truncate|fail|wait"`

	// What no request can say: package code does, and an edge whose every command is followed.
	Shown string `json:"-"` // what it is called wherever it is recorded, instead of Argv
	// who starts it follows it at once, so with wait it waits for that
	Followed bool `json:"-"`
	// that it runs is no use of its container, which may be paused and stopped under it; see session.Hold
	Resident bool `json:"-"`
}

// Outlives reports whether the command goes on when its client or the daemon goes away: its guest keeps it until a
// daemon has stored its end. One with an idempotency key does, since its client may come back for it.
func (c Cmd) Outlives() bool {
	return c.Detach || c.Background || c.IdempotencyKey != "" || c.ReconnectSeconds > 0
}

// OutputTruncated returns the text that stands where n bytes of output were left out.
func OutputTruncated(n int64) string {
	return fmt.Sprintf("\n[output truncated: %d bytes left out]\n", n)
}

// What happens to a command that writes more than MaxOutputBytes.
const (
	OutputTruncate = "truncate"
	OutputFail     = "fail"
	// lose nothing: the command waits for the slowest follower. One that outlives its client waits only while it has a
	// follower; the others wait for their first one, too
	OutputWait = "wait"
)

// A WindowSize is the size of a terminal in character cells.
type WindowSize struct {
	Rows uint16 `json:"rows" schema:"min=1 max=65535"`
	Cols uint16 `json:"cols" schema:"min=1 max=65535"`
}

// A Stream is where a piece of output came from.
type Stream uint8

// The streams of a command.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// An EndReason says why an exec ended. It is always set and always true.
type EndReason string

// The reasons.
const (
	EndExit        EndReason = "exit"          // it returned a code
	EndSignal      EndReason = "signal"        // a signal that nobody here sent for a reason below
	EndTimeout     EndReason = "timeout"       // its time limit; the whole process tree was killed
	EndOutOfMemory EndReason = "out_of_memory" // the container's memory limit
	// a full disk: limits.disk_bytes, or /tmp and /dev/shm, which Message names
	EndDiskQuota   EndReason = "disk_quota"
	EndPIDLimit    EndReason = "pid_limit"    // the container's limit of processes and threads
	EndOutputLimit EndReason = "output_limit" // MaxOutputBytes with "fail"
	EndKilled      EndReason = "killed"       // somebody asked for it through the API
	EndCanceled    EndReason = "canceled"     // its client went away
	EndExpired     EndReason = "expired"      // the container's time was over
	EndStopped     EndReason = "stopped"      // the container was stopped or deleted
	EndHostRestart EndReason = "host_restart" // the host was started anew while it ran
	EndLost        EndReason = "lost"         // the daemon or the container died under it; how it ended is unknown
	EndNotStarted  EndReason = "not_started"  // the program could not be started; Message says why
)

// An End is how an exec ended.
type End struct {
	Reason EndReason `json:"reason"`
	// The code, 128+n for signal n, or -1 where it is unknown.
	ReturnCode int    `json:"return_code"`
	Signal     string `json:"signal,omitempty"` // Such as SIGKILL, when a signal ended it.
	// One sentence for people, where the reason does not say everything.
	Message string `json:"message,omitempty"`
	// Number of background processes that it left running.
	Leftover int `json:"leftover,omitempty"`
	// Of its processes that have ended; 0 when unknown, as for lost and host_restart.
	CPUSeconds float64 `json:"cpu_seconds"`
	// Largest resident set of one of those processes, never less than that of the guest; 0 when unknown.
	PeakBytes int64 `json:"peak_memory_bytes"`
}

// ExecState is "running" or "ended".
type ExecState string

// The states of an exec.
const (
	ExecRunning ExecState = "running"
	ExecEnded   ExecState = "ended"
)

// An Exec describes one run of a command.
type Exec struct {
	ID          string   `json:"id"`
	ContainerID string   `json:"container_id"`
	JobID       string   `json:"job_id"`
	Command     string   `json:"command,omitempty"`
	Argv        []string `json:"argv,omitempty"`
	Shell       string   `json:"shell,omitempty"`
	User        string   `json:"user"`
	// Process ID in the container's own numbering; of the shell, if it ran in one. Left out for one without a process.
	PID         int       `json:"pid,omitempty"`
	Terminal    bool      `json:"terminal,omitempty"`   // It has a terminal.
	OpenStdin   bool      `json:"open_stdin,omitempty"` // Its standard input takes later writes.
	Generation  int64     `json:"generation,omitempty"` // Generation of the container in which it ran.
	Background  bool      `json:"background,omitempty"`
	State       ExecState `json:"state"`
	StartedAt   Time      `json:"started_at"`
	EndedAt     *Time     `json:"ended_at"`
	End         *End      `json:"end"`          // How it ended; null while it runs.
	StdoutBytes int64     `json:"stdout_bytes"` // Written so far, kept or not.
	StderrBytes int64     `json:"stderr_bytes"`
	Truncated   bool      `json:"truncated"` // The result leaves out some of the output.
}

// Duration is how long it ran, or has run until now.
func (e Exec) Duration(now time.Time) time.Duration {
	if e.EndedAt != nil {
		now = e.EndedAt.Time
	}
	return now.Sub(e.StartedAt.Time)
}

// An ExecResult is the answer to a command that has ended. Its result is the block that hosted code execution answers
// with.
type ExecResult struct {
	Container ContainerRef `json:"container"`
	Exec      Exec         `json:"exec"`
	Result    BashContent  `json:"result"`
	Partial   *Output      `json:"partial,omitempty"` // What was written, where result is an error.
	// What else the caller should know, such as a file that could not be published.
	Notes []string `json:"notes,omitempty"`
}

// An Output is what a command wrote, as text; bytes that are not UTF-8 become U+FFFD.
type Output struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}
