package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/proto"
)

// Group 5: special files. Group 7: too many files. Opening a FIFO waits for its other end, a device returns data
// forever, and a sparse file may be larger than any disk. Code that opens files of a container must handle all three.
var _ = register(
	// A reader that hangs holds a lock, a connection and a goroutine; a few of them are an outage.
	Case{
		Group: 5, Name: "odd/kinds", Inside: true,
		Tries: "use every verb on FIFOs, sockets, devices, links to /dev/zero, a file of holes of an exbibyte, and " +
			"one that grows",
		Wants: "each answers within seconds, and only regular files are read",
		Run:   oddKinds,
	},
	// Here no client requests the file: the daemon collects outputs by itself and may block itself.
	Case{
		Group: 5, Name: "odd/outputs", Inside: true,
		Tries: "leave the same in $OUTPUT_DIR and in a job",
		Wants: "the command's end is told within seconds, with notes of what was not stored, and the daemon's " +
			"memory stays where it was",
		Run: oddOutputs,
	},
	// Lists and manifests grow with the files in a container. Each needs a limit, and must report when it is reached.
	Case{
		Group: 7, Name: "many/files", Inside: true,
		Tries: "fill a job with tens of thousands of files and directories",
		Wants: "commands, lists, the manifest, archives and removal go on, bounded and marked as truncated",
		Run:   manyFiles,
	},
	// Recursion is limited by the stack, and a path by 4096 bytes. Code that walks by path can neither see nor remove
	// such a tree.
	Case{
		Group: 7, Name: "many/deep", Inside: true,
		Tries: "make a tree of 10,000 directories, one in the other",
		Wants: "it is listed, archived or refused by name, and can be removed",
		Run:   deepTree,
	},
	// On a full disk, a partial file often replaces a complete one.
	Case{
		Group: 7, Name: "many/disk-full", Inside: true,
		Tries: "upload more than the container's disk limit, as a file and by the editor",
		Wants: "quota_exceeded, nothing half-done is left, and there is room again after removing something",
		Run:   diskFull,
	},
)

// makeOdd creates oddNames. Those that are regular files may be read to any length. It first tries the largest size
// of the file system. The growing file grows in the background until its container is deleted.
const makeOdd = `mkfifo fifo; ln -s /dev/zero zero; ln -s /dev/full full; ln -s fifo tofifo; ln -s /dev/tty tty; ln -s /proc/self/fd/0 fd
truncate -s 1E holes 2>/dev/null || truncate -s 1P holes 2>/dev/null || truncate -s 7T holes
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")' 2>/dev/null
: >grows; (while :; do echo more >>grows; done) >/dev/null 2>&1 </dev/null &
ls`

// patience is the time limit for one answer. It is far above what any of these takes, and far below the time limit of
// a test.
const patience = 30 * time.Second

// promptly returns a Breach if a verb takes longer than patience. The answer is what has come by then.
func (b box) promptly(ctx context.Context, v verb, path string) (answer, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := v.do(limited, b, path)
	if limited.Err() != nil && ctx.Err() == nil {
		return a, Breached("%s of %s did not answer within %v", v.name, path, patience)
	}
	return a, err
}

// oddKinds uses each verb that does not move or remove the file.
func oddKinds(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	names, err := t.Output(ctx, b.id, "", "mkdir -p /workspace/odd && cd /workspace/odd && "+makeOdd)
	if err != nil {
		return "", err
	}
	tried := 0
	for name := range strings.FieldsSeq(names) {
		for _, v := range verbs {
			if v.replacing() || name == "holes" && (v.name == "read" || v.name == "tar") {
				continue // returns zeros until the client disconnects, as it should
			}
			a, err := b.promptly(ctx, v, "/workspace/odd/"+name)
			if err != nil {
				return "", err
			}
			if err := a.refusedOrDone(v.name + " of " + name); err != nil {
				return "", err
			}
			// A growing file may be read to its size at the beginning. The others have no end, or no content of their
			// own.
			if name != "holes" && name != "grows" && name != "fd" && v.name == "read" && a.status < 400 {
				return "", Breached("%s, which is no regular file, was read: %d", name, a.status)
			}
			tried++
		}
	}
	return fmt.Sprintf("%d requests were answered in time", tried), t.alive(ctx, b.id)
}

