// Package wire has the messages between the daemon and its builder program, which runs one build each time. The
// daemon writes a Job to the builder's standard input and keeps that pipe open; when it closes, the builder ends. The
// builder writes one Event as a line of JSON for each step of its progress to standard output. On the build's socket,
// the daemon serves HTTP to it: the paths below. The daemon's end is package build; the builder is a module of its own.
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Paths of the daemon's HTTP server. Bodies and answers are JSON, but for the answer to PathStep, which is frames, and
// to PathProxy, which is a tunnel. An error is a status of 400 or above with a proto.Error.
const (
	PathImage = "/image" // Wanted to Found: have an image, from a registry if need be
	PathStep  = "/step"  // Step to frames: run a command over file systems
	PathProxy = "/proxy" // connects to the proxy of the build's network
	PathDone  = "/done"  // Built: name the image
)

// A Job is what the builder is to do.
type Job struct {
	Owner      string `json:"owner"`      // whose cache it is; part of the names of leases
	Root       string `json:"root"`       // directory of that cache
	Containerd string `json:"containerd"` // socket of containerd's services
	Daemon     string `json:"daemon"`     // socket of the daemon's HTTP server
	Namespace  string `json:"namespace"`  // of containerd
	Snapshots  string `json:"snapshots"`  // containerd's snapshotter
	Context    string `json:"context"`    // path of the context: a tar without compression
	Scratch    string `json:"scratch"`    // a directory for this build alone

	Dockerfile string            `json:"dockerfile"` // path in the context
	Target     string            `json:"target,omitempty"`
	Args       map[string]string `json:"args,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	NoCache    bool              `json:"no_cache,omitempty"`
	// Secrets are what the builder gives BuildKit for each secret, by ID: a word that stands for it. The builder never
	// has the secret itself; the daemon puts it in the place of the word when a step starts.
	Secrets map[string]string `json:"secrets,omitempty"`

	KeepBytes   int64 `json:"keep_bytes"`   // most bytes of the cache after the build
	KeepSeconds int64 `json:"keep_seconds"` // parts of the cache that were not used for so long go
	Parallel    int64 `json:"parallel"`     // steps at once
}

// An Event is one step of progress. One field is set.
type Event struct {
	Vertex  *Vertex `json:"vertex,omitempty"`
	Status  *Status `json:"status,omitempty"`
	Log     *Log    `json:"log,omitempty"`
	Warning string  `json:"warning,omitempty"`
	Cache   *Cache  `json:"cache,omitempty"`
	Failed  *Failed `json:"failed,omitempty"` // the last event of a build that failed
}

// A Vertex is a step of the build.
type Vertex struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Began  bool   `json:"began,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Cached bool   `json:"cached,omitempty"`
	Millis int64  `json:"ms,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A Status is the progress of a part of a step, in bytes.
type Status struct {
	Vertex string `json:"vertex"`
	Item   string `json:"item"`
	Done   int64  `json:"done"`
	Total  int64  `json:"total,omitempty"`
}

// A Log is output of a step.
type Log struct {
	Vertex string `json:"vertex"`
	Stream int    `json:"stream"` // 1 is stdout, 2 stderr
	Data   []byte `json:"data"`
}

// Cache says how large the owner's cache is after a build, and what pruning took out of it.
type Cache struct {
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
	Pruned  int64 `json:"pruned,omitempty"` // bytes
}

// Failed says why a build failed.
type Failed struct {
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"` // of the Dockerfile
	Code    int    `json:"code,omitempty"` // exit status of a step's command
	// Code of the daemon's own error, if it was the cause
	Cause string `json:"cause,omitempty"`
}

// Wanted names an image.
type Wanted struct {
	Ref string `json:"ref"` // in full
}

// Found is a stored image.
type Found struct {
	Digest    string `json:"digest"`
	MediaType string `json:"media_type"`
	Size      int64  `json:"size"`
}

// Built is the result of a build, in containerd's content store.
type Built struct {
	Digest    string `json:"digest"`
	MediaType string `json:"media_type"`
	Size      int64  `json:"size"`
}

// A Tree is a file system that a step sees.
type Tree struct {
	Target   string   `json:"target"`             // path inside; "/" for the root
	Selector string   `json:"selector,omitempty"` // the part of the tree that is mounted, as a path in it
	ReadOnly bool     `json:"read_only,omitempty"`
	Dir      string   `json:"dir,omitempty"`    // a directory or file of the host; or an overlay:
	Lowers   []string `json:"lowers,omitempty"` // topmost first
	Upper    string   `json:"upper,omitempty"`
	Work     string   `json:"work,omitempty"`
	Memory   int64    `json:"memory,omitempty"` // a file system in memory of so many bytes instead
	Secret   *Secret  `json:"secret,omitempty"` // a file in memory instead
}

// A Secret is a file that a step sees and that is never on disk.
type Secret struct {
	Word string `json:"word"` // of the Job
	UID  uint32 `json:"uid"`  // owner, as the step sees it
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // permission bits
	Data []byte `json:"-"`    // its content, which the daemon knows
}

// A Step is one command of a Dockerfile with the file systems that it sees; the first is its root.
type Step struct {
	Trees     []Tree   `json:"trees"`
	Argv      []string `json:"argv"`
	Env       []string `json:"env"`
	Dir       string   `json:"dir"`
	User      string   `json:"user"` // as in a Dockerfile: name or number, and a group
	NoNetwork bool     `json:"no_network,omitempty"`
}

// Kinds of frames in the answer to a Step.
const (
	FrameStdout byte = 1
	FrameStderr byte = 2
	FrameExit   byte = 3 // an Exit; the last frame
)

// Exit is how a step ended. Error is set if it never ran, or was ended.
type Exit struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
	Cause string `json:"cause,omitempty"` // proto.Code of the error
}

// maxFrame bounds the content of a frame, in bytes.
const maxFrame = 1 << 20

// WriteFrame writes one frame.
func WriteFrame(w io.Writer, kind byte, data []byte) error {
	head := make([]byte, 5, 5+len(data))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(data)))
	_, err := w.Write(append(head, data...))
	return err
}

// ReadFrame reads one frame.
func ReadFrame(r io.Reader) (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", n)
	}
	data = make([]byte, n)
	_, err = io.ReadFull(r, data)
	return head[0], data, err
}
