package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// A browser's page can send a key only as a subprotocol, and then needs another one in the answer.
func TestKeyAsSubprotocol(t *testing.T) {
	s := newSite(t, Edge{Dialect: Plain, Routes: []Route{
		{Method: "GET", Pattern: "/live", Where: None,
			Handle: func(w http.ResponseWriter, r *http.Request, c Caller) error {
				sock, err := Upgrade(w, r, SocketConfig{})
				if err != nil {
					return err
				}
				err = sock.Send(c)
				sock.Close(websocket.CloseNormalClosure, "")
				return err
			}},
	}})
	key := func(k string) string { return keyProtocol + base64.RawURLEncoding.EncodeToString([]byte(k)) }
	dial := func(protocols ...string) (*websocket.Conn, *http.Response, error) {
		d := websocket.Dialer{Subprotocols: protocols}
		return d.Dial("ws"+strings.TrimPrefix(s.URL, "http")+"/live", nil)
	}
	conn, _, err := dial(Subprotocol, key(testKey))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var c Caller
	if err := conn.ReadJSON(&c); err != nil || c.Owner != oneOwner || conn.Subprotocol() != Subprotocol {
		t.Fatalf("%+v %v %q", c, err, conn.Subprotocol())
	}
	for _, p := range []string{key("another key, not ours"), "berth.key.!", "berth.key."} {
		if _, res, err := dial(Subprotocol, p); err == nil || res == nil || res.StatusCode != 401 {
			t.Errorf("%s: %v %v", p, res, err)
		}
	}
	if res, _ := s.do(t, "GET", "/live", "", "X-Api-Key", "", "Sec-WebSocket-Protocol",
		key(testKey)); res.StatusCode != 401 {
		t.Errorf("a key as subprotocol of no websocket: status %d", res.StatusCode)
	}
}

func TestEventIDsAndOwnStatus(t *testing.T) {
	s := newSite(t, Edge{Dialect: Plain, Routes: []Route{
		{Method: "GET", Pattern: "/events", Where: None,
			Handle: func(w http.ResponseWriter, r *http.Request, _ Caller) error {
				es := NewEventStream(w, r)
				defer es.Close()
				return es.SendID("1-2", "stdout", "hi")
			}},
		{Method: "GET", Pattern: "/range", Where: None,
			Handle: func(http.ResponseWriter, *http.Request, Caller) error {
				return WithStatus(416, proto.Errorf(proto.InvalidArgument, "", "Range", "No."))
			}},
	}})
	if _, body := s.do(t, "GET", "/events", ""); body != "id: 1-2\nevent: stdout\ndata: \"hi\"\n\n" {
		t.Errorf("events: %q", body)
	}
	if res, body := s.do(t, "GET", "/range", ""); res.StatusCode != 416 ||
		!strings.Contains(body, `"code":"invalid_argument"`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// A handshake may carry as many keys as a header holds; only the first few are tried.
func TestFewKeysAreTried(t *testing.T) {
	var tried counter
	s, err := New(Config{Auth: &tried, Edges: []Edge{
		{Dialect: Plain, Routes: []Route{{Method: "GET", Pattern: "/x", Where: None,
			Handle: func(http.ResponseWriter, *http.Request,
				Caller) error {
				return nil
			}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-Websocket-Protocol", strings.Repeat(keyProtocol+"a2V5, ", 1000)+keyProtocol+"a2V5")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized || tried.n != maxKeysTried {
		t.Errorf("%d after %d keys", w.Code, tried.n)
	}
}

// A counter knows no key, and counts those it is asked for.
type counter struct {
	oneKey
	n int
}

func (c *counter) Authenticate(ctx context.Context, key string) (Caller, error) {
	c.n++
	return c.oneKey.Authenticate(ctx, key)
}
