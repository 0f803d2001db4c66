package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"

	"github.com/gorilla/websocket"
)

// open sends a request whose answer goes on, and reads until it has begun.
func (g guest) open(t *testing.T, ctx context.Context, path string) (*http.Response, *bufio.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", g.h.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", g.secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d", path, res.StatusCode)
	}
	body := bufio.NewReader(res.Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return res, body
}

func (g guest) dial(t *testing.T, at string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(g.h.server.URL, "http")+at+"/live",
		http.Header{"X-Api-Key": {g.secret}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, _, err := conn.ReadMessage(); err != nil { // ready
		t.Fatal(err)
	}
	return conn
}

// closed fails the test unless the other side says goodbye because of the key.
func closed(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		_, _, err := conn.ReadMessage()
		var bye *websocket.CloseError
		if errors.As(err, &bye) && bye.Code == websocket.ClosePolicyViolation && strings.Contains(bye.Text, "revoked") {
			return
		}
		if err != nil {
			t.Errorf("the websocket ended with %v", err)
			return
		}
	}
}

// A revoked key ends everything that is open with it: events, logs, a request that waits, an upload, a websocket and
// the commands on it. What runs in the background is its owner's, and goes on.
func TestRevokeCutsWhatIsOpen(t *testing.T) {
	h := newHouse(t, session.Config{})
	g, other := h.guest(t, proto.CreateKey{}), h.guest(t, proto.CreateKey{})
	at := "/v1/containers/" + do[proto.Container](t, g, "POST", "/v1/containers", "").ID
	behind := do[proto.Exec](t, g, "POST", at+"/exec",
		`{"command": "while :; do echo line; sleep 0.05; done", "background": true}`)
	exec := at + "/execs/" + behind.ID

	_, events := g.open(t, t.Context(), exec+"/events")
	_, logs := g.open(t, t.Context(), exec+"/logs?follow=true")
	_, theirs := other.open(t, t.Context(), exec+"/events")
	conn, alive := g.dial(t, at), other.dial(t, at)
	if err := conn.WriteJSON(map[string]any{"type": "exec", "ref": "r", "cmd": map[string]any{
		"command": "sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	var begun proto.Event
	if err := conn.ReadJSON(&begun); err != nil || begun.Type != proto.EventStart {
		t.Fatalf("%+v %v", begun, err)
	}
	type answer struct {
		status int
		text   string
	}
	waiting := make(chan answer, 2)
	go func() {
		res, text := g.send(t, "GET", exec+"/result?wait_seconds=600", nil)
		waiting <- answer{res.StatusCode, text}
	}()
	sent, more := io.Pipe()
	go func() {
		req, _ := http.NewRequest("PUT", h.server.URL+at+"/fs/content?path=half.txt", sent)
		req.Header.Set("X-Api-Key", g.secret)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			waiting <- answer{0, err.Error()}
			return
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		waiting <- answer{res.StatusCode, string(text)}
	}()
	if _, err := more.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}

	if _, err := h.Keys.Revoke(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	go func() { // a client that goes on sending does not get through
		for range 1000 {
			if _, err := more.Write([]byte("more")); err != nil {
				return
			}
		}
		more.Close()
	}()
	closed(t, conn)
	for range 2 {
		if a := <-waiting; a.status != http.StatusUnauthorized && a.status != 0 {
			t.Errorf("a request under way was answered %d %s", a.status, a.text)
		}
	}
	for name, r := range map[string]*bufio.Reader{"events": events, "logs": logs} {
		// returns at all, since the command does not end
		if _, err := io.Copy(io.Discard, r); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if res, text := g.send(t, "GET", exec, nil); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a new request: %d %s", res.StatusCode, text)
	}
	// Nothing of anybody else's ended.
	if _, err := theirs.ReadString('\n'); err != nil {
		t.Errorf("another key's stream: %v", err)
	}
	if err := alive.WriteJSON(map[string]any{"type": "exec", "ref": "r", "cmd": map[string]any{
		"command": "true"}}); err != nil {
		t.Fatal(err)
	}
	if err := alive.ReadJSON(&begun); err != nil || begun.Type != proto.EventStart {
		t.Errorf("another key's websocket: %+v %v", begun, err)
	}
	if x := do[proto.Exec](t, other, "GET", exec, nil); x.State != proto.ExecRunning {
		t.Errorf("the command in the background: %+v", x)
	}
	if x := do[proto.ExecResult](t, other, "GET", at+"/execs/"+execOf(t, other, at, "sleep 1000")+
		"/result?wait_seconds=60", nil); x.Exec.End.Reason != proto.EndCanceled {
		t.Errorf("the command on the websocket: %+v", x.Exec.End)
	}
	if res, text := other.send(t, "GET", at+"/fs/content?path=half.txt", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("the upload that was cut off is there: %d %d bytes", res.StatusCode, len(text))
	}
}

// execOf finds a command's ID by its text.
func execOf(t *testing.T, g guest, at, command string) string {
	t.Helper()
	for _, x := range do[struct{ Data []proto.Exec }](t, g, "GET", at+"/execs", nil).Data {
		if x.Command == command {
			return x.ID
		}
	}
	t.Fatalf("%q was never run", command)
	return ""
}

// A key that expires ends what is open with it as a revoked one does, without a request.
func TestExpiryCutsWhatIsOpen(t *testing.T) {
	h := newHouse(t, session.Config{})
	keeper := h.guest(t, proto.CreateKey{})
	at := "/v1/containers/" + do[proto.Container](t, keeper, "POST", "/v1/containers", "").ID
	conn := h.guest(t, proto.CreateKey{ExpiresInSeconds: 4}).dial(t, at)
	closed(t, conn)
}

// Every way of not having a key is answered in the same words, and no way of sending one that ends in logs works.
func TestNoKey(t *testing.T) {
	h := newHouse(t, session.Config{})
	g, gone := h.guest(t, proto.CreateKey{}), h.guest(t, proto.CreateKey{})
	if _, err := h.Keys.Revoke(t.Context(), gone.id); err != nil {
		t.Fatal(err)
	}
	ask := func(query string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequest("GET", h.server.URL+"/v1/containers"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, nameless(string(text))
	}
	key := func(secret string) http.Header { return http.Header{"X-Api-Key": {secret}} }
	_, wrong := ask("", key("berth_WRONG"))
	for name, header := range map[string]http.Header{
		"revoked": key(gone.secret), "truncated": key(g.secret[:len(g.secret)-1]), "the ID": key(g.id),
		"huge":   key(strings.Repeat("k", 50<<10)),
		"bearer": {"Authorization": {"Bearer " + gone.secret}}, "many": {"X-Api-Key": {"berth_WRONG", g.secret}},
	} {
		if status, text := ask("", header); status != http.StatusUnauthorized || text != wrong {
			t.Errorf("%s: %d %s, not %s", name, status, text, wrong)
		}
	}
	for _, name := range []string{"api_key", "api-key", "key", "x-api-key", "access_token", "token"} {
		if status, text := ask("?"+name+"="+g.secret, http.Header{}); status != http.StatusUnauthorized ||
			strings.Contains(text, g.secret) {
			t.Errorf("?%s: %d %s", name, status, text)
		}
		if status, text := ask("?"+name+"="+g.secret, key(g.secret)); status != http.StatusBadRequest ||
			strings.Contains(text, g.secret) {
			t.Errorf("?%s beside the header: %d %s", name, status, text)
		}
	}
	for name, header := range map[string]http.Header{"cookie": {"Cookie": {"api_key=" + g.secret}},
		"basic": {"Authorization": {"Basic " + g.secret}}} {
		if status, text := ask("", header); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := ask("", key(g.secret)); status != http.StatusOK {
		t.Errorf("the right one: %d %s", status, text)
	}
	h.server.Close() // all lines are written
	for _, secret := range []string{g.secret, gone.secret} {
		if strings.Contains(h.log.String(), secret) {
			t.Errorf("a key is in the log: %s", h.log)
		}
	}
}

// A download that has begun is not finished with a key that is revoked meanwhile.
func TestRevokeCutsDownloads(t *testing.T) {
	h := newHouse(t, session.Config{})
	g, other := h.guest(t, proto.CreateKey{}), h.guest(t, proto.CreateKey{})
	const size = 64 << 20 // more than all buffers on the way
	file := do[struct{ ID string }](t, g, "POST", "/v1/files", fileForm(t, size)).ID
	req, err := http.NewRequest("GET", h.server.URL+"/v1/files/"+file+"/content", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", g.secret)
	req.Header.Set("anthropic-version", "2023-06-01")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Keys.Revoke(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("all of it came: %d bytes more", n)
	}
	if _, text := other.send(t, "GET", "/v1/files/"+file+"/content", nil); len(text) != size {
		t.Errorf("%d bytes for the other key", len(text))
	}
}

// Commands on a websocket count as requests, or a key would have no bound there.
func TestRateOnWebsocket(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Quota: proto.Quota{RequestsPerSecond: 0.01, Burst: 4}})
	conn := g.dial(t, "/v1/containers/"+do[proto.Container](t, g, "POST", "/v1/containers", "").ID)
	for i := range 3 { // two requests were made
		if err := conn.WriteJSON(map[string]any{"type": "exec", "ref": string(rune('a' + i)), "cmd": map[string]any{
			"command": "true"}}); err != nil {
			t.Fatal(err)
		}
	}
	ended := 0
	for refused := false; !refused || ended < 2; {
		var ev proto.Event
		if err := conn.ReadJSON(&ev); err != nil {
			t.Fatal(err)
		}
		switch {
		case ev.Type == proto.EventExit:
			ended++
		case ev.Type == proto.EventError && ev.Ref == "c" && ev.Error.Code == proto.TooMany && ev.Error.RetryAfter > 60:
			refused = true
		case ev.Type == proto.EventError:
			t.Fatalf("%+v", ev.Error)
		}
	}
	if ended != 2 {
		t.Errorf("%d commands ran", ended)
	}
}
