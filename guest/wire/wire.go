package wire

import (
	"bytes"
	"syscall"
	"time"

	"berth/proto"
)

// The operations.
const (
	OpHello      = "hello"
	OpExec       = "exec"
	OpAttach     = "attach"      // attach to a kept command
	OpClaim      = "claim"       // say which kept commands are known; the others never start any more
	OpForget     = "forget"      // drop what is kept of these commands
	OpIdle       = "idle"        // could the container be stopped without a loss?
	OpListen     = "listen"      // listen on loopback, and use this connection for the next program that connects there
	OpDial       = "dial"        // connect to a port of the container's loopback
	OpPorts      = "ports"       // which ports of the container are listened on
	OpWatchPorts = "watch_ports" // the same as a body: a PortList now, and after each change, until no process is left
	OpShells     = "shells"
	OpCloseShell = "close_shell"
	OpStat       = "stat"
	OpList       = "list"
	OpWalk       = "walk"
	OpRead       = "read"
	OpWrite      = "write"
	OpMkdir      = "mkdir"
	OpRemove     = "remove"
	OpMove       = "move"
	OpTar        = "tar"
	OpUntar      = "untar"
	OpHash       = "hash"
	OpEdit       = "edit"
	OpWatch      = "watch" // of a directory: events as a body, until the connection closes
	OpFind       = "find"  // a page of the entries below a directory
	OpGrep       = "grep"  // events as a body, until all is searched or the connection closes
)

// Request is the JSON of frame Q. Op decides which fields count. Paths are bytes, since file names need not be UTF-8
// and JSON strings must be.
type Request struct {
	Op        string   `json:"op"`
	As        string   `json:"as,omitempty"`
	Path      []byte   `json:"path,omitempty"`
	To        []byte   `json:"to,omitempty"`
	Paths     [][]byte `json:"paths,omitempty"`
	Offset    int64    `json:"offset,omitempty"`
	Count     int64    `json:"count,omitempty"`
	Max       int      `json:"max,omitempty"`
	Recursive bool     `json:"recursive,omitempty"`
	NoLinks   bool     `json:"no_links,omitempty"` // for a read or tar: fail if a link is on the way
	// for a read with NoLinks: Path itself may be a link to a file in the workspace
	Follow  bool `json:"follow,omitempty"`
	Entries bool `json:"entries,omitempty"` // for a watch: events describe their file
	Others  bool `json:"others,omitempty"`  // for a walk: return FIFOs, sockets and devices too
	// for a read: a descriptor may come instead of the content; for a dial: it may come instead of a relay
	Handover bool               `json:"handover,omitempty"`
	Name     string             `json:"name,omitempty"` // of a shell
	Write    WriteOptions       `json:"write,omitzero"`
	Untar    UntarLimits        `json:"untar,omitzero"`
	Command  *Command           `json:"command,omitempty"`
	Edit     *proto.EditorInput `json:"edit,omitempty"`
	Find     *proto.FindOptions `json:"find,omitempty"`
	Grep     *proto.GrepOptions `json:"grep,omitempty"`
	// of a walk of a job's directory: the state that an earlier one had, as Exit.Seen gives it. The answer is then a
	// Delta if the guest knows what has changed since.
	Since string   `json:"since,omitempty"`
	Pipes int      `json:"pipes,omitempty"` // number of descriptors sent along
	Port  uint16   `json:"port,omitempty"`  // of loopback
	ID    string   `json:"id,omitempty"`    // of a command
	IDs   []string `json:"ids,omitempty"`
	Have  [2]int64 `json:"have,omitzero"` // bytes of stdout and stderr that the daemon has
}

