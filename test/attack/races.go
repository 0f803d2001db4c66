package attack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Groups 3 and 4: files that are swapped while the daemon uses them. Time of check, time of use (CWE-367): between
// the check and the use of a path, a process in the container changes what it names. A million swaps show more than a
// review of the code.
var _ = register(
	Case{
		Group: 3, Name: "races/file", Inside: true,
		Tries: "swap a file and a link to a file of the container's root, thread against thread, under every verb " +
			"on files and the editor",
		Wants: "no answer shows what only root may read, and root's file is as it was",
		Run: func(ctx context.Context, t *Target) (string, error) {
			return race(ctx, t, "file", func(r *racing) error { return r.everyVerb(ctx, "d", "f") })
		},
	},
	Case{
		Group: 3, Name: "races/directory", Inside: true,
		Tries: "swap a directory on the way to a file for a link to a directory of the container's root, under every verb",
		Wants: "no answer shows what only root may read, and root's directory is as it was",
		Run: func(ctx context.Context, t *Target) (string, error) {
			return race(ctx, t, "directory", func(r *racing) error { return r.everyVerb(ctx, "d", "d/secret") })
		},
	},
	// Manifests are made as root, so the kernel's permissions do not help here.
	Case{
		Group: 3, Name: "races/manifest", Inside: true,
		Tries: "swap a directory of a job for a link to root's while the job's manifest is made as root, its files " +
			"are published and it is archived",
		Wants: "neither names, nor hashes, nor content of root's files come out",
		Run: func(ctx context.Context, t *Target) (string, error) {
			return race(ctx, t, "directory", func(r *racing) error { return r.books(ctx) })
		},
		// rm -r has had this flaw since the nineties: a directory that is entered by name may have been replaced by
		// then.
	},
	Case{
		Group: 4, Name: "races/delete", Inside: true,
		Tries: "swap a directory for a link to another one in the middle of the recursive removal of the tree that it is in",
		Wants: "what the link leads to is never removed",
		Run:   raceDelete,
	},
)

// Paths of a race in a container. Probe and attacker have no connection, so they signal each other through the two
// files.
const (
	raceDir    = proto.WorkspaceDir + "/race" // directory of a job
	rootDir    = "/root/private"
	raceEnough = "/tmp/enough" // created by the probe when it has swapped often enough
	raceStop   = "/tmp/stop"   // created by the attacker when the probe may end
)

// A racing is a container in which a probe swaps files.
type racing struct {
	box
	secret string // content that only the container's root may read
	asked  int    // number of requests
}

// race runs a swapping probe in a container, and calls each repeatedly until the probe has swapped Rounds times. It
// compares root's files before and after, since no answer shows a write through a swapped path.
func race(ctx context.Context, t *Target, kind string, each func(*racing) error) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	r := &racing{box: b, secret: "of-root-alone-" + b.id}
	state := "cat " + rootDir + "/secret; ls -A " + rootDir + "; stat -c '%a %u' " + rootDir + " " + rootDir + "/secret"
	before, err := t.Output(ctx, b.id, proto.UserRoot, "mkdir -p "+rootDir+"; printf "+r.secret+" >"+rootDir+
		"/secret; chmod -R go= "+rootDir+";"+state)
	if err != nil {
		return "", err
	}
	swaps, err := r.against(ctx, "swap", kind, func() error { return each(r) })
	if err != nil {
		return "", err
	}
	after, err := t.Output(ctx, b.id, proto.UserRoot, state)
	if err != nil || before != after {
		return "", Breached("root's files changed from %q to %q %v", before, after, err)
	}
	return fmt.Sprintf("%d requests and %d swaps showed and changed nothing of root's", r.asked, swaps), nil
}

