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

// What the crash test's workers do beside the plain things: what they promise to do once, what they keep for later,
// keys.

// A pending is a request with an idempotency key that was cut off. It is sent again after the crash.
type pending struct{ path, body, token string }

// keyed runs a command that is run once, however often it is asked for.
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

// again asks once more for what was cut off, and twice for what is answered: one command has run, or none if the
// container was stopped.
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

// createOnce makes a container with a key; asked for again after a crash it is the same one, or made then.
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

// part deletes a container and keeps its workspace for another.
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

// rejoin makes a container over a workspace that was kept. Where it is cut off the container may be there; it is
// deleted as one of nobody's, and the workspace stays.
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

// checkSpaces looks whether the workspaces that were kept are there, and no others.
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

// turnKeys makes an API key, or revokes one.
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

// checkKeys looks whether keys are what was answered of them.
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
	if len(w.revoked) > 5 { // that the newest are still revoked says it of the others
		w.revoked = w.revoked[len(w.revoked)-5:]
	}
}

// statusAs is what a key is answered. It leaves the daemon's own key alone, which others use meanwhile.
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
