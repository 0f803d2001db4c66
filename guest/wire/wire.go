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
	OpAttach     = "attach" // to a command that is kept
	OpClaim      = "claim"  // which commands are kept; the others never start any more
	OpForget     = "forget" // drop what is kept of commands
	OpDoze       = "doze"   // give back all memory until the next request
	OpListen     = "listen" // on loopback, and lend this connection to whoever connects there
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
)

// A request is the JSON of frame Q. Which fields count depends on Op. Paths are bytes,
// since file names need not be UTF-8 and JSON strings must be.
type Request struct {
	Op        string             `json:"op"`
	As        string             `json:"as,omitempty"`
	Path      []byte             `json:"path,omitempty"`
	To        []byte             `json:"to,omitempty"`
	Paths     [][]byte           `json:"paths,omitempty"`
	Offset    int64              `json:"offset,omitempty"`
	Count     int64              `json:"count,omitempty"`
	Max       int                `json:"max,omitempty"`
	Recursive bool               `json:"recursive,omitempty"`
	NoLinks   bool               `json:"no_links,omitempty"` // of a read or tar: fail where a link is on the way
	Handover  bool               `json:"handover,omitempty"` // of a read: a descriptor may come instead of the content
	Name      string             `json:"name,omitempty"`     // of a shell
	Write     WriteOptions       `json:"write,omitzero"`
	Untar     UntarLimits        `json:"untar,omitzero"`
	Command   *Command           `json:"command,omitempty"`
	Edit      *proto.EditorInput `json:"edit,omitempty"`
	Pipes     int                `json:"pipes,omitempty"` // how many descriptors came with it
	Port      uint16             `json:"port,omitempty"`  // of loopback
	ID        string             `json:"id,omitempty"`    // of a command
	IDs       []string           `json:"ids,omitempty"`
	Have      [2]int64           `json:"have,omitzero"` // bytes of stdout and stderr that the daemon has
}

// A Command is what Client.Start runs. Exactly one of Argv and Text is set.
type Command struct {
	ID    string   `json:"id,omitempty"`    // of the exec; also in its environment as BERTH_EXEC_ID
	Argv  []string `json:"argv,omitempty"`  // a program and its arguments
	Text  string   `json:"text,omitempty"`  // for bash
	Shell string   `json:"shell,omitempty"` // the persistent shell that runs Text; made at first use
	// working directory; made if missing below the workspace. A shell's first call only
	Dir string `json:"dir,omitempty"`
	// a directory made fresh and empty, and removed if it is empty at the end; its parent must be User's to write
	Output string   `json:"output,omitempty"`
	Job    string   `json:"job,omitempty"`   // the directory that Exit.Seen is about; "" for none
	Env    []string `json:"env,omitempty"`   // "NAME=value"; wins over what the guest sets
	Lists  []string `json:"lists,omitempty"` // "NAME=directory"; put behind what the variable has, Env's too
	// proto.UserDefault, which is also the default, or proto.UserRoot
	User  string            `json:"user,omitempty"`
	Stdin bool              `json:"stdin,omitempty"` // Process.Write will give it something; else it reads nothing
	TTY   *proto.WindowSize `json:"tty,omitempty"`   // give it a terminal of that size; not for shells
	// it outlives its connection: keep its end, and so many bytes of each stream, until Client.Forget; needs ID
	Keep  int64  `json:"keep,omitempty"`
	Input []byte `json:"input,omitempty"` // all of its standard input, where Keep is set; not with Stdin
}

// An Exit is how a command ended.
type Exit struct {
	Code        int            `json:"code"`             // 0 to 255; 128+n where signal n ended it
	Signal      syscall.Signal `json:"signal,omitempty"` // 0 unless a signal ended it
	OutOfMemory bool           `json:"oom,omitempty"`    // the kernel killed it for memory
	// while it ran, a process or thread was refused to somebody in the container; this, Full and FullBefore only if
	// Code is not 0
	ForksRefused bool     `json:"forks,omitempty"`
	Full         Shortage `json:"full,omitempty"`        // which file systems in memory were full at its end
	FullBefore   Shortage `json:"full_before,omitempty"` // and were at its start
	// Command.Output could not be made, since the disk is full
	NoOutputDir bool          `json:"no_output_dir,omitempty"`
	Leftover    int           `json:"leftover,omitempty"` // processes it left running
	CPU         time.Duration `json:"cpu,omitempty"`      // of its processes that were waited for
	// largest resident set of one of those; 0 unknown, as for a shell that lives on
	PeakBytes int64 `json:"peak,omitempty"`
	// the persistent shell is gone; its next call starts a fresh one
	ShellEnded bool `json:"ended,omitempty"`
	// proto.Fingerprint of Command.Job at its end; "" if that was not looked at
	Seen string        `json:"seen,omitempty"`
	Ago  time.Duration `json:"ago,omitempty"` // how long before this was told it ended, where it was kept
}

// Done is what frame D says.
type Done struct {
	Exit
	Open bool `json:"open,omitempty"` // somebody still has the pipes open; answer with Y
}

