package scripted

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Paths that a Server serves.
const (
	messagesPath = "/v1/messages"
	countPath    = "/v1/messages/count_tokens"
	chatPath     = "/v1/chat/completions"
	modelsPath   = "/v1/models"
)

// A Server plays a script. It is safe for concurrent use. The turns of a conversation are played in the order in
// which requests come.
type Server struct {
	Tell func(error) // called with each mistake; set it before the first request; nil: not called

	mux   *http.ServeMux
	talks []*talk
	run   string // part of all IDs that the server generates

	mu     sync.Mutex // guards the fields below, and the positions of the talks
	bodies []json.RawMessage
	heads  []http.Header
	errs   []error
	made   int // number of generated IDs
	points map[string]*point

	threads map[string]*thread // by the ID of the answer that the next request continues
}

// A talk is a conversation and its position.
type talk struct {
	Conversation
	next, played int // index of the next turn, and how many times it was played
}

// A point is a named pause.
type point struct {
	reached, released chan struct{}
	reach, release    sync.Once
}

// New returns a server for a script that Load has read.
func New(s *Script) *Server {
	srv := &Server{mux: http.NewServeMux(), run: rand.Text()[:10], points: map[string]*point{},
		threads: map[string]*thread{}}
	for _, c := range s.Conversations {
		srv.talks = append(srv.talks, &talk{Conversation: c})
	}
	for _, path := range []string{messagesPath, countPath, chatPath} {
		srv.mux.HandleFunc("POST "+path, srv.answer)
	}
	srv.mux.HandleFunc("GET "+modelsPath, srv.models)
	srv.mux.HandleFunc("GET "+modelsPath+"/{id}", srv.models)
	srv.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // how some clients look whether a server is there
			http.NotFound(w, r)
			return
		}
		err := srv.fail(fmt.Errorf("%s %s is nothing that a script answers; there are POST %s, %s and %s", r.Method,
			r.URL.Path, messagesPath, countPath, chatPath))
		refuse(w, r.URL.Path, Error{Status: http.StatusNotFound, Type: "not_found_error", Message: err.Error()})
	})
	return srv
}

// models answers with the models that the conversations name, or with the one in the path.
func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	list, seen := []any{}, map[string]bool{}
	for _, t := range s.talks {
		name := t.When.Model
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		model := map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "script"}
		if r.Header.Get("anthropic-version") != "" {
			model = map[string]any{"type": "model", "id": name, "display_name": name,
				"created_at": "1970-01-01T00:00:00Z"}
		}
		if list = append(list, model); name == r.PathValue("id") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(encode(model))
			return
		}
	}
	if r.PathValue("id") != "" {
		refuse(w, messagesPath, Error{Status: http.StatusNotFound, Type: "not_found_error", Message: "no such model"})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(map[string]any{"object": "list", "data": list, "has_more": false}))
}

// ServeHTTP answers a request with the next turn of its conversation.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Err returns all mistakes: requests that differ from what the script expects. It returns nil if there are none.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// Requests returns the bodies of all requests so far, in the order in which they came.
func (s *Server) Requests() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

// Headers returns the headers of the same requests.
func (s *Server) Headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heads)
}

// Left returns how many turns were not played yet. A turn of a conversation that loops counts until it was played
// once.
func (s *Server) Left() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.talks {
		for i := t.next; i < len(t.Turns); i++ {
			n += max(1, t.Turns[i].Repeat)
		}
		n -= t.played
	}
	return n
}

// Reached returns a channel that is closed when an answer reaches the pause with that name.
func (s *Server) Reached(name string) <-chan struct{} { return s.point(name).reached }

// Release ends the pauses with that name, including later ones.
func (s *Server) Release(name string) {
	p := s.point(name)
	p.release.Do(func() { close(p.released) })
}

func (s *Server) point(name string) *point {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.points[name]
	if p == nil {
		p = &point{reached: make(chan struct{}), released: make(chan struct{})}
		s.points[name] = p
	}
	return p
}