// oddOutputs creates the same kinds of files where the daemon collects outputs after a command.
func oddOutputs(ctx context.Context, t *Target) (string, error) {
	before, err := t.residentBytes(ctx)
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	began := time.Now()
	res, err := t.Do(ctx, con.ID, proto.Cmd{Command: "mkdir job; (cd job; " + makeOdd + "); cd $OUTPUT_DIR; echo " +
		"fine >fine; " + makeOdd, TimeoutSeconds: 60})
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	defer t.closeFiles(ctx, res)
	notes := strings.Join(res.Notes, "\n")
	r := res.Result.Result
	switch {
	case r == nil || r.ReturnCode != 0:
		return "", Breached("it was told as: %s", describe(res))
	case took > patience:
		return "", Breached("its end took %v", took)
	// The notes tell a user why an output is missing.
	case !strings.Contains(notes, "holes"):
		return "", Breached("nothing is said of the file of holes: %q", notes)
	case len(r.Content) == 0 || len(r.Content) > 3:
		return "", Breached("%d files were stored", len(r.Content))
	}
	if _, err := t.Manifest(ctx, con.ID, res.Exec.JobID); err != nil {
		return "", Breached("there is no manifest: %v", err)
	}
	after, err := t.residentBytes(ctx)
	if err != nil {
		return "", err
	}
	if after > before+maxGrowth {
		return "", Breached("the daemon grew from %d to %d MiB", before>>20, after>>20)
	}
	return fmt.Sprintf("told after %.1f s, %d files stored; %s", took.Seconds(), len(r.Content), notes), nil
}

// closeFiles removes the stored files of a result at the end of the case. They do not belong to a container, so they
// would stay.
func (t *Target) closeFiles(ctx context.Context, res proto.ExecResult) {
	if res.Result.Result == nil {
		return
	}
	for _, f := range res.Result.Result.Content {
		_ = t.DeleteFile(ctx, f.FileID)
	}
}

// manyFiles measures a small command among many files: its outputs must be found without walking through all of them.
func manyFiles(ctx context.Context, t *Target) (string, error) {
	files := 300_000
	if t.Quick {
		files = 12_000
	}
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf("mkdir -p /workspace/many/dirs; cd /workspace/many; seq %d | xargs touch; cd dirs; seq %d "+
		"| xargs mkdir", files, files/10)
	if _, err := t.Output(ctx, b.id, "", script); err != nil {
		return "", err
	}
	began := time.Now()
	res, err := t.Do(ctx, b.id, proto.Cmd{Command: "echo out >$OUTPUT_DIR/out", JobID: "many", TimeoutSeconds: 60})
	if err != nil {
		return "", err
	}
	defer t.closeFiles(ctx, res)
	// The one output has its own directory and must be found regardless of other files.
	if r := res.Result.Result; r == nil || len(r.Content) != 1 {
		return "", Breached("a command's output got lost among them: %s %q", describe(res), res.Notes)
	}
	took := time.Since(began)
	if took > 2*patience {
		return "", Breached("a command among %d files took %v", files, took)
	}
	// A truncated list must say so, or it would be taken as complete.
	if m, err := t.Manifest(ctx, b.id, "many"); err != nil || !m.Truncated {
		return "", Breached("the manifest of %d files is not marked as truncated: %v", files, err)
	}
	for _, what := range []string{"fs/list", "fs/tar"} {
		a, err := t.ask(ctx, "GET", b.at(what), b.query("/workspace/many"), nil)
		if err != nil || a.status != 200 {
			return "", Breached("%s of many files: %d %v", what, a.status, err)
		}
	}
	a, err := t.ask(ctx, "DELETE", b.at("fs/content"), b.query("/workspace/many", "recursive", "true"), nil)
	if err != nil || a.status != 200 {
		return "", Breached("they cannot be removed: %d %.200s %v", a.status, a.body, err)
	}
	return fmt.Sprintf("a command among %d files took %.1f s", files, took.Seconds()), t.alive(ctx, b.id)
}

