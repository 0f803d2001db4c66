// Package scripted is a server that plays a script in place of a model. It serves POST /v1/messages,
// /v1/messages/count_tokens and /v1/chat/completions, as JSON and as a stream. It sends the answers of the script and
// checks the requests. GET /v1/models lists the models that the script names. Tests and the demo run whole conversations against it, without a model.
//
// A script is JSON. It has conversations. Each has turns, which are played in order, one for each request.
//
//	{"conversations": [{
//	  "name": "weather", "when": {"model": "model-a"}, "plain": true,
//	  "turns": [
//	    {"expect": {"tools": ["bash"], "no_tools": ["code_execution"], "last": [{"type": "text", "text": {"$contains": "weather"}}]},
//	     "answer": {"content": [{"type": "tool_use", "name": "bash", "input": {"command": "date"}}]}},
//	    {"expect": {"messages": 3, "last": [{"type": "tool_result"}]},
//	     "answer": {"content": [{"type": "text", "text": {"$join": ["It is ", {"$from": "/messages/-1/content/0/content"}]}}]}}
//	  ]}]}
//
// "turns" beside or in place of "conversations" is one conversation for all requests that match no other one. A
// request belongs to the first conversation whose "when" matches and that has turns left. An Expect describes a
// request, and an Answer describes the model's answer. Their fields are documented there.
//
// An expected object matches an object that has all its members. An expected list matches a list of the same length.
// null also matches an absent value. An object with one of these members is an operator:
//
//	{"$contains": "text"}   a string that contains it           {"$match": "^a+$"}   a string that matches it
//	{"$any": true}          any value except null               {"$length": 3}       a list or string of that length
//	{"$has": VALUE}         a list with a matching element      {"$not": VALUE}      anything that does not match
//
// Values in an answer can be taken from the request:
//
//	{"$from": "/messages/-1/content/0"}             the value there; a negative number counts from the end of a list
//	{"$from": "/messages/-1", "match": "file_\\w+"}  the first match in its text, or the first group of the match
//	{"$join": ["a", {"$from": "…"}]}                the texts, joined
//
// In addition, each request must be one that the real API accepts: each tool_use has its tool_result in the next
// message, and so on. Messages with the role system may follow those of the user. Message threads work: a request that
// continues one is matched as if it had all messages. A plain conversation refuses threads.
package scripted

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"berth/proto"
)

// A Script is everything that a Server plays.
type Script struct {
	Conversations []Conversation `json:"conversations,omitempty"`
	// turns of the last conversation, which matches all requests
	Turns []Turn `json:"turns,omitempty"`
	Plain bool   `json:"plain,omitempty"` // for that conversation
	Loop  bool   `json:"loop,omitempty"`  // for that conversation
}

// A Conversation is a sequence of turns.
type Conversation struct {
	Name string `json:"name,omitempty"` // used in messages
	When Expect `json:"when,omitzero"`  // selects the requests of the conversation
	// refuse what only a hosted API with server tools accepts: typed tools, container, and their blocks
	Plain bool `json:"plain,omitempty"`
	Loop  bool `json:"loop,omitempty"` // begin again after the last turn
	// answer to count_tokens if there is no turn for it; 0 is a fourth of the body's bytes
	InputTokens int    `json:"input_tokens,omitempty"`
	Turns       []Turn `json:"turns"`
}

// A Turn is one request and the answer to it.
type Turn struct {
	Expect Expect `json:"expect,omitzero"`
	Answer Answer `json:"answer"`
	Repeat int    `json:"repeat,omitempty"` // how many times it is played; 0 is once
}

// An Expect describes a request. Omitted fields are not checked.
type Expect struct {
	Path     string         `json:"path,omitempty"` // path of the URL
	Query    map[string]any `json:"query,omitempty"`
	Model    string         `json:"model,omitempty"`
	Headers  map[string]any `json:"headers,omitempty"`
	Stream   *bool          `json:"stream,omitempty"`
	Tools    []string       `json:"tools,omitempty"`    // names or types that must be among the tools
	NoTools  []string       `json:"no_tools,omitempty"` // names or types that must not be
	Messages *int           `json:"messages,omitempty"` // number of messages
	// blocks of the last message; for chat completions, the last messages
	Last []any          `json:"last,omitempty"`
	Body map[string]any `json:"body,omitempty"` // values by JSON pointer
}

// An Answer has one of Content, Error, Raw and InputTokens. The other fields describe how it is sent.
type Answer struct {
	Content []any `json:"content,omitempty"` // blocks; a missing id is generated
	// "" is tool_use if there is a tool_use, and end_turn otherwise
	StopReason   string `json:"stop_reason,omitempty"`
	StopSequence string `json:"stop_sequence,omitempty"`
	Usage        any    `json:"usage,omitempty"`     // nil is 10 input and 5 output tokens
	Container    any    `json:"container,omitempty"` // for an API that has containers itself

	Error       *Error `json:"error,omitempty"`
	Raw         *Raw   `json:"raw,omitempty"`
	InputTokens *int   `json:"input_tokens,omitempty"` // the answer to count_tokens

	Headers map[string]string `json:"headers,omitempty"`
	Piece   int               `json:"piece,omitempty"`  // characters per delta; 0 is 8
	Pauses  []Pause           `json:"pauses,omitempty"` // in the order of their events
	Cut     *Cut              `json:"cut,omitempty"`    // ends the answer early
}

