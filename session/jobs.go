package session

import (
	"context"

	"berth/proto"
)

// Jobs keeps the books of what execs make: inputs before, outputs and the manifest after.
// artifacts.Jobs is the one there is; it is an interface because artifacts stands above
// this package. Its methods are called while the session is in use, so they may use its files. In End and
// Changed that fails once the sandbox was stopped: no entry in a book is worth starting it again.
type Jobs interface {
	// Begin puts stored files into $INPUT_DIR. It fails with the item's name and
	// leaves nothing new behind if one of them cannot be had.
	Begin(ctx context.Context, s *Session, files []string) error
	// End is told of an exec that ended while the guest was still there. It
	// publishes the top-level files of $OUTPUT_DIR and brings the job's manifest up to date. seen is
	// what the guest saw of the job's directory at that end.
	End(ctx context.Context, s *Session, e proto.Exec, stderrTail string, seen Sight) Produced
	// Changed is told of a file that the API wrote or removed at an absolute path;
	// origin is "uploaded" or "edited".
	Changed(ctx context.Context, s *Session, path, origin string)
	// Drop forgets all jobs of a workspace that is being removed.
	Drop(ctx context.Context, workspace string) error
}

// A Sight is what a guest says of a job's directory at the end of an exec.
type Sight struct {
	Gist string // proto.Gist of it; "" where it was not looked at
	// the last element of proto.OutputDir, where the guest gave it another name than the exec's ID and it is still
	// there; else ""
	Output string
}

// Produced is what an exec made.
type Produced struct {
	FileIDs []string // stored files, in the order of their names
	Paths   []string // created or changed in the job's directory, relative to it
	Notes   []string // for the caller: what could not be stored, and why
}