// Started is what frame S says.
type Started struct {
	PID   int  `json:"pid"`
	Pipes bool `json:"pipes,omitempty"` // output comes through the descriptors, not as frames
	Fresh bool `json:"fresh,omitempty"` // a persistent shell was started for this

	// To attach only.
	Ended   bool          `json:"over,omitempty"`     // it has ended already
	Ran     time.Duration `json:"ran,omitempty"`      // since it was started
	Out     [2]int64      `json:"out,omitzero"`       // bytes that it has written
	NoInput bool          `json:"no_input,omitempty"` // its standard input takes nothing any more
}

// Hello is what a guest says of itself.
type Hello struct {
	Boot      string     `json:"boot"` // random; another one means the guest was started anew and all else is gone
	Version   string     `json:"version"`
	PID       int        `json:"pid"` // of the guest, in its own namespace: 1 in a container
	StartedAt proto.Time `json:"started_at"`
	Kernel    string     `json:"kernel"`            // name and release as the container sees them
	Pipes     bool       `json:"pipes"`             // descriptors can cross this connection
	Ping      bool       `json:"ping,omitempty"`    // it answers frameAsk
	Packing   int        `json:"packing,omitempty"` // of guests before 0.1 only: see packingPing
}

// PackingPing is the Hello.Packing from which on a guest before 0.1 answers frameAsk.
const PackingPing = 2

// ShellInfo describes a persistent shell.
type ShellInfo struct {
	Name      string     `json:"name"`
	PID       int        `json:"pid"`
	User      string     `json:"user"`
	Dir       string     `json:"dir"` // where it is now; "" if that is not to be read
	Busy      bool       `json:"busy"`
	Calls     int        `json:"calls"`
	StartedAt proto.Time `json:"started_at"`
}

// WriteOptions say how Client.Write makes a file.
type WriteOptions struct {
	Mode      uint32 `json:"mode,omitempty"`      // permission bits; 0 keeps those of the file it replaces, or is 0644
	Exclusive bool   `json:"exclusive,omitempty"` // fail with proto.AlreadyExists rather than replace
	Hash      bool   `json:"hash,omitempty"`      // sum up what is written, which takes far longer than to write it
	// replace a link at the end, fail where one is on the way; the directory must be there
	NoLinks bool `json:"no_links,omitempty"`
}

// UntarLimits bound what an archive may unpack to. Zero means the default.
type UntarLimits struct {
	Bytes int64 `json:"bytes,omitempty"` // of all files together; default 64 GiB
	Files int   `json:"files,omitempty"` // members; default 1,000,000
}

// Listing is one message of a list or walk; the last one has More false.
type Listing struct {
	Files     []proto.FileInfo `json:"files"`
	More      bool             `json:"more,omitempty"`
	Truncated bool             `json:"truncated,omitempty"`
}

// The most that a listing holds.
const (
	MaxList = 10_000    // entries that List returns
	MaxWalk = 1_000_000 // entries that Walk returns, whatever max says
)

// MaxHash is the size in bytes above which Hash leaves a file out.
const MaxHash = 16 << 30

// A Shortage is a set of the container's file systems in memory, those that commands fill.
type Shortage uint8

// The members of a Shortage.
const (
	ShortTmp Shortage = 1 << iota // /tmp
	ShortShm                      // /dev/shm
	allShort = ShortTmp | ShortShm
)

// maxSeen is more than the length of any gist, in bytes.
const maxSeen = 64

// Plausible reports whether an exit can be true.
func (d *Done) Plausible() bool {
	return d.Code >= 0 && d.Code <= 255 && d.Signal >= 0 && d.Signal <= 64 &&
		d.Leftover >= 0 && d.Leftover < 1<<23 && d.Full&^allShort == 0 && d.FullBefore&^allShort == 0 && d.CPU >= 0 &&
		d.PeakBytes >= 0 && d.Ago >= 0 && len(d.Seen) <= maxSeen
}

// Opened is the answer to a read.
type Opened struct {
	Info     proto.FileInfo `json:"info"`
	Length   int64          `json:"length"`             // of the body
	Handover bool           `json:"handover,omitempty"` // the file's descriptor came along, and no body follows
}

// MaxDepth is how deep walks and archives go. Each level holds a descriptor.
const MaxDepth = 200

// StdinWindow is how many bytes of stdin may be under way where it travels as frames: what the guest keeps while the
// command does not read.
const StdinWindow = 256 << 10

// RelayPiece is how much of a connection to loopback is carried at once, in bytes.
const RelayPiece = 32 << 10

// BodyBytes is the size of the pieces that bodies travel in.
const BodyBytes = 128 << 10

// HasInput reports whether the command has a standard input.
func (cmd *Command) HasInput() bool { return cmd.Stdin || cmd.Input != nil }

// AsHello is how a request for Hello begins, and no other.
var AsHello = []byte(`{"op":"hello"`)

// Parse decodes a request. For a Hello it has a smaller type, with the fields that count: what the JSON package keeps
// of a request, of all it can hold, weighs some 45 KiB, and a container that waits for its use gets no other.
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

// DozeName is what the program is called that waits in a guest's place, as its first argument.
const DozeName = "doze"