// Command is what Client.Start runs. Exactly one of Argv and Text is set.
type Command struct {
	ID    string   `json:"id,omitempty"`    // of the exec; also in its environment as BERTH_EXEC_ID
	Argv  []string `json:"argv,omitempty"`  // a program and its arguments
	Text  string   `json:"text,omitempty"`  // a script for bash
	Shell string   `json:"shell,omitempty"` // the persistent shell that runs Text; started at first use
	// working directory; made if missing below the workspace; for a shell, used by the first call only
	Dir string `json:"dir,omitempty"`
	// a directory made fresh and empty, and removed if it is empty at the end; User must be able to write its parent
	Output string   `json:"output,omitempty"`
	Job    string   `json:"job,omitempty"` // the directory that Exit.Seen describes; "" for none
	Env    []string `json:"env,omitempty"` // "NAME=value"; overrides what the guest sets
	// "NAME=directory"; appended to the variable's value, also if Env sets it
	Lists []string `json:"lists,omitempty"`
	// the container's limit of processors, rounded up, for programs that ask how many there are; 0 is none
	CPUs int `json:"cpus,omitempty"`
	// proto.UserDefault (the default), proto.UserRoot, or another user of the container
	User string `json:"user,omitempty"`
	// Process.Write will send input; otherwise the command reads nothing
	Stdin bool              `json:"stdin,omitempty"`
	TTY   *proto.WindowSize `json:"tty,omitempty"` // give it a terminal of that size; not for shells
	// outlive the connection: keep the exit, and this many bytes of each stream, until Client.Forget; needs ID
	Keep  int64  `json:"keep,omitempty"`
	Wait  bool   `json:"wait,omitempty"`  // if Keep is set: lose no output while no daemon is connected
	Input []byte `json:"input,omitempty"` // the whole standard input, if Keep is set; not with Stdin
}

// StepCommandFlag makes the guest's program, called with it alone, read a StepCommand from its standard input and
// become that command.
const StepCommandFlag = "-step-command"

