package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// liveEdge serves a websocket and a stream; handle has the socket until it returns.
func liveEdge(cfg SocketConfig, handle func(*Socket)) Edge {
	return Edge{Prefixes: []string{"/v1/shout"}, Dialect: shout, Routes: []Route{
		{Method: "GET", Pattern: "/v1/shout/live", Where: None, Handle: func(w http.ResponseWriter, r *http.Request,
			_ Caller) error {
			s, err := Upgrade(w, r, cfg)
			if err != nil {
				return err
			}
			defer s.Close(websocket.CloseNormalClosure, "done")
			handle(s)
			return nil
		}},
		{Method: "GET", Pattern: "/v1/shout/events", Where: None, Handle: func(w http.ResponseWriter, r *http.Request,
			_ Caller) error {
			es := NewEventStream(w, r)
			defer es.Close()
			for i := range 3 {
				if err := es.Send("tick", map[string]int{"i": i}); err != nil {
					return err
				}
			}
			return es.Send("", "bye\nbye")
		}},
	}}
}

// echo answers each message with itself.
func echo(s *Socket) {
	for {
		data, err := s.Read()
		if err != nil {
			return
		}
		if err := s.Send(map[string]string{"echo": string(data)}); err != nil {
			return
		}
	}
}

func dial(s *site, header ...string) (*websocket.Conn, *http.Response, error) {
	h := http.Header{"X-Api-Key": {testKey}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.URL, "http")+"/v1/shout/live", h)
}

func TestSocketOrigin(t *testing.T) {
	s := newSite(t, liveEdge(SocketConfig{Origins: []string{"https://app.example"}}, echo))
	for origin, ok := range map[string]bool{
		s.URL: true, "https://app.example": true, "https://evil.example": false, "http://app.example": false,
		"null":                             false,
		"https://app.example.evil.example": false, "https://evil.example/app.example": false, "": false,
		"file://": false,
	} {
		conn, res, err := dial(s, "Origin", origin)
		if ok != (err == nil) {
			t.Errorf("origin %q: %v", origin, err)
		}
		if err == nil {
			conn.Close()
			continue
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 403 || !strings.Contains(string(body), `"shout"`) {
			t.Errorf("origin %q: %d %s", origin, res.StatusCode, body)
		}
	}
	// a page under a name that was made to mean this machine
	if conn, res, err := dial(s, "Host", "evil.example", "Origin", "http://evil.example"); err == nil {
		conn.Close()
		t.Error("a rebound origin is let in")
	} else if res == nil || res.StatusCode != 403 {
		t.Errorf("a rebound origin: %v", err)
	}
	if conn, _, err := dial(s); err != nil {
		t.Errorf("no origin: %v", err)
	} else {
		conn.Close()
	}
	if _, res, err := dial(s, "X-Api-Key", "wrong"); err == nil || res.StatusCode != 401 {
		t.Errorf("wrong key: %v", err)
	}
	if res, body := s.do(t, "GET", "/v1/shout/live", ""); res.StatusCode != 426 ||
		!strings.Contains(body, "websocket") {
		t.Errorf("plain request: %d %s", res.StatusCode, body)
	}
	if res, body := s.do(t, "GET", "/v1/shout/live", "", "Connection", "Upgrade", "Upgrade",
		"websocket"); res.StatusCode != 400 || !strings.Contains(body, `"shout"`) {
		t.Errorf("half a handshake: %d %s", res.StatusCode, body)
	}
}

func TestSocketEchoAndLimits(t *testing.T) {
	ended := make(chan struct{}, 1)
	s := newSite(t, liveEdge(SocketConfig{MaxMessageBytes: 100}, func(s *Socket) {
		echo(s)
		<-s.Context().Done()
		ended <- struct{}{}
	}))
	conn, _, err := dial(s)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, text := range []string{"hello", strings.Repeat("x", 100)} {
		var got map[string]string
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := conn.ReadJSON(&got); err != nil || got["echo"] != text {
			t.Fatalf("%v %v", got, err)
		}
	}
	conn.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("x", 101)))
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
		t.Fatalf("%v", err)
	}
	<-ended
}