var _ = addProbe("deep", func(args []string) (any, error) { return makeDeep("/workspace/deep", 10_000) })

// deepTree creates the tree inside, deeper than a path can name.
func deepTree(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	var depth int
	if err := t.Probe(ctx, b.id, "", "deep", &depth); err != nil {
		return "", err
	}
	for _, v := range verbs {
		if v.writes {
			continue
		}
		a, err := b.promptly(ctx, v, "/workspace/deep")
		if err != nil {
			return "", err
		}
		if err := a.refusedOrDone(v.name); err != nil {
			return "", err
		}
	}
	if _, err := t.Output(ctx, b.id, "", "cd /workspace/deep && echo x >f"); err != nil {
		return "", Breached("no command runs above it: %v", err)
	}
	// The directory is the job's, so that the manifest is made of that tree.
	res, err := t.Do(ctx, b.id, proto.Cmd{Command: "echo x >g", JobID: "deep", TimeoutSeconds: 60})
	if err != nil || res.Result.Result == nil {
		return "", Breached("no command runs in it: %v", err)
	}
	limited, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	a, err := t.ask(limited, "DELETE", b.at("fs/content"), b.query("/workspace/deep", "recursive", "true"), nil)
	if err != nil || a.status != 200 {
		return "", Breached("it cannot be removed: %d %.200s %v", a.status, a.body, err)
	}
	return fmt.Sprintf("a tree of %d directories was made, looked at and removed", depth), t.alive(ctx, b.id)
}

// diskFull compares the free space before and after a removal.
func diskFull(ctx context.Context, t *Target) (string, error) {
	const disk = 32 << 20
	b, err := t.box(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: disk}})
	if err != nil {
		return "", err
	}
	fs := t.FS(b.id, proto.UserDefault)
	_, err = fs.Write(ctx, "/workspace/large", 0, endless(3*disk), 3*disk)
	if happened, err := Refused(err, proto.QuotaExceeded); err != nil {
		return "", fmt.Errorf("an upload of %d MiB: %w (%s)", 3*disk>>20, err, happened)
	}
	// The daemon's temporary files have names that begin with this.
	left, err := t.Output(ctx, b.id, "", "cd /workspace; find . -name '*large*' -o -name '.berth?*'")
	if err != nil || left != "" {
		return "", Breached("the upload left %q %v", left, err)
	}
	// The container itself fills the disk; then the editor has no space for a copy.
	if _, err := t.Output(ctx, b.id, "", "cd /workspace; head -c 80M /dev/urandom >filler 2>/dev/null; echo old "+
		">kept 2>/dev/null; true"); err != nil {
		return "", err
	}
	a, err := editor("create", map[string]any{"file_text": strings.Repeat("new ", 300_000)})(ctx, b, "/workspace/kept")
	if err != nil {
		return "", err
	}
	if err := a.refusedOrDone("an edit on a full disk"); err != nil {
		return "", err
	}
	if _, err := t.Output(ctx, b.id, "",
		"rm /workspace/filler; cd /workspace; test -z \"$(find . -name '.berth?*')\""); err != nil {
		return "", Breached("something is left of it: %v", err)
	}
	if _, err := fs.Write(ctx, "/workspace/small", 0, strings.NewReader("x"), 1); err != nil {
		return "", Breached("there is no room after the large file was removed: %v", err)
	}
	return "refused with quota_exceeded; nothing is left of it, and there is room again", nil
}
