package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/proto"
)

// Snapshots, restores and forks in the crash test. Their books are copies of a container's books.

// maxSnapshots is the maximum number of snapshots of one worker.
const maxSnapshots = 2

// A books says what a container's files must be, and may be.
type books struct {
	tokens  map[string]bool     // by token: whether it must exist; it may exist once at most
	layer   map[string]bool     // the tokens that belong into its layer, too
	files   map[string][]string // by name: the possible hashes; "" means no file
	counted bool                // its workspace and its layer have had a counter
}

func newBooks() books {
	return books{tokens: map[string]bool{}, layer: map[string]bool{}, files: map[string][]string{}}
}

func (b books) clone() books {
	files := map[string][]string{}
	for name, hashes := range b.files {
		files[name] = slices.Clone(hashes)
	}
	return books{maps.Clone(b.tokens), maps.Clone(b.layer), files, b.counted}
}

// A restored is what becomes of a container when an interrupted restore is in effect. Its own books have the mark of a
// command that ran before the request, which tells the two sides apart.
type restored struct {
	books
	mark string
}

// A counter is a loop that appends the next number to a file in the workspace and then to one in the layer. The lock
// makes a second start harmless.
const counter = "exec 9>/tmp/counter.lock; flock -n 9 || exit 0; " +
	"i=$(tail -qn1 /workspace/counter $HOME/counter 2>/dev/null | sort -n | tail -n1); i=${i:-0}; " +
	"while :; do i=$((i+1)); echo $i >>/workspace/counter; echo $i >>$HOME/counter; sleep 0.01; done"

// counters prints the last numbers of both files.
const counters = "tail -n1 /workspace/counter 2>/dev/null; echo ==; tail -n1 $HOME/counter 2>/dev/null; echo =="

// checkCounters compares what counters printed. Both files are written in turn, so as of one moment they differ by one
// at most.
func checkCounters(t *testing.T, what, workspace, layer string) {
	n, _ := strconv.Atoi(strings.TrimSpace(workspace))
	m, _ := strconv.Atoi(strings.TrimSpace(layer))
	if n-m > 1 || m-n > 1 {
		t.Errorf("%s: its workspace is as of %d and its layer as of %d", what, n, m)
	}
}

// count starts the container's counter, and reports whether it certainly runs.
func (w *worker) count(t *testing.T, o *ownContainer) bool {
	if o.counting {
		return true
	}
	var res proto.ExecResult
	// Both files begin with the same number: a counter may have been killed between them, and a kept workspace comes
	// without the layer.
	level := "i=$(tail -n1 /workspace/counter 2>/dev/null); echo ${i:-0} >>/workspace/counter; " +
		"echo ${i:-0} >>$HOME/counter"
	body, _ := json.Marshal(map[string]any{"command": level})
	if o.maybeCounts || !w.request(t, 200, "POST", "/v1/containers/"+o.id+"/exec", string(body), &res) ||
		!w.ran(t, res) {
		return false
	}
	o.counted = true
	body, _ = json.Marshal(map[string]any{"command": counter, "background": true})
	var x proto.Exec
	o.counting = w.request(t, 202, "POST", "/v1/containers/"+o.id+"/exec", string(body), &x)
	o.maybeCounts = !o.counting
	return o.counting
}

// checkCounting checks that the counter goes on.
func (w *worker) checkCounting(t *testing.T, o *ownContainer) {
	if !o.counting || w.stopped[o.id] {
		return
	}
	text, ok := w.read(t, o, "n=$(wc -l </workspace/counter); for i in $(seq 2000); do "+
		"[ $(wc -l </workspace/counter) -gt $((n+2)) ] && echo goes on && break; sleep 0.01; done")
	if ok && text != "goes on\n" {
		t.Errorf("container %s does not go on counting", o.id)
	}
}

// endCounter records that the container's processes were to end, and whether they certainly have.
func (o *ownContainer) endCounter(certain bool) {
	o.counting, o.maybeCounts = false, !certain && (o.counting || o.maybeCounts)
}

