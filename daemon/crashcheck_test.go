package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/state/ledger"
)

// The checks of the crash test after each crash and at the end.

// check compares the worker's records with the daemon's answers. It takes over unacknowledged changes from the
// daemon.
func (w *worker) check(t *testing.T) {
	w.createAgain(t)
	for _, o := range w.own {
		w.checkContainer(t, o)
	}
	w.checkSnapshots(t)
	w.checkKeys(t)
	for id, hash := range w.files {
		status, out, err := w.Do("GET", "/v1/files/"+id+"/content", nil)
		switch {
		case err == nil && status == 404 && w.maybe.deleted[id]:
			delete(w.files, id)
		case err != nil || status != 200 || hashOf(string(out)) != hash:
			t.Errorf("stored file %s is lost: %d %v, %d bytes", id, status, err, len(out))
		}
	}
	for _, path := range w.gone {
		if status, out, err := w.Do("GET", path, nil); err != nil || status != 404 {
			t.Errorf("%s was deleted and answers %d %v %.200s", path, status, err, out)
		}
	}
	w.gone = nil
}

func (w *worker) checkContainer(t *testing.T, o *ownContainer) {
	status, out, err := w.Do("GET", "/v1/containers/"+o.id, nil)
	if err == nil && status == 404 && w.maybe.deleted[o.id] {
		delete(w.own, o.id)
		return
	}
	if err == nil && status == 404 && w.maybe.parted[o.id] {
		w.parted(o)
		return
	}
	var c proto.Container
	if err != nil || status != 200 || json.Unmarshal(out, &c) != nil {
		t.Errorf("container %s is lost: %d %v %s", o.id, status, err, out)
		return
	}
	if c.ExpiresAt.Before(o.expires) {
		t.Errorf("container %s was promised until %v and has %v", o.id, o.expires, c.ExpiresAt)
	}
	if o.generation > 0 && c.Generation != o.generation && !w.stopped[o.id] {
		t.Errorf("container %s was at generation %d, nobody stopped it, and it is at %d", o.id, o.generation,
			c.Generation)
	}
	w.again(t, o)
	w.checkBackground(t, o)
	w.checkContent(t, o)
	w.checkCounting(t, o)
	w.checkExecs(t, o)
}

// checkContent compares a container's files with its books.
func (w *worker) checkContent(t *testing.T, o *ownContainer) {
	text, ok := w.read(t, o, "[ \"$SECRET\" = "+theSecret+" ] || echo no-secret; cat /workspace/tokens 2>/dev/null; "+
		"echo ==; cat /tmp/tokens 2>/dev/null; echo ==; "+counters+
		"; cd /workspace/up 2>/dev/null && ls -A | grep -vx manifest.json | xargs -r sha256sum")
	if !ok {
		return
	}
	part := strings.SplitN(text, "==\n", 5)
	if len(part) != 5 {
		t.Errorf("looking into %s: %q", o.id, text)
		return
	}
	tokens := strings.Fields(part[0])
	w.settleRestore(o, tokens)
	checkTokens(t, o, "workspace", o.tokens, tokens)
	must := map[string]bool{}
	for token := range o.layer {
		must[token] = o.tokens[token]
	}
	checkTokens(t, o, "layer", must, strings.Fields(part[1]))
	if o.counted && !o.counting && !o.maybeCounts { // a running one goes on while the files are read
		checkCounters(t, "container "+o.id, part[2], part[3])
	}
	checkFiles(t, o, part[4])
}