// An Error is an error answer, in the envelope of the path's dialect.
type Error struct {
	Status  int    `json:"status"`
	Type    string `json:"type,omitempty"` // "" is api_error
	Message string `json:"message,omitempty"`
	Code    string `json:"code,omitempty"` // "": the error has none
}

// A Raw is an answer with a literal body. Chunks are sent one after the other.
type Raw struct {
	Status int      `json:"status,omitempty"` // 0 is 200
	Body   string   `json:"body,omitempty"`
	Chunks []string `json:"chunks,omitempty"`
}

// A Pause delays an answer: for a time, or until Server.Release is called with its name.
type Pause struct {
	// the first event is 1; 0 is before the headers of the answer
	BeforeEvent int      `json:"before_event,omitempty"`
	For         Duration `json:"for,omitempty"`
	Until       string   `json:"until,omitempty"`
}

// A Cut ends an answer early. An answer without a stream is cut in its middle.
type Cut struct {
	AfterEvents int `json:"after_events,omitempty"`
	// "break" the connection, "hang" until the client disconnects, "end" as if it were complete, or an "error" event
	By    string `json:"by"`
	Error *Error `json:"error,omitempty"` // content of that event
}

// A Duration is written as "250ms".
type Duration time.Duration

// UnmarshalText parses a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// maxScript is the maximum size of a script, in bytes.
const maxScript = 64 << 20

// Load reads and checks a script.
func Load(r io.Reader) (*Script, error) {
	in := &io.LimitedReader{R: r, N: maxScript + 1}
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	dec.UseNumber()
	var s Script
	if err := dec.Decode(&s); err != nil {
		return nil, invalid("at byte %d: %v", dec.InputOffset(), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, invalid("something follows the script, at byte %d", dec.InputOffset())
	}
	if in.N == 0 {
		return nil, proto.Errorf(proto.TooLarge, "", "script", "the script has more than %d bytes", maxScript)
	}
	if len(s.Turns) > 0 {
		s.Conversations = append(s.Conversations, Conversation{Name: "main", Plain: s.Plain, Loop: s.Loop,
			Turns: s.Turns})
	}
	return &s, s.check()
}

func invalid(format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", "script", "the script: "+format, args...)
}

// check returns an error for anything that could not be played.
func (s *Script) check() error {
	if len(s.Conversations) == 0 {
		return invalid("it has no turns; give \"turns\" or \"conversations\"")
	}
	for i, c := range s.Conversations {
		if s.Conversations[i].Name == "" {
			s.Conversations[i].Name = fmt.Sprint(i + 1)
		}
		if len(c.Turns) == 0 {
			return invalid("conversation %s has no turns", s.Conversations[i].Name)
		}
		if err := c.When.check(); err != nil {
			return invalid("conversation %s, when: %v", s.Conversations[i].Name, err)
		}
		for n, t := range c.Turns {
			if err := t.check(); err != nil {
				return invalid("conversation %s, turn %d: %v", s.Conversations[i].Name, n+1, err)
			}
		}
	}
	return nil
}

func (t Turn) check() error {
	if t.Repeat < 0 {
		return fmt.Errorf("repeat: %d is less than nothing", t.Repeat)
	}
	if err := t.Expect.check(); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	if err := t.Answer.check(); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

func (e Expect) check() error {
	for at := range e.Body {
		if at != "" && !strings.HasPrefix(at, "/") {
			return fmt.Errorf("body: %q is no JSON pointer; write /model", at)
		}
	}
	for _, want := range []any{e.Query, e.Headers, e.Body, e.Last} {
		if err := checkWanted(want); err != nil {
			return err
		}
	}
	return nil
}

func (a Answer) check() error {
	kinds := 0
	for _, given := range []bool{a.Content != nil, a.Error != nil, a.Raw != nil, a.InputTokens != nil} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("give exactly one of content, error, raw and input_tokens")
	}
	if a.Error != nil && (a.Error.Status < 400 || a.Error.Status > 599) {
		return fmt.Errorf("error: status %d is not from 400 to 599", a.Error.Status)
	}
	if a.Raw != nil && a.Raw.Body != "" && a.Raw.Chunks != nil {
		return fmt.Errorf("raw: give body or chunks")
	}
	for _, p := range a.Pauses {
		if (p.For == 0) == (p.Until == "") || p.BeforeEvent < 0 || p.For < 0 {
			return fmt.Errorf("pauses: give either for or until, and before_event from 0")
		}
	}
	if a.Piece < 0 {
		return fmt.Errorf("piece: %d is less than nothing", a.Piece)
	}
	if a.Cut != nil && !oneOf(a.Cut.By, "break", "hang", "end", "error") {
		return fmt.Errorf("cut: by is %q; it must be break, hang, end or error", a.Cut.By)
	}
	return a.checkContent()
}

func (a Answer) checkContent() error {
	if _, ok := a.Usage.(map[string]any); a.Usage != nil && !ok {
		return fmt.Errorf("usage: it must be an object")
	}
	for i, b := range a.Content {
		block, ok := b.(map[string]any)
		kind, _ := block["type"].(string)
		if !ok || kind == "" {
			return fmt.Errorf("content: block %d has no type", i)
		}
		if _, ok := block["input"]; kind == "tool_use" && (!ok || block["name"] == nil) {
			return fmt.Errorf("content: block %d, a tool_use, needs name and input", i)
		}
	}
	return checkGiven(a.Content)
}

func oneOf(word string, words ...string) bool { return slices.Contains(words, word) }