// against runs a probe in the background and calls each repeatedly until the probe has finished its rounds. The probe
// has its own job, so that its manifest is separate from the one that is attacked.
func (r *racing) against(ctx context.Context, probe, kind string, each func() error) (swaps int, err error) {
	if err := r.t.PutProbe(ctx, r.id); err != nil {
		return 0, err
	}
	e, err := r.t.Launch(ctx, r.id, proto.Cmd{Argv: []string{probePath, ProbeCommand, probe, kind,
		strconv.Itoa(r.t.Rounds)}, JobID: "prober", TimeoutSeconds: 580})
	if err != nil {
		return 0, err
	}
	if err := r.untilEnough(ctx, e.ID, each); err != nil {
		return 0, err
	}
	if _, err := r.t.Output(ctx, r.id, "", "touch "+raceStop); err != nil {
		return 0, err
	}
	res, err := r.t.Wait(ctx, r.id, e.ID)
	if err != nil {
		return 0, err
	}
	if res.Result.Result == nil || res.Result.Result.ReturnCode != 0 {
		return 0, fmt.Errorf("the probe did not end well: %s", describe(res))
	}
	return swaps, json.Unmarshal([]byte(res.Result.Result.Stdout), &swaps)
}

// untilEnough calls each at least ten times, and until the probe has swapped enough or has ended. At least ten times,
// since the rounds may be over very quickly.
func (r *racing) untilEnough(ctx context.Context, exec string, each func() error) error {
	for n := 0; ; n++ {
		if err := each(); err != nil {
			return err
		}
		if n < 10 {
			continue
		}
		if _, err := r.t.FS(r.id, proto.UserDefault).Stat(ctx, raceEnough); err == nil {
			return nil
		}
		if e, err := r.t.Exec(ctx, r.id, exec); err != nil || e.State == proto.ExecEnded {
			return err
		}
	}
}

// everyVerb uses each verb once on a directory and on a file below raceDir that are being swapped. It also writes: a
// write that follows the link would put the user's text into root's file.
func (r *racing) everyVerb(ctx context.Context, dir, file string) error {
	for _, v := range verbs {
		path := raceDir + "/" + file
		if v.name == "list" || v.name == "tar" || v.name == "untar" {
			path = raceDir + "/" + dir
		}
		a, err := v.do(ctx, r.box, path)
		if err != nil {
			return err
		}
		if err := r.check(v.name, a); err != nil {
			return err
		}
	}
	return nil
}

// books requests what the daemon does as root in a job's directory. Publishing matters most: stored files outlive the
// container.
func (r *racing) books(ctx context.Context) error {
	for _, what := range []string{"jobs/race/manifest", "jobs/race/tar"} {
		a, err := r.t.ask(ctx, "GET", r.at(what), nil, nil)
		if err != nil {
			return err
		}
		if err := r.check(what, a); err != nil {
			return err
		}
	}
	a, err := r.t.askJSON(ctx, "POST", r.at("jobs/race/publish"), map[string]string{"path": "d/secret"})
	if err != nil {
		return err
	}
	if err := r.check("publishing", a); err != nil || a.status != 201 {
		return err
	}
	var f struct {
		ID string `json:"file_id"`
	}
	if err := json.Unmarshal(a.body, &f); err != nil {
		return err
	}
	a, err = r.t.ask(ctx, "GET", "/v1/files/"+f.ID+"/content", nil, nil)
	if err == nil {
		err = r.check("a published file", a)
	}
	if err != nil {
		return err
	}
	return r.t.DeleteFile(ctx, f.ID)
}

// check returns a Breach if an answer contains root's content, or is an internal error. A manifest contains hashes,
// and the hash of the secret also counts as a leak.
func (r *racing) check(what string, a answer) error {
	r.asked++
	sum := sha256.Sum256([]byte(r.secret))
	if bytes.Contains(a.body, []byte(r.secret)) || bytes.Contains(a.body, []byte(hex.EncodeToString(sum[:]))) {
		return Breached("%s shows what only root may read", what)
	}
	return a.refusedOrDone(what)
}

