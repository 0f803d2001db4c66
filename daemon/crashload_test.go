package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/proto"
)

// Further operations of the crash test's workers: requests with idempotency keys, kept workspaces and API keys.

// A pending is an interrupted request with an idempotency key. It is repeated after the crash.
type pending struct{ path, body, token string }

// keyed runs a command with an idempotency key, so that repeated requests run it once.
func (w *worker) keyed(t *testing.T, o *ownContainer) {
	token, command := w.token(o)
	p := pending{"/v1/containers/" + o.id + "/exec", fmt.Sprintf(`{"command":%q,"idempotency_key":%q}`, command, token),
		token}
	var res proto.ExecResult
	if !w.request(t, 200, "POST", p.path, p.body, &res) {
		o.pending = append(o.pending, p)
		return
	}
	o.tokens[token] = w.ran(t, res)
}

// again repeats interrupted requests, and repeats answered ones once more. Exactly one command must have run, or none
// if the container was stopped.
func (w *worker) again(t *testing.T, o *ownContainer) {
	for _, p := range o.pending {
		first, second := w.ask(t, p), w.ask(t, p)
		if first.Exec.ID == "" || first.Exec.ID != second.Exec.ID || first.Exec.End == nil ||
			*first.Exec.End != *second.Exec.End {
			t.Errorf("asked again with a key: %+v, then %+v", first.Exec, second.Exec)
			continue
		}
		if end := first.Exec.End; end.Reason == proto.EndExit && end.ReturnCode == 0 {
			o.tokens[p.token] = true
		} else if end.Reason != proto.EndLost && !w.stopped[o.id] {
			t.Errorf("a command with a key ended as %+v", end)
		}
	}
	o.pending = nil
}

func (w *worker) ask(t *testing.T, p pending) (res proto.ExecResult) {
	status, out, err := w.Do("POST", p.path, strings.NewReader(p.body))
	if err != nil || status != 200 || json.Unmarshal(out, &res) != nil {
		t.Errorf("%s again: %d %v %s", p.path, status, err, out)
	}
	return res
}

// createOnce creates a container with an idempotency key. A repetition after a crash returns the same container or
// creates it.
func (w *worker) createOnce(t *testing.T) {
	body := strings.TrimSuffix(w.wanted(), "}") + fmt.Sprintf(`,"idempotency_key":"c%x"}`, w.rnd.Uint64())
	var made proto.Container
	if w.request(t, 201, "POST", "/v1/containers", body, &made) {
		w.adopt(made)
		return
	}
	w.creates = append(w.creates, body)
}

func (w *worker) createAgain(t *testing.T) {
	for _, body := range w.creates {
		first := call[proto.Container](t, w.server, 201, "POST", "/v1/containers", body)
		second := call[proto.Container](t, w.server, 201, "POST", "/v1/containers", body)
		if first.ID != second.ID {
			t.Errorf("a container with a key was made twice: %s and %s", first.ID, second.ID)
		}
		w.adopt(first)
	}
	w.creates = nil
}

// part deletes a container and keeps its workspace for another one.
func (w *worker) part(t *testing.T, o *ownContainer) {
	w.maybe.parted[o.id] = true
	if w.request(t, 200, "DELETE", "/v1/containers/"+o.id+"?keep_workspace=true", "", nil) {
		w.parted(o)
	}
}

func (w *worker) parted(o *ownContainer) {
	delete(w.own, o.id)
	w.spaces[o.workspace] = o
	w.gone = append(w.gone, "/v1/containers/"+o.id)
}

// rejoin creates a container with a kept workspace. After an interrupted request the container may exist. It is then
// deleted as unknown, and the workspace stays.
func (w *worker) rejoin(t *testing.T) {
	for _, o := range w.spaces {
		var made proto.Container
		body := strings.TrimSuffix(w.wanted(), "}") + fmt.Sprintf(`,"workspace_id":%q}`, o.workspace)
		if !w.request(t, 201, "POST", "/v1/containers", body, &made) {
			w.maybe.creates++
			return
		}
		delete(w.spaces, o.workspace)
		n := w.adopt(made)
		n.tokens, n.files, n.again = o.tokens, o.files, true
		return
	}
}

// checkSpaces checks that exactly the kept workspaces exist.
func (c *crash) checkSpaces(t *testing.T) {
	var want, have []string
	for _, w := range c.workers {
		want = slices.AppendSeq(want, maps.Keys(w.spaces))
		for _, o := range w.own {
			want = append(want, o.workspace)
		}
	}
	for _, s := range call[struct{ Data []struct{ ID string } }](t, c.server, 200, "GET", "/v1/workspaces", "").Data {
		have = append(have, s.ID)
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		t.Errorf("workspaces: have %v, want %v", have, want)
	}
}

// turnKeys creates or revokes an API key.
func (w *worker) turnKeys(t *testing.T) {
	for id, secret := range w.keys {
		w.maybe.deleted[id] = true
		if w.request(t, 200, "DELETE", "/v1/keys/"+id, "", nil) {
			delete(w.keys, id)
			w.revoked = append(w.revoked, secret)
		}
		return
	}
	var made proto.NewKey
	if w.request(t, 201, "POST", "/v1/keys", `{"owner":"crash"}`, &made) {
		w.keys[made.ID] = made.Secret
	}
}

// checkKeys checks that API keys are in the acknowledged state.
func (w *worker) checkKeys(t *testing.T) {
	for id, secret := range w.keys {
		status := w.statusAs(t, secret)
		if status == http.StatusUnauthorized && w.maybe.deleted[id] {
			delete(w.keys, id)
		} else if status != http.StatusOK {
			t.Errorf("key %s answers %d", id, status)
		}
	}
	for _, secret := range w.revoked {
		if status := w.statusAs(t, secret); status != http.StatusUnauthorized {
			t.Errorf("a key that was revoked answers %d", status)
		}
	}
	if len(w.revoked) > 5 { // checking the newest is enough
		w.revoked = w.revoked[len(w.revoked)-5:]
	}
}

// statusAs returns the status of a request with a key. It does not change the daemon's own key, which others use
// meanwhile.
func (w *worker) statusAs(t *testing.T, secret string) int {
	req, err := http.NewRequest("GET", w.URL+"/v1/keys/self", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}
