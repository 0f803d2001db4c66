package attack

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"berth/proto"
)

// Group 7: ways to fill a disk with little data.

// A filler creates things in $PLACE until the kernel refuses one. It is Python: n counts, and make is one step.
type filler struct{ name, tries, make string }

var fillers = []filler{
	{"empty-files", "make empty files until none can be made", `open(f"{n}", "w").close()`},
	{"symlinks", "make long symbolic links until none can be made", `os.symlink("x" * 1000, f"{n}")`},
	{"hard-links", "make hard links with long names until none can be made",
		`(n % 60000 == 0 and open(f"file{n}", "w").close()); os.link(f"file{n - n % 60000}", f"{n}" + "l" * 200)`},
	{"attributes", "make files with large extended attributes until none can be made",
		`open(f"{n}", "w").close(); os.setxattr(f"{n}", "user.a", b"y" * 2000)`},
}

// quotaBytes is the disk limit of the containers that are filled.
const quotaBytes = 16 << 20

var _ = registerFillers()

// registerFillers registers one case for each filler; all have the same requirements.
func registerFillers() (done struct{}) {
	for _, f := range fillers {
		register(Case{
			Group: 7, Name: "quota/" + f.name, Inside: true, Slow: true,
			Tries: f.tries + ", in the workspace and in the writable layer",
			Wants: "the disk limit stops it, commands go on, all of it can be removed while the disk is full, and " +
				"then there is room again",
			Run: f.run,
		})
	}
	return done
}

// run fills both places, since the workspace and the writable layer have separate limits. 16 MiB can be filled within
// a command's time limit, even by empty files.
func (f filler) run(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: quotaBytes,
		MemoryBytes: 512 << 20}})
	if err != nil {
		return "", err
	}
	// The report shows how many of each fit, which shows what the limit counts.
	var found []string
	for _, place := range []string{"/workspace/fill", "/home/user/fill"} {
		made, err := f.fill(ctx, t, con.ID, place)
		if err != nil {
			return "", err
		}
		if err := emptied(ctx, t, con.ID, place); err != nil {
			return "", err
		}
		found = append(found, fmt.Sprintf("%s refused after %s", place, made))
	}
	return strings.Join(found, ", ") + "; all could be removed", nil
}

// fill runs the filler and checks how it ended. The filler exits with code 7 when the kernel refuses it, which
// distinguishes that from any other end. The daemon must report the disk quota as the reason.
func (f filler) fill(ctx context.Context, t *Target, container, place string) (made string, err error) {
	script := fmt.Sprintf(`mkdir %s && cd %[1]s && exec python3 -c '
import os, sys
n = 0
try:
    while True:
        %s
        n += 1
except OSError as e:
    print(n)
    print(e.strerror, file=sys.stderr)
    sys.exit(7)'`, place, f.make)
	res, err := t.Do(ctx, container, proto.Cmd{Command: script, TimeoutSeconds: 240})
	if err != nil {
		return "", err
	}
	end := res.Exec.End
	switch {
	case end.Reason == proto.EndTimeout:
		return "", Breached("it went on in %s for 240 s", place)
	case end.Reason == proto.EndExit && strings.Contains(res.Result.Result.Stderr, "not supported"):
		return "", &NotHere{"the file system there has none of them"}
	case end.Reason != proto.EndDiskQuota || end.ReturnCode != 7:
		return "", Breached("it ended in %s as %s", place, describe(res))
	}
	return strings.TrimSpace(res.Result.Result.Stdout), nil
}

// emptied removes the content of place while the disk is full, and checks that there is space afterwards. A
// copy-on-write file system needs space even for removing, so its owner may not be able to recover from a full disk.
func emptied(ctx context.Context, t *Target, container, place string) error {
	// Check commands first: if a shell cannot start on a full disk, the owner could not clean up.
	if out, err := t.Output(ctx, container, "", "echo goes on"); err != nil || strings.TrimSpace(out) != "goes on" {
		return Breached("no command runs on a full disk: %q %v", out, err)
	}
	// The removal has its own time limit, generous for the hundreds of thousands of entries that some fillers create.
	began := time.Now()
	a, err := t.ask(ctx, "DELETE", "/v1/containers/"+container+"/fs/content", url.Values{"path": {place},
		"recursive": {"true"}}, nil)
	if err != nil {
		return err
	}
	if a.status/100 != 2 {
		return Breached("it cannot be removed from a full disk: %d %.300s", a.status, a.body)
	}
	if took := time.Since(began); took > 2*time.Minute {
		return Breached("removing it took %v", took)
	}
	// Half of the limit must fit again. This shows that space was freed and not only names.
	const half = `head -c 8M /dev/zero > %[1]s && wc -c < %[1]s && rm %[1]s`
	if out, err := t.Output(ctx, container, "", fmt.Sprintf(half, place)); err != nil ||
		strings.TrimSpace(out) != "8388608" {
		return Breached("there is no room after removing it: %q %v", out, err)
	}
	return nil
}