// raceDelete has no secret. The harm is the removal of other files of the same user, so it counts six of them.
func raceDelete(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const victim = proto.WorkspaceDir + "/victim"
	if _, err := t.Output(ctx, b.id, "", "mkdir -p "+victim+"/deep/er; touch "+victim+"/{1,2,3} "+victim+"/deep/{4,5} "+
		victim+"/deep/er/6"); err != nil {
		return "", err
	}
	r := &racing{box: b}
	swaps, err := r.against(ctx, "swap", "tree", func() error {
		r.asked++
		a, err := t.ask(ctx, "DELETE", b.at("fs/content"), b.query(raceDir, "recursive", "true"), nil)
		if err != nil {
			return err
		}
		return a.refusedOrDone("the removal")
	})
	if err != nil {
		return "", err
	}
	got, err := t.Output(ctx, b.id, "", "find "+victim+" -type f | wc -l")
	if err != nil || got != "6" {
		return "", Breached("%s of the 6 files that a link led to are left; %v", got, err)
	}
	return fmt.Sprintf("%d removals against %d swaps followed no link", r.asked, swaps), nil
}

var _ = addProbe("swap", func(args []string) (any, error) {
	if len(args) != 2 {
		return nil, fmt.Errorf("swap takes a kind and a number, not %q", args)
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(raceDir, 0o755); err != nil {
		return nil, err
	}
	swap := map[string]func() int{"file": swapFile, "directory": swapDirectory, "tree": swapTree}[args[0]]
	deadline := time.Now().Add(raceTime)
	for swaps, n, told := 0, 0, false; ; n++ {
		swaps += swap()
		if !told && (swaps >= rounds || time.Now().After(deadline)) {
			if err := os.WriteFile(raceEnough, nil, 0o644); err != nil {
				return nil, err
			}
			told = true
		}
		if told && n%16 == 0 {
			if _, err := os.Stat(raceStop); err == nil {
				return swaps, nil
			}
		}
	}
})

// raceTime limits the time of a race if swapping is slow. A race that the attacker did not win within that time is no
// proof, but a test cannot wait longer.
const raceTime = 2 * time.Minute

// The swappers return how many times they swapped. They ignore errors, since the other side removes and renames the
// same files.

// swapFile alternately replaces a file by a link and the link by a file. It renames over the name, so that one of the
// two always exists.
func swapFile() int {
	dir := filepath.Join(raceDir, "d")
	_ = os.MkdirAll(dir, 0o755)
	for _, name := range []string{filepath.Join(raceDir, "f"), filepath.Join(dir, "f")} {
		_ = os.Symlink(rootDir+"/secret", name+".link")
		_ = os.Rename(name+".link", name)
		_ = os.WriteFile(name+".file", []byte("there\n"), 0o644)
		_ = os.Rename(name+".file", name)
	}
	return 4
}

// swapDirectory does the same with a directory.
func swapDirectory() int {
	dir := filepath.Join(raceDir, "d")
	_ = os.Mkdir(dir+".dir", 0o755)
	_ = os.WriteFile(dir+".dir/secret", []byte("there\n"), 0o644)
	_ = os.Symlink(rootDir, dir+".link")
	for range 8 { // the two names alternate
		_ = os.Rename(dir+".dir", dir)
		// RENAME_EXCHANGE swaps two names atomically. gVisor does not have it, so the plain renames follow.
		if unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, dir+".link", unix.RENAME_EXCHANGE) == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, dir+".link", unix.RENAME_EXCHANGE)
		}
		_ = os.Rename(dir, dir+".dir")
		_ = os.Rename(dir+".link", dir)
		_ = os.Rename(dir, dir+".link")
	}
	return 16
}

// swapTree creates a tree and replaces a directory in it by a link.
func swapTree() int {
	dir := filepath.Join(raceDir, "a/b/c")
	_ = os.MkdirAll(dir, 0o755)
	for i := range 4 {
		_ = os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644)
	}
	link := filepath.Join(proto.WorkspaceDir, "link")
	_ = os.Symlink(proto.WorkspaceDir+"/victim", link)
	for range 8 {
		// With the exchange, one of the two always exists. The fallback has a moment in which neither does; it is for
		// kernels without the exchange.
		if unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) != nil {
			_ = os.Rename(dir, proto.WorkspaceDir+"/aside")
			_ = os.Rename(link, dir)
			_ = os.Rename(dir, link)
			_ = os.Rename(proto.WorkspaceDir+"/aside", dir)
		}
	}
	return 8
}