// snapshot takes a snapshot, or deletes one if the worker has enough.
func (w *worker) snapshot(t *testing.T, o *ownContainer) {
	if len(w.snaps) == maxSnapshots {
		w.deleteSnapshot(t)
		return
	}
	if !w.count(t, o) {
		return
	}
	var s proto.Snapshot
	had := o.clone()
	if !w.request(t, 201, "POST", "/v1/containers/"+o.id+"/snapshots", "{}", &s) {
		w.maybe.snaps++
		return
	}
	w.snaps[s.ID] = had
}

func (w *worker) deleteSnapshot(t *testing.T) {
	for id := range w.snaps {
		w.maybe.deleted[id] = true
		if w.request(t, 200, "DELETE", "/v1/snapshots/"+id, "", nil) {
			delete(w.snaps, id)
			w.gone = append(w.gone, "/v1/snapshots/"+id)
		}
		return
	}
}

// restore gives a container the files of a snapshot.
func (w *worker) restore(t *testing.T, o *ownContainer) {
	for id, had := range w.snaps {
		token, command := w.token(o)
		var res proto.ExecResult
		if !w.request(t, 200, "POST", "/v1/containers/"+o.id+"/exec", fmt.Sprintf(`{"command":%q}`, command), &res) {
			return
		}
		o.tokens[token] = w.ran(t, res)
		w.stopped[o.id] = true
		after := &restored{had.clone(), token}
		done := w.request(t, 200, "POST", "/v1/containers/"+o.id+"/restore", fmt.Sprintf(`{"snapshot":%q}`, id), nil)
		if o.endCounter(done); !done {
			o.restored = after
			return
		}
		o.books = after.books
		clear(o.background)
		return
	}
}

// fork makes copies of a container.
func (w *worker) fork(t *testing.T, o *ownContainer) {
	count := 1 + w.rnd.IntN(maxOwn)
	if count += len(w.own); count > maxOwn {
		count = maxOwn
	}
	if count -= len(w.own); count == 0 || !w.count(t, o) {
		return
	}
	had := o.clone()
	var made struct{ Data []proto.Container }
	if !w.request(t, 201, "POST", "/v1/containers/"+o.id+"/fork", fmt.Sprintf(`{"count":%d}`, count), &made) {
		w.maybe.creates += count
		return
	}
	if len(made.Data) != count {
		t.Errorf("%d forks, want %d", len(made.Data), count)
	}
	for _, fork := range made.Data {
		w.adopt(fork).books = had.clone()
	}
}

// settleRestore takes over the side on which a container is after an interrupted restore. The checks then hold both its
// workspace and its layer against that side's books.
func (w *worker) settleRestore(o *ownContainer, tokens []string) {
	if o.restored != nil && !slices.Contains(tokens, o.restored.mark) {
		o.books = o.restored.books
		clear(o.background)
	}
	o.restored = nil
}

// checkSnapshots checks that the worker's snapshots exist, with the content that was acknowledged before.
func (w *worker) checkSnapshots(t *testing.T) {
	for id, had := range w.snaps {
		status, out, err := w.Do("GET", "/v1/snapshots/"+id, nil)
		if err == nil && status == 404 && w.maybe.deleted[id] {
			delete(w.snaps, id)
			continue
		}
		if err != nil || status != 200 {
			t.Errorf("snapshot %s is lost: %d %v %s", id, status, err, out)
			continue
		}
		body := strings.TrimSuffix(w.wanted(), "}") + fmt.Sprintf(`,"snapshot":%q}`, id)
		o := w.adopt(call[proto.Container](t, w.server, 201, "POST", "/v1/containers", body))
		o.books = had.clone()
		w.checkContent(t, o)
		call[any](t, w.server, 200, "DELETE", "/v1/containers/"+o.id, "")
		delete(w.own, o.id)
	}
}