// A client that does not read makes Send wait, then ends; meanwhile nothing piles up in the server.
func TestSocketSlowReader(t *testing.T) {
	sent, ended := make(chan int64, 1), make(chan error, 1)
	s := newSite(t, liveEdge(SocketConfig{WriteTimeout: 300 * time.Millisecond}, func(s *Socket) {
		message := strings.Repeat("x", 64<<10)
		var n int64
		for {
			if err := s.Send(message); err != nil {
				sent <- n
				ended <- err
				return
			}
			n += int64(len(message))
		}
	}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	conn, _, err := dial(s)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n := <-sent
	if err := <-ended; err == nil {
		t.Fatal("no error")
	}
	runtime.ReadMemStats(&after)
	if n > 64<<20 {
		t.Fatalf("%d bytes went to a client that reads nothing", n)
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
		t.Fatalf("the heap grew by %d bytes", grown)
	}
}

// A silent client whose machine has gone is noticed: it does not answer pings.
func TestSocketDeadPeer(t *testing.T) {
	over := make(chan error, 1)
	s := newSite(t, liveEdge(SocketConfig{PingEvery: 50 * time.Millisecond}, func(s *Socket) {
		_, err := s.Read()
		over <- err
	}))
	conn, _, err := dial(s)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // nobody reads from conn, so nobody answers
	if err := <-over; err == nil {
		t.Fatal("no error")
	}
}

// One that does answer stays, although it says nothing of itself. On a busy machine its answers may come too late for
// short intervals, but not for all.
func TestSocketLivePeer(t *testing.T) {
	for _, every := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 10 * time.Second} {
		err := pinged(t, every)
		if err == nil {
			return
		}
		t.Logf("a live client that is pinged every %v was dropped: %v", every, err)
	}
	t.Error("a live client was dropped")
}

// pinged connects a client that answers pings, and returns why it was dropped, or nil if it got more than three.
func pinged(t *testing.T, every time.Duration) error {
	t.Helper()
	pings := make(chan struct{}, 100)
	over := make(chan error, 1)
	s := newSite(t, liveEdge(SocketConfig{PingEvery: every}, func(s *Socket) {
		_, err := s.Read()
		over <- err
	}))
	conn, _, err := dial(s)
	if err != nil {
		t.Fatal(err)
	}
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { pings <- struct{}{}; return pong(data) })
	go conn.ReadMessage()
	for range 10 {
		select {
		case <-pings:
		case err := <-over:
			conn.Close()
			return err
		}
	}
	conn.Close()
	<-over
	return nil
}

func TestSocketDrains(t *testing.T) {
	s, err := New(Config{Auth: oneKey(testKey), Edges: []Edge{liveEdge(SocketConfig{}, echo)}})
	if err != nil {
		t.Fatal(err)
	}
	addr, stop, served := serving(t, s)
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+addr+"/v1/shout/live", http.Header{"X-Api-Key": {testKey}})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Fatalf("%v", err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

func TestEventStream(t *testing.T) {
	s := newSite(t, liveEdge(SocketConfig{}, echo))
	res, body := s.do(t, "GET", "/v1/shout/events", "")
	want := ""
	for i := range 3 {
		want += fmt.Sprintf("event: tick\ndata: {\"i\":%d}\n\n", i)
	}
	want += "data: \"bye\\nbye\"\n\n"
	if body != want || res.Header.Get("Content-Type") != "text/event-stream" ||
		res.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%q %v", body, res.Header)
	}
}

// Each event leaves at once, and the stream ends when its client does.
func TestEventStreamFlushesAndEnds(t *testing.T) {
	next, over := make(chan int), make(chan struct{})
	s := newSite(t, Edge{Dialect: Plain, Routes: []Route{
		{Method: "GET", Pattern: "/e", Where: None,
			Handle: func(w http.ResponseWriter, r *http.Request, _ Caller) error {
				es := NewEventStream(w, r)
				defer close(over)
				defer es.Close()
				for {
					select {
					case i := <-next:
						if err := es.Send("", i); err != nil {
							return err
						}
					case <-es.Context().Done():
						return nil
					}
				}
			}}}})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/e", nil)
	req.Header.Set("X-Api-Key", testKey)
	next2 := make(chan *http.Response)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
		}
		next2 <- res
	}()
	next <- 1
	res := <-next2
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("%q %v", line, err)
	}
	cancel()
	<-over
}
