package proto

import "time"

// Users that a command can run as inside a container.
const (
	UserDefault = "user" // uid 1000
	UserRoot    = "root" // root of the container, nobody on the host
)

// A Cmd is one command to run in a container, as the native edge receives it.
// Exactly one of Command and Argv is set.
type Cmd struct {
	Command string   `json:"command,omitempty"` // text for bash
	Argv    []string `json:"argv,omitempty"`    // a program and its arguments, no shell
	// name of a persistent shell that runs Command; made at first use
	Shell string `json:"shell,omitempty"`
	JobID string `json:"job_id,omitempty"` // the job it belongs to; made when empty
	// absolute, or relative to the job's directory, which is the default
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`     // added to the container's
	Secrets map[string]string `json:"secrets,omitempty"` // environment too, hidden wherever the command is recorded
	User    string            `json:"user,omitempty"`    // "user" (default) or "root"
	Stdin   string            `json:"stdin,omitempty"`   // all of standard input, unless OpenStdin
	Files   []string          `json:"files,omitempty"`   // stored files to put into $INPUT_DIR first

	// Generation binds the command to one run of the container: where another one runs by now, or none, it is refused
	// as a conflict. 0 takes whichever runs, and starts the container if none does.
	Generation int64 `json:"generation,omitempty"`

	OpenStdin  bool        `json:"open_stdin,omitempty"` // keep standard input open for later writes
	TTY        *WindowSize `json:"tty,omitempty"`        // give it a terminal; stderr then arrives as stdout
	Background bool        `json:"background,omitempty"` // answer as soon as it has started
	Detach     bool        `json:"detach,omitempty"`     // keep it running when the client goes away, or the daemon

	// IdempotencyKey has the command run at most once: the same key with the same command, in the same container, is
	// the same exec, for 24 hours at least. 1 to 255 printable ASCII characters. Such a command is not ended when its
	// client goes away.
	IdempotencyKey string `json:"idempotency_key,omitempty"`

	// 0 is the daemon's default; background commands have none unless asked
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// of each stream kept for the result; 0 is the daemon's default
	MaxOutputBytes int64 `json:"max_output_bytes,omitempty"`
	// "truncate" (default): keep head and tail; "fail": kill it; "wait": hold it up for those who follow
	OnOutputLimit string `json:"on_output_limit,omitempty"`

	// What no request can say; package code does.
	Shown string `json:"-"` // what it is called wherever it is recorded, instead of Argv
	// that it runs is no use of its container, which may be paused and stopped under it; see session.Hold
	Resident bool `json:"-"`
}

// What happens to a command that writes more than MaxOutputBytes.
const (
	OutputTruncate = "truncate"
	OutputFail     = "fail"
	// lose nothing: the command waits for the slowest follower; only for commands that are followed from the start
	OutputWait = "wait"
)

// A WindowSize is a terminal's, in character cells.
type WindowSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
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
	Reason     EndReason `json:"reason"`
	ReturnCode int       `json:"return_code"`        // the code, or 128+n for signal n; -1 when unknown
	Signal     string    `json:"signal,omitempty"`   // "SIGKILL", when a signal ended it
	Message    string    `json:"message,omitempty"`  // one sentence for people, where the reason does not say it all
	Leftover   int       `json:"leftover,omitempty"` // background processes it left running
	// of its processes that have ended, killed ones too; 0 when unknown, as for "lost" and "host_restart"
	CPUSeconds float64 `json:"cpu_seconds"`
	// largest resident set of one of those, and no less than the guest's own; 0 when unknown
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
	ID          string    `json:"id"`
	ContainerID string    `json:"container_id"`
	JobID       string    `json:"job_id"`
	Command     string    `json:"command,omitempty"`
	Argv        []string  `json:"argv,omitempty"`
	Shell       string    `json:"shell,omitempty"`
	User        string    `json:"user"`
	Generation  int64     `json:"generation,omitempty"` // of the container, in which it ran
	Background  bool      `json:"background,omitempty"`
	State       ExecState `json:"state"`
	StartedAt   Time      `json:"started_at"`
	EndedAt     *Time     `json:"ended_at"`
	End         *End      `json:"end"`
	StdoutBytes int64     `json:"stdout_bytes"` // written so far, kept or not
	StderrBytes int64     `json:"stderr_bytes"`
	Truncated   bool      `json:"truncated"` // the result leaves out some of the output
}

// Duration is how long it ran, or has run until now.
func (e Exec) Duration(now time.Time) time.Duration {
	if e.EndedAt != nil {
		now = e.EndedAt.Time
	}
	return now.Sub(e.StartedAt.Time)
}

// An ExecResult is the answer to a finished exec. Result is exactly the content object that
// hosted code execution answers with; the rest is what that shape has no room for.
type ExecResult struct {
	Container ContainerRef `json:"container"`
	Exec      Exec         `json:"exec"`
	Result    BashContent  `json:"result"`
	Partial   *Output      `json:"partial,omitempty"` // what was written, when Result is an error
	// what else the caller should know: a file that could not be published, …
	Notes []string `json:"notes,omitempty"`
}

// An Output is what a command wrote, as text; bytes that are not UTF-8 become U+FFFD.
type Output struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}