// checkExecs checks that all commands have ended, since all are short, and reads the generation.
func (w *worker) checkExecs(t *testing.T, o *ownContainer) {
	var list struct{ Data []proto.Exec }
	for end := time.Now().Add(30 * time.Second); ; {
		list = call[struct{ Data []proto.Exec }](t, w.server, 200, "GET", "/v1/containers/"+o.id+"/execs", "")
		i := slices.IndexFunc(list.Data, func(x proto.Exec) bool {
			return (x.State == proto.ExecRunning || x.End == nil) && x.Command != counter
		})
		if i < 0 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("exec %s of %s never ends: %+v", list.Data[i].ID, o.id, list.Data[i])
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, x := range list.Data { // contains only the last hundred
		if slices.Contains(o.told, x.ID) && (x.End.Reason != proto.EndExit || x.End.ReturnCode != 0) {
			t.Errorf("exec %s of %s was said to have ended well, and is now said to have ended as %+v", x.ID, o.id,
				x.End)
		}
	}
	o.told = nil
	o.generation = call[proto.Container](t, w.server, 200, "GET", "/v1/containers/"+o.id, "").Generation
}

// checkBackground checks how background commands ended. A command reported as run must have run.
func (w *worker) checkBackground(t *testing.T, o *ownContainer) {
	for token, id := range o.background {
		status, out, err := w.Do("GET", "/v1/containers/"+o.id+"/execs/"+id+"/result?wait_seconds=20", nil)
		var res proto.ExecResult
		if err != nil || status != 200 || json.Unmarshal(out, &res) != nil || res.Exec.End == nil {
			t.Errorf("background exec %s is lost: %d %v %s", id, status, err, out)
			continue
		}
		if res.Exec.End.Reason != proto.EndExit && !w.stopped[o.id] {
			t.Errorf("background exec %s of %s, whose daemon was killed, ended as %+v", id, o.id, res.Exec.End)
		}
		if res.Exec.End.Reason == proto.EndExit && res.Exec.End.ReturnCode == 0 {
			o.tokens[token] = true
			if r := res.Result.Result; r == nil || r.Stdout != spoken {
				t.Errorf("background exec %s has lost its output: %s", id, out)
			}
		}
		delete(o.background, token)
	}
}

// read runs a command that changes nothing.
func (w *worker) read(t *testing.T, o *ownContainer, command string) (string, bool) {
	body, _ := json.Marshal(proto.Cmd{Command: command})
	status, out, err := w.Do("POST", "/v1/containers/"+o.id+"/exec", strings.NewReader(string(body)))
	var res proto.ExecResult
	if err != nil || status != 200 || json.Unmarshal(out, &res) != nil || res.Result.Result == nil {
		t.Errorf("looking into %s: %d %v %s", o.id, status, err, out)
		return "", false
	}
	return res.Result.Result.Stdout, true
}

// checkTokens compares the marks of commands in the workspace or in the layer.
func checkTokens(t *testing.T, o *ownContainer, where string, tokens map[string]bool, found []string) {
	times := map[string]int{}
	for _, token := range found {
		times[token]++
	}
	for token, must := range tokens {
		if n := times[token]; n > 1 || must && n == 0 {
			t.Errorf("container %s: the exec that writes %s ran %d times by its %s; acknowledged: %v", o.id, token, n,
				where, must)
		}
		delete(times, token)
	}
	if len(times) > 0 {
		t.Errorf("the %s of container %s has marks that no command wrote: %v", where, o.id, times)
	}
}

// checkFiles compares the output of sha256sum. After an interrupted write, the file has the complete old or new
// content.
func checkFiles(t *testing.T, o *ownContainer, sums string) {
	have := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(sums), "\n") {
		if hash, name, ok := strings.Cut(line, "  "); ok {
			have[name] = hash
		}
	}
	for name, hashes := range o.files {
		if !slices.Contains(hashes, have[name]) {
			t.Errorf("container %s: file %s has content %.12q, want one of %q", o.id, name, have[name], hashes)
		}
		o.files[name] = []string{have[name]}
		delete(have, name)
	}
	if len(have) > 0 {
		t.Errorf("container %s holds files of nobody: %v", o.id, have)
	}
}

