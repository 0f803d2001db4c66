package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// answering returns a client of a server that always gives the same answer.
func answering(t *testing.T, status int, body string) *Client {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

func serving(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Config{Host: s.URL, Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHosts(t *testing.T) {
	for host, want := range map[string]string{
		"127.0.0.1:7117":     "http://127.0.0.1:7117",
		"https://h.example/": "https://h.example",
		"http://h/below":     "http://h/below",
		"":                   "", "ftp://h": "", "http://": "", "http://u:p@h": "", "http://h?x=y": "", "h h": "",
	} {
		c, err := New(Config{Host: host})
		if (err == nil) != (want != "") || err == nil && c.Host() != want {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestErrors checks that errors of both dialects become *proto.Error, and that answers of other servers are
// recognized.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		code   proto.Code
		says   string
	}{
		{410, `{"error":{"code":"expired","op":"o","item":"container_x","message":"It is over."},"request_id":"req_1"}`,
			proto.Expired, "o: It is over."},
		{422, `{"error":{"code":"unsupported","message":"No."}}`, proto.Unsupported, "No."},
		{500, `{"error":{"code":"internal","message":"Our fault"},"request_id":"req_1"}`, proto.Internal,
			"Our fault (request req_1)"},
		{404, `{"type":"error","error":{"type":"not_found_error","message":"File not found."},"request_id":"req_1"}`,
			proto.NotFound, "File not found."},
		{413, `{"type":"error","error":{"type":"request_too_large","message":"Large."}}`, proto.TooLarge, "Large."},
		{502, `<html>bad gateway</html>`, proto.Unavailable, "answered 502 Bad Gateway; is it a berth daemon?"},
		{404, ``, proto.NotFound, "answered 404 Not Found"},
		{200, `<html>`, proto.Unavailable, "cannot be read"},
	} {
		_, err := answering(t, tt.status, tt.body).Container(t.Context(), "container_x")
		var e *proto.Error
		if !errors.As(err, &e) || e.Code != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d %s: %v (%s)", tt.status, tt.body, err, proto.CodeOf(err))
		}
	}
}

// TestMissing checks that the missing item comes from the error's item, or from its message if the API has no item.
// Other 404 answers stay unchanged.
func TestMissing(t *testing.T) {
	const con, file = "container_0000000000000000000000", "file_0000000000000000000000"
	native := func(item string) string {
		return `{"error":{"code":"not_found","item":"` + item + `","message":"It does not exist."}}`
	}
	files := func(message string) string {
		return `{"type":"error","error":{"type":"not_found_error","message":"` + message + `"}}`
	}
	for _, tt := range []struct {
		ask            func(c *Client) error
		body           string
		kind, name, in string
	}{
		{func(c *Client) error { _, err := c.ToolCall(t.Context(), con, "a/b"); return err }, native("a/b"),
			"tool_calls", "a/b", con},
		{func(c *Client) error { _, err := c.ToolCall(t.Context(), con, "x"); return err }, native(con), "containers",
			con, ""},
		{func(c *Client) error { _, err := c.Create(t.Context(), proto.CreateContainer{}); return err }, native(file),
			"files", file, ""},
		{func(c *Client) error { _, err := c.File(t.Context(), "f"); return err }, files("File `f` not found."),
			"files", "f", ""},
		{func(c *Client) error { _, err := c.SkillContent(t.Context(), "s", "v"); return err },
			files(`Skill \"s\" has no version \"v\".`), "versions", "v", "s"},
		{func(c *Client) error { _, err := c.SkillContent(t.Context(), "s", "v"); return err },
			files(`Skill \"s\" not found.`), "skills", "s", ""},
		{func(c *Client) error { _, err := c.File(t.Context(), "f"); return err },
			files("There is no such endpoint; check the path."), "", "", ""},
		{func(c *Client) error { _, err := c.Tool(t.Context(), "x", 0); return err }, native("version"), "", "", ""},
		{func(c *Client) error { _, err := c.Tool(t.Context(), "x", 0); return err }, "nginx", "", "", ""},
	} {
		err := tt.ask(answering(t, http.StatusNotFound, tt.body))
		var m *MissingError
		if !errors.As(err, &m) {
			m = &MissingError{}
		}
		if proto.CodeOf(err) != proto.NotFound || m.Kind != tt.kind || m.Name != tt.name || m.In != tt.in {
			t.Errorf("%s: %v, %+v", tt.body, err, m)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	c, err := New(Config{Host: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	var dial *DialError
	if _, err := c.Info(t.Context()); !errors.As(err, &dial) ||
		err.Error() != "no daemon answers at http://127.0.0.1:1: connection refused" {
		t.Errorf("%v", err)
	}
	if _, err := c.Live(t.Context(), "container_x"); !errors.As(err, &dial) {
		t.Errorf("%v", err)
	}
}

// TestRedirectsAreNotFollowed checks that the key is sent to no other host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serving(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the other host got %v", r.Header) })
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.Host(), http.StatusFound)
	})
	if _, err := c.Info(t.Context()); err == nil {
		t.Error("a redirect was taken for an answer")
	}
}

// TestPathsAreEscaped checks that no ID can address another endpoint.
func TestPathsAreEscaped(t *testing.T) {
	var got string
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.RequestURI
		io.WriteString(w, `{}`)
	})
	if _, err := c.Delete(t.Context(), "../images?ref=base", true); err != nil {
		t.Fatal(err)
	}
	if want := "DELETE /v1/containers/..%2Fimages%3Fref=base?keep_workspace=true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestListsHavePages(t *testing.T) {
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if after := r.URL.Query().Get("after"); after != "" {
			fmt.Fprintf(w, `{"data":[{"id":"b"}],"has_more":false,"next_after":null}`)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"a"}],"has_more":true,"next_after":"a"}`)
	})
	list, err := c.Containers(t.Context(), Filter{Labels: []string{"k=v"}})
	if err != nil || len(list) != 2 || list[1].ID != "b" {
		t.Errorf("%v, %v", list, err)
	}
}

// TestImageLines checks the answer to an import: progress, then an image or an error. A truncated answer is an error
// too.
func TestImageLines(t *testing.T) {
	step := `{"stage":"importing","done":1,"total":2}` + "\n"
	for body, want := range map[string]string{
		step + `{"image":{"name":"n"}}` + "\n":                                      "n <nil>",
		step + `{"error":{"code":"invalid_argument","message":"No image."}}` + "\n": " No image.",
		step: " the daemon broke off before the image was complete; send it again",
	} {
		seen := 0
		img, err := answering(t, 200, body).ImportImage(t.Context(), "n", strings.NewReader("x"), 1,
			func(p proto.ImageProgress) {
				if seen++; p.Stage != "importing" || p.Total != 2 {
					t.Errorf("progress %+v", p)
				}
			})
		if got := fmt.Sprintf("%s %v", img.Name, err); got != want || seen != 1 {
			t.Errorf("%s: %s, %d steps", body, got, seen)
		}
	}
}

// sent returns a live connection to a server that sent n messages. None is read yet.
func sent(t *testing.T, n int, send func(conn *websocket.Conn, i int) error) *Live {
	t.Helper()
	done := make(chan error, 1)
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		for i := range n {
			if err == nil {
				err = send(conn, i)
			}
		}
		done <- err
		_, _, _ = conn.ReadMessage() // until the client disconnects
	})
	l, err := c.Live(t.Context(), "container_x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLiveReadsAhead checks that events are read from the daemon even if the caller takes none.
func TestLiveReadsAhead(t *testing.T) {
	const events, size = 24, 1 << 20 // more than the kernel buffers
	l := sent(t, events, func(conn *websocket.Conn, _ int) error {
		return conn.WriteJSON(proto.Event{Type: proto.EventStdout, Data: strings.Repeat("x", size)})
	})
	for range events {
		if e, err := l.Next(t.Context()); err != nil || len(e.Data) != size {
			t.Fatalf("%d bytes, %v", len(e.Data), err)
		}
	}
}

// TestLivePiecesAreApart checks that each event has its own output, whatever the sizes of its neighbours. A small
// piece must not hold more memory than its length.
func TestLivePiecesAreApart(t *testing.T) {
	const large = 16 << 10
	sizes := []int{1, large, 100, 4 * large, large - 1, 5 * large, 0, large + 1, 3}
	piece := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, sizes[i]) }
	begun := int64(0)
	l := sent(t, len(sizes), func(conn *websocket.Conn, i int) error {
		message := proto.AppendOutput(nil, "exec_x", proto.Stdout, begun, piece(i))
		begun += int64(sizes[i])
		return conn.WriteMessage(websocket.BinaryMessage, message)
	})
	var events []proto.Event
	for range sizes {
		e, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	at := int64(0)
	for i, e := range events { // once all have arrived
		if !bytes.Equal(e.DataBase64, piece(i)) || e.Offset != at {
			t.Errorf("piece %d, of %d bytes, is of %d at %d", i, sizes[i], len(e.DataBase64), e.Offset)
		}
		if held := cap(e.DataBase64); held > 2*sizes[i]+large/4 {
			t.Errorf("piece %d, of %d bytes, holds %d", i, sizes[i], held)
		}
		at += int64(sizes[i])
	}
}

// TestQueue checks that a full queue blocks the connection until an event is taken or the queue is closed.
func TestQueue(t *testing.T) {
	q := newQueue()
	big := proto.Event{Data: strings.Repeat("x", maxQueued)}
	if !q.put(big) {
		t.Fatal("the first was not taken")
	}
	put := make(chan bool)
	go func() { put <- q.put(proto.Event{Data: "second"}) }()
	if _, err := q.take(); err != nil {
		t.Fatal(err)
	}
	if !<-put {
		t.Fatal("the second was not taken")
	}
	q.end(io.EOF)
	if e, err := q.take(); err != nil || e.Data != "second" {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, err := q.take(); err != io.EOF {
		t.Fatal(err)
	}
	q.put(big)
	go func() { put <- q.put(big) }()
	q.close()
	if <-put {
		t.Fatal("a closed queue took something")
	}
}

// TestUploadsSayTheirLength checks that a file is sent with its length, so the daemon can refuse it beforehand. The
// file may grow meanwhile, but must not shrink.
func TestUploadsSayTheirLength(t *testing.T) {
	var length int64
	var got []byte
	var behind error
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		length, got = r.ContentLength, nil
		if parts, err := r.MultipartReader(); err == nil {
			if part, err := parts.NextPart(); err == nil {
				got, _ = io.ReadAll(part)
			}
			_, behind = parts.NextPart()
		}
		io.WriteString(w, `{"id": "file_1"}`)
	})
	text := strings.Repeat("0123456789abcdef", 1<<16)
	for _, size := range []int64{0, 1, 1000, int64(len(text))} {
		f, err := c.UploadFile(t.Context(), Upload{Name: "a", Body: strings.NewReader(text), Size: size})
		want := text
		if size > 0 {
			want = text[:size]
		}
		if err != nil || f.ID != "file_1" || string(got) != want || behind != io.EOF || (length > size) != (size > 0) {
			t.Errorf("%d: %v, %d bytes of a request of %d came, and behind them %v", size, err, len(got), length,
				behind)
		}
	}
	if _, err := c.UploadFile(t.Context(), Upload{Name: "a", Body: strings.NewReader("short"), Size: 10}); err == nil ||
		!strings.Contains(err.Error(), "5 bytes shorter") {
		t.Errorf("a file that becomes shorter: %v", err)
	}
}

// TestRevoke checks that the caller can use its reader again after the request.
func TestRevoke(t *testing.T) {
	in := strings.NewReader("abc")
	l := &revocable{r: in}
	l.revoke()
	if n, err := l.Read(make([]byte, 3)); n != 0 || err == nil || in.Len() != 3 {
		t.Errorf("%d bytes were read: %v", n, err)
	}
}

// TestUnread checks that a client learns at the end of an archive what it lacks.
func TestUnread(t *testing.T) {
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		tell := r.URL.Query().Get("path") == "/told"
		if tell {
			w.Header().Set("Trailer", proto.UnreadTrailer+", "+proto.UnreadNamesTrailer)
		}
		io.WriteString(w, "archive")
		if tell {
			w.Header().Set(proto.UnreadTrailer, "3")
			w.Header().Set(proto.UnreadNamesTrailer, "a%2Cb, d/%E6%97%A5")
		}
	})
	for path, want := range map[string]*proto.Unread{"/told": {Count: 3, Names: []string{"a,b", "d/日"}}, "/not": nil} {
		d, err := c.FS("container_x", "user").Tar(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if u := d.Unread(); u != nil {
			t.Errorf("%s: %+v before the end", path, u)
		}
		if _, err := io.Copy(io.Discard, d); err != nil {
			t.Fatal(err)
		}
		if u := d.Unread(); !reflect.DeepEqual(u, want) {
			t.Errorf("%s: %+v at the end", path, u)
		}
	}
}