// pause waits as p requires, or until ctx ends.
func (s *Server) pause(ctx context.Context, p Pause) error {
	if p.Until == "" {
		timer := time.NewTimer(time.Duration(p.For))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	point := s.point(p.Until)
	point.reach.Do(func() { close(point.reached) })
	select {
	case <-point.released:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// fail records a mistake.
func (s *Server) fail(err error) error {
	if s.Tell != nil {
		s.Tell(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
	return err
}

// id returns a unique ID.
func (s *Server) id(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return fmt.Sprintf("%s%s%04d", prefix, s.run, s.made)
}

// received is a decoded request.
type received struct {
	path   string
	query  url.Values
	header http.Header
	body   any
}

func (r *received) chat() bool { return r.path == chatPath }

// value returns the value at a JSON pointer into the body, or nil if there is none.
func (r *received) value(pointer string) any {
	v, _ := at(r.body, pointer)
	return v
}

func (r *received) stream() bool { return r.value("/stream") == true }

// maxBody is the maximum size of a request body, in bytes. The real API accepts half of that.
const maxBody = 64 << 20

func (s *Server) read(w http.ResponseWriter, r *http.Request) (*received, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	s.mu.Lock()
	s.bodies, s.heads = append(s.bodies, raw), append(s.heads, r.Header.Clone())
	s.mu.Unlock()
	got := &received{path: r.URL.Path, query: r.URL.Query(), header: r.Header}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&got.body); err != nil {
		return nil, fmt.Errorf("the request's body is no JSON: %w", err)
	}
	return got, nil
}

// answer answers one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	got, err := s.read(w, r)
	var a Answer
	if err == nil {
		if e := s.joinThread(got); e != nil {
			refuse(w, r.URL.Path, *e)
			return
		}
		a, err = s.play(got)
	}
	if err == nil {
		err = s.send(w, r, got, a)
	}
	if err != nil {
		refuse(w, r.URL.Path, Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: s.fail(
			err).Error()})
	}
}

// play returns the answer of the next turn for the request. A request that does not match uses up no turn.
func (s *Server) play(got *received) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(got)
	if err != nil {
		return Answer{}, err
	}
	if t.Plain && !got.chat() && got.value("/thread") != nil { // no mistake: clients ask, and go on without it
		return Answer{Error: refuseThread("thread_unsupported_request", "thread: a plain API has none")}, nil
	}
	if wrong := malformed(got, t.Plain); wrong != "" {
		return Answer{}, fmt.Errorf("conversation %s: no API would take this: %s", t.Name, wrong)
	}
	if got.path == countPath && (t.over() || t.Turns[t.next].Expect.Path != countPath) {
		return t.count(got), nil
	}
	turn := t.Turns[t.next]
	if wrong := turn.Expect.differs(got); wrong != "" {
		return Answer{}, fmt.Errorf("conversation %s, turn %d: %s", t.Name, t.next+1, wrong)
	}
	t.step()
	return turn.Answer, nil
}

// find returns the conversation that a request belongs to.
func (s *Server) find(got *received) (*talk, error) {
	var over *talk
	var why error
	for _, t := range s.talks {
		wrong := t.When.differs(got)
		switch {
		case wrong == "" && (!t.over() || got.path == countPath):
			return t, nil
		case wrong == "":
			over = t
		default:
			why = errors.Join(why, fmt.Errorf("it is not %s's: %s", t.Name, wrong))
		}
	}
	if over != nil {
		return nil, fmt.Errorf("conversation %s: all its turns were played, and here is another request; its last "+
			"message is %s", over.Name, brief(got.value("/messages/-1")))
	}
	return nil, fmt.Errorf("no conversation of the script is for this request: %w", why)
}

func (t *talk) over() bool { return t.next >= len(t.Turns) }

// step advances to the next turn or the next repetition.
func (t *talk) step() {
	if t.played++; t.played < t.Turns[t.next].Repeat {
		return
	}
	t.next, t.played = t.next+1, 0
	if t.over() && t.Loop {
		t.next = 0
	}
}

// count answers count_tokens if there is no turn for it: four bytes are a token.
func (t *talk) count(got *received) Answer {
	n := t.InputTokens
	if n == 0 {
		n = max(1, len(textOf(got.body))/4)
	}
	return Answer{InputTokens: &n}
}