// checkUnknown looks for items in no worker's records. There may be no more than interrupted requests, and they are
// deleted.
func (c *crash) checkUnknown(t *testing.T) {
	creates, uploads, snaps := 0, 0, 0
	known := map[string]bool{}
	for _, w := range c.workers {
		creates, uploads = creates+w.maybe.creates, uploads+w.maybe.uploads
		snaps += w.maybe.snaps
		w.maybe.creates, w.maybe.uploads, w.maybe.snaps = 0, 0, 0
		for id := range w.own {
			known[id] = true
		}
		for id := range w.files {
			known[id] = true
		}
		for id := range w.snaps {
			known[id] = true
		}
	}
	for _, kind := range []struct {
		path string
		max  int
	}{{"/v1/containers?limit=1000", creates}, {"/v1/files?limit=1000", uploads}, {"/v1/snapshots", snaps}} {
		path, _, _ := strings.Cut(kind.path, "?")
		list := call[struct {
			Data []struct{ ID string }
		}](t, c.server, 200, "GET", kind.path, "")
		n := 0
		for _, item := range list.Data {
			if known[item.ID] {
				continue
			}
			n++
			if status, out, err := c.Do("DELETE", path+"/"+item.ID, nil); err != nil || status != 200 {
				t.Errorf("deleting %s: %d %v %s", item.ID, status, err, out)
			}
			c.made = append(c.made, item.ID)
		}
		if n > kind.max {
			t.Errorf("%s: %d without a request; %d requests were cut off", path, n, kind.max)
		}
	}
}

// empty deletes all remaining items of the workers.
func (c *crash) empty(t *testing.T) {
	for _, w := range c.workers {
		for id, o := range w.own {
			call[any](t, c.server, 200, "DELETE", "/v1/containers/"+id, "")
			delete(w.own, id)
			if o.again {
				w.spaces[o.workspace] = o
			}
		}
		for id := range w.files {
			call[any](t, c.server, 200, "DELETE", "/v1/files/"+id, "")
			delete(w.files, id)
		}
		for id := range w.spaces {
			call[any](t, c.server, 200, "DELETE", "/v1/workspaces/"+id, "")
			delete(w.spaces, id)
		}
		for id := range w.snaps {
			call[any](t, c.server, 200, "DELETE", "/v1/snapshots/"+id, "")
			delete(w.snaps, id)
		}
		for id := range w.keys {
			call[any](t, c.server, 200, "DELETE", "/v1/keys/"+id, "")
			delete(w.keys, id)
		}
	}
	call[any](t, c.server, 200, "POST", "/v1/sweep", "")
}

// traces are possible remains of containers, by name.
type traces struct {
	held
	Workspaces, Layers, Bundles, Runtimes, Blobs, Output, Loops int
	Snapshots, Unfinished, Subvolumes                           int
	Deleting                                                    int    // deleted subvolumes whose space is not free yet
	Qgroups                                                     string // those of deleted subvolumes
}

// left counts the remains of all containers ever created.
func (c *crash) left(t *testing.T) traces {
	t.Helper()
	in := filepath.Join("/proc", fmt.Sprint(c.PID()), "root") // the pool is mounted only in the daemon's namespace
	entries := func(parts ...string) int {
		list, err := os.ReadDir(filepath.Join(parts...))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return len(list)
	}
	pool := filepath.Join(in, c.Dir, "runtime", "pool")
	tr := traces{
		held: c.holds(t, c.dead(t)), Workspaces: c.workspaces(t),
		Layers:    entries(pool, "layer") + entries(pool, "kept"),
		Snapshots: entries(pool, "snapshot"), Unfinished: entries(pool, "unfinished"), Subvolumes: c.subvolumes(t),
		Deleting: c.subvolumes(t, "-d"),
		Bundles:  len(c.bundles()),
		Runtimes: entries(c.rundir(), "r", "berth"), Blobs: entries(c.Dir, "files", "blobs"), Output: entries(
			c.Dir, "output"),
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		backing, _ := os.ReadFile(l)
		count(&tr.Loops, bytes.Contains(backing, []byte(c.Dir)))
	}
	tr.Qgroups = c.staleQgroups(t)
	tr.Files, tr.Goroutines = 0, 0 // not comparable, since it is a new process
	return tr
}

