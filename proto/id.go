package proto

import (
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/google/uuid"
)

// The kinds of ID. The part before the first underscore names the kind, the rest
// is opaque and base62.
const (
	ContainerPrefix = "container_"
	WorkspacePrefix = "workspace_"
	LayerPrefix     = "layer_"
	FilePrefix      = "file_"
	JobPrefix       = "job_"
	ExecPrefix      = "exec_"
	RequestPrefix   = "req_"
	BuildPrefix     = "build_"
	SnapshotPrefix  = "snapshot_"
	CallPrefix      = "call_" // of a call of a tool by code
	RunPrefix       = "run_"  // of a run of a stored tool
	AskPrefix       = "net_"  // of a connection that waits for approval
	OncePrefix      = "once_" // of an idempotency key that a client of ours makes and uses for a minute at most
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// idDigits is the length of 128 bits in base62.
const idDigits = 22

// machine is the number of this machine among all that make IDs, 0 to 65535. There is one machine, so it is 0.
const machine uint16 = 0

// NewID makes an ID of the given kind. Its first 48 bits are the time in milliseconds, and the next bits grow within
// one process, so IDs sort by the time they were made. Its last 16 bits are the number of the machine, so two machines
// never make the same ID. 46 bits between them are random.
func NewID(prefix string) string { return newID(prefix, machine) }

func newID(prefix string, machine uint16) string {
	bits := uuid.Must(uuid.NewV7()) // fails only if the kernel has no random numbers
	binary.BigEndian.PutUint16(bits[14:], machine)
	return ID(prefix, bits)
}

// ID writes 128 bits as prefix plus 22 base62 digits. IDs made from time-ordered
// bits (UUID version 7) sort by the time they were made; NewID makes them.
func ID(prefix string, number [16]byte) string {
	const base = uint64(len(base62))
	high, low := binary.BigEndian.Uint64(number[:8]), binary.BigEndian.Uint64(number[8:])
	id := make([]byte, len(prefix)+idDigits)
	copy(id, prefix)
	for i := len(id) - 1; i >= len(prefix); i-- {
		var digit uint64
		high, digit = high/base, high%base
		low, digit = bits.Div64(digit, low, base)
		id[i] = base62[digit]
	}
	return string(id)
}

// ValidID reports whether id has the form that ID makes for this prefix. What is not
// valid cannot exist, so it is never looked up and never becomes part of a path.
func ValidID(prefix, id string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != idDigits {
		return false
	}
	for i := 0; i < len(rest); i++ {
		if !isAlnum(rest[i]) {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// InputsDir is the name below /workspace where uploads land; no job may have it.
const InputsDir = "inputs"

// maxJobID bounds a job's name, in bytes; it becomes a directory's.
const maxJobID = 64

// JobIDRule is what ValidJobID takes, for errors. Shells and contexts are named by the same rule.
const JobIDRule = `use 1 to 64 letters, digits, '-' and '_', beginning with a letter or digit; "` + InputsDir +
	`" is reserved`

// ValidJobID reports whether id may name a job: 1 to 64 letters, digits, '-' and '_',
// beginning with a letter or digit, and not "inputs".
func ValidJobID(id string) bool {
	if id == "" || len(id) > maxJobID || id == InputsDir || !isAlnum(id[0]) {
		return false
	}
	for i := 1; i < len(id); i++ {
		if c := id[i]; !isAlnum(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// MaxRetryKey bounds an idempotency key, in bytes.
const MaxRetryKey = 255

// ValidRetryKey reports whether key may be an idempotency key: printable ASCII, or empty, which is none.
func ValidRetryKey(key string) bool {
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(key) <= MaxRetryKey
}

// Paths inside a container.
const (
	WorkspaceDir = "/workspace"
	InputDir     = WorkspaceDir + "/" + InputsDir // $INPUT_DIR
)

// JobDir is the directory of a job, and the working directory of its execs.
func JobDir(job string) string { return WorkspaceDir + "/" + job }

// OutputDir is the $OUTPUT_DIR of an exec. Its last element is the ID of the exec.
func OutputDir(job, exec string) string { return JobDir(job) + "/" + OutputsName + "/" + exec }

// OutputsName is the directory in a job's directory that has the $OUTPUT_DIR of each exec. Patterns such as * do not
// match it.
const OutputsName = ".outputs"

// OwnDir has the files of ours in a workspace. No job can have its name.
const OwnDir = WorkspaceDir + "/.berth"

// ManifestPath is the copy of a job's manifest in the container.
func ManifestPath(job string) string { return OwnDir + "/" + job + ".json" }