// StepCommand is the command of one step of an image's build. Unlike a Command, it has exactly this environment, and
// any user of the image.
type StepCommand struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`  // made if missing
	User string   `json:"user"` // as in a Dockerfile: a name or number, and a group after a colon; "" is root
}

// Exit describes how a command ended.
type Exit struct {
	Code        int            `json:"code"`             // 0 to 255; 128+n if signal n ended it
	Signal      syscall.Signal `json:"signal,omitempty"` // 0 unless a signal ended it
	OutOfMemory bool           `json:"oom,omitempty"`    // the kernel killed it because memory was full
	// while it ran, the kernel refused a new process or thread in the container; this field, Full and FullBefore are
	// set only if Code is not 0
	ForksRefused bool     `json:"forks,omitempty"`
	Full         Shortage `json:"full,omitempty"`        // memory file systems that were full at its end
	FullBefore   Shortage `json:"full_before,omitempty"` // memory file systems that were full at its start
	// Command.Output could not be made because the disk is full
	NoOutputDir bool          `json:"no_output_dir,omitempty"`
	Leftover    int           `json:"leftover,omitempty"` // processes it left running
	CPU         time.Duration `json:"cpu,omitempty"`      // of its processes that were reaped
	// largest resident set of one of those processes; 0 if unknown, as for a shell that still runs
	PeakBytes int64 `json:"peak,omitempty"`
	// the persistent shell ended; the next call starts a new one
	ShellEnded bool `json:"ended,omitempty"`
	// proto.Fingerprint of Command.Job at its end, or the Listing.Mark of its last walk; "" if neither is known
	Seen string `json:"seen,omitempty"`
	// Command.Output was empty at the end, and is removed
	NoOutput bool          `json:"no_output,omitempty"`
	Ago      time.Duration `json:"ago,omitempty"` // for a kept command: time between its end and this report
}

// Done is the content of frame D.
type Done struct {
	Exit
	Open bool `json:"open,omitempty"` // a process still has the pipes open; answer with Y
}

// Started is the content of frame S.
type Started struct {
	PID   int  `json:"pid"`
	Pipes bool `json:"pipes,omitempty"` // output comes through the descriptors, not as frames
	Fresh bool `json:"fresh,omitempty"` // a persistent shell was started for this call

	// For an attach only.
	Ended   bool          `json:"over,omitempty"`     // the command has already ended
	Ran     time.Duration `json:"ran,omitempty"`      // time since the command started
	Out     [2]int64      `json:"out,omitzero"`       // bytes that the command has written
	NoInput bool          `json:"no_input,omitempty"` // its standard input accepts no more data
}

// Hello is a guest's description of itself.
type Hello struct {
	// random; a different value means that the guest restarted and all else is gone
	Boot      string     `json:"boot"`
	Version   string     `json:"version"`
	PID       int        `json:"pid"` // of the guest, in its own namespace: 1 in a container
	StartedAt proto.Time `json:"started_at"`
	Kernel    string     `json:"kernel"`               // name and release as the container sees them
	Pipes     bool       `json:"pipes"`                // descriptors can cross this connection
	Ping      bool       `json:"ping,omitempty"`       // the guest answers FramePing
	Packing   int        `json:"packing,omitempty"`    // of guests before 0.1 only: see PackingPing
	FileCalls int        `json:"file_calls,omitempty"` // which operations on files the guest knows: see FileCalls
}

// FileCalls is the Hello.FileCalls of a guest of this build. Guests of builds before have fewer.
const FileCalls = FilesAttributes

// The lowest Hello.FileCalls of a guest that knows an operation.
const (
	FilesFind       = 1 // OpFind
	FilesGrep       = 2 // OpGrep
	FilesInPlace    = 3 // WriteOptions.InPlace
	FilesAttributes = 4 // attributes in InPlace
)

// PackingPing is the lowest Hello.Packing with which a guest before 0.1 answers FramePing.
const PackingPing = 2

// ShellInfo describes a persistent shell.
type ShellInfo struct {
	Name      string     `json:"name"`
	PID       int        `json:"pid"`
	User      string     `json:"user"`
	Dir       string     `json:"dir"` // current directory; "" if it cannot be read
	Busy      bool       `json:"busy"`
	Calls     int        `json:"calls"`
	StartedAt proto.Time `json:"started_at"`
}

// WriteOptions control how Client.Write makes a file.
type WriteOptions struct {
	Mode      uint32 `json:"mode,omitempty"`      // permission bits; 0 keeps those of the replaced file, or means 0644
	Exclusive bool   `json:"exclusive,omitempty"` // fail with proto.AlreadyExists instead of replacing
	Hash      bool   `json:"hash,omitempty"`      // hash the content; takes far longer than the write
	// replace a link at the end, fail if a link is on the way; the directory must exist
	NoLinks bool `json:"no_links,omitempty"`
	// write into the file itself; not with Exclusive, Hash and NoLinks. Guests before FilesInPlace replace the file.
	InPlace *proto.InPlace `json:"in_place,omitempty"`
	Size    int64          `json:"size,omitempty"` // length of the body in bytes, if known; for InPlace
}

// UntarLimits bound the unpacked content of an archive. Zero means the default.
type UntarLimits struct {
	Bytes int64 `json:"bytes,omitempty"` // total size of all files; default 64 GiB
	Files int   `json:"files,omitempty"` // members; default 1,000,000
}

// Listing is one message of a list or walk. More is false in the last one.
type Listing struct {
	Files     []proto.FileInfo `json:"files"`
	More      bool             `json:"more,omitempty"`
	Truncated bool             `json:"truncated,omitempty"`
	// of a walk of a job's directory that is truncated or a Delta: what Exit.Seen says until something changes
	Mark    string   `json:"mark,omitempty"`
	Delta   bool     `json:"delta,omitempty"`   // Files are those that are new or changed since Request.Since
	Gone    [][]byte `json:"gone,omitempty"`    // of a Delta: paths of files that are no longer there
	Next    []byte   `json:"next,omitempty"`    // of a page: see proto.FindPage
	Skipped int      `json:"skipped,omitempty"` // of a page: see proto.FindPage
}

// The maximum sizes of a listing.
const (
	MaxList = 10_000    // entries that List returns
	MaxWalk = 1_000_000 // entries that Walk returns, even if max is larger
)

// MaxAttributes bounds the names and the values of the attributes of one file in an answer, in bytes.
const MaxAttributes = 8 << 10

// perAttribute is about what it takes to hold an attribute besides its text.
const perAttribute = 100

// AttributeBytes returns the length of the names and the values of attributes, and about what it takes to hold them.
func AttributeBytes(list map[string]string) (text, held int) {
	for name, value := range list {
		text += len(name) + len(value)
	}
	return text, text + perAttribute*len(list)
}

// MaxHash is the largest file that Hash reads, in bytes. Hash leaves out larger files.
const MaxHash = 16 << 30

// Shortage is a set of the container's memory file systems that commands can fill.
type Shortage uint8

// The members of a Shortage.
const (
	ShortTmp Shortage = 1 << iota // /tmp, of guests of older builds, which had it in memory
	ShortShm                      // /dev/shm
	allShort = ShortTmp | ShortShm
)

// MaxSeen is more than the length of any fingerprint or mark, in bytes.
const MaxSeen = 64

// Plausible reports whether an exit has possible values.
func (d *Done) Plausible() bool {
	return d.Code >= 0 && d.Code <= 255 && d.Signal >= 0 && d.Signal <= 64 &&
		d.Leftover >= 0 && d.Leftover < 1<<23 && d.Full&^allShort == 0 && d.FullBefore&^allShort == 0 && d.CPU >= 0 &&
		d.PeakBytes >= 0 && d.Ago >= 0 && len(d.Seen) <= MaxSeen
}

// Opened is the answer to a read.
type Opened struct {
	Info   proto.FileInfo `json:"info"`
	Length int64          `json:"length"` // of the body
	// the file's descriptor came with the answer, and no body follows
	Handover bool `json:"handover,omitempty"`
}

// Dialed is the answer to a dial.
type Dialed struct {
	// the connected socket came with the answer; otherwise the connection with the guest carries the data from here on
	Handover bool `json:"handover,omitempty"`
}

// MaxPorts is the maximum length of the answer to OpPorts.
const MaxPorts = 1024

// A PortList is one line of the answer to OpWatchPorts: all that listens.
type PortList struct {
	Ports []proto.Port `json:"ports"` // at most MaxWatchedPorts, those with the lowest numbers
}

// MaxWatchedPorts is the maximum length of a PortList.
const MaxWatchedPorts = 100

// Packed ends the body of an archive. An older guest sends nothing there.
type Packed struct {
	Unread int64    `json:"unread"` // files that could not be read
	Names  [][]byte `json:"names"`  // of the first ones
}

// NewPacked describes an archive that lacks files.
func NewPacked(u proto.Unread) Packed {
	p := Packed{Unread: u.Count}
	for _, name := range u.Names {
		p.Names = append(p.Names, []byte(name))
	}
	return p
}

// Lacks returns the files that the archive lacks. ok is false if the values are not possible ones.
func (p Packed) Lacks() (u proto.Unread, ok bool) {
	if p.Unread < int64(len(p.Names)) {
		return u, false
	}
	for _, name := range p.Names {
		u.Add(string(name))
	}
	u.Count = p.Unread
	return u, true
}

// MaxDepth is the maximum depth of walks and archives. Each level holds a descriptor.
const MaxDepth = 200

// StdinWindow is the maximum number of stdin bytes in flight if stdin travels as frames. The guest buffers that much
// while the command does not read.
const StdinWindow = 256 << 10

// RelayPiece is the frame size for a connection to loopback, in bytes.
const RelayPiece = 32 << 10

// BodyBytes is the frame size for bodies, in bytes.
const BodyBytes = 128 << 10

// HasInput reports whether the command has a standard input.
func (cmd *Command) HasInput() bool { return cmd.Stdin || cmd.Input != nil }

// AsHello is the start of the JSON of a Hello request. No other request starts this way.
var AsHello = []byte(`{"op":"hello"`)

// Parse decodes a request. It decodes a Hello into a smaller type, with only the fields that count. The JSON package
// caches some 45 KiB for the full request type, and a container that waits for its use receives only Hellos.
func (r *Request) Parse(body []byte) (err error) {
	if !bytes.HasPrefix(body, AsHello) {
		return Decode(body, r)
	}
	var h struct {
		Op    string `json:"op"`
		Pipes int    `json:"pipes"`
	}
	err = Decode(body, &h)
	r.Op, r.Pipes = h.Op, h.Pipes
	return err
}