// subvolumes counts the subvolumes of the disk pool, of those that are there or of those that are being deleted.
func (c *crash) subvolumes(t *testing.T, which ...string) int {
	t.Helper()
	args := slices.Concat([]string{"-t", fmt.Sprint(c.PID()), "-m", "btrfs", "subvolume", "list"}, which,
		[]string{filepath.Join(c.Dir, "runtime", "pool")})
	list, err := exec.Command("nsenter", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("listing subvolumes: %v %s", err, list)
	}
	return bytes.Count(list, []byte("\n"))
}

// staleQgroups lists qgroups of deleted subvolumes with the kernel's own tool.
func (c *crash) staleQgroups(t *testing.T) string {
	t.Helper()
	pool := filepath.Join(c.Dir, "runtime", "pool")
	in := []string{"-t", fmt.Sprint(c.PID()), "-m"}
	subs, err := exec.Command("nsenter", append(in, "btrfs", "subvolume", "list", pool)...).CombinedOutput()
	if err != nil {
		t.Fatalf("listing subvolumes: %v %s", err, subs)
	}
	groups, err := exec.Command("nsenter", append(in, "btrfs", "qgroup", "show", pool)...).CombinedOutput()
	if err != nil {
		t.Fatalf("listing qgroups: %v %s", err, groups)
	}
	var stale []string
	for _, m := range regexp.MustCompile(`(?m)^0/(\d+)`).FindAllStringSubmatch(string(groups), -1) {
		if m[1] != "5" && !regexp.MustCompile(`(?m)^ID `+m[1]+` `).Match(subs) {
			stale = append(stale, m[1])
		}
	}
	return strings.Join(stale, " ")
}

// checkNothingLeft waits for the kernel's delayed cleanup and then counts.
func (c *crash) checkNothingLeft(t *testing.T, before traces) {
	before.Qgroups, before.Deleting = "", 0 // those whose removal was in progress
	c.awaitWarm(t)
	look := func() traces {
		after := c.left(t)
		if after.Mounts < before.Mounts { // a new daemon has a new mount namespace
			after.Mounts = before.Mounts
		}
		return after
	}
	after := look()
	// the daemon looks after the qgroups of removed subvolumes every 30 s
	for end := time.Now().Add(time.Minute); after != before && time.Now().Before(end); after = look() {
	}
	if after != before {
		t.Errorf("left behind: before %+v, after %+v", before, after)
	}
	c.checkLedger(t)
}

// checkLedger stops the daemon and counts rows that should have been deleted with the containers.
func (c *crash) checkLedger(t *testing.T) {
	c.Stop(syscall.SIGTERM)
	books, err := ledger.Open(filepath.Join(c.Dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	_ = books.View(func(tx *ledger.Tx) error {
		for _, bucket := range []string{"sessions", "workspaces", "execs", "files", "file_owners", "file_due", "blobs",
			"jobs", "job_files", "job_execs", "inputs", "strays", "snapshots"} {
			_ = tx.Scan(bucket, "", func(key string, data []byte) (bool, error) {
				t.Errorf("left in the ledger: %s/%s %.200s", bucket, key, data)
				return true, nil
			})
		}
		return nil
	})
	if err := books.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
}

// uploadFile stores a file through the Files API.
func (s *server) uploadFile(name, content string) (int, []byte, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return 0, nil, err
	}
	if _, err := io.WriteString(part, content); err != nil {
		return 0, nil, err
	}
	if err := form.Close(); err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequest("POST", s.URL+"/v1/files", &body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Api-Key", s.Key)
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("Content-Type", form.FormDataContentType())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	return res.StatusCode, out, err
}
