// Package chat translates Messages requests to chat completions, and the answers back, whole or as a stream. It does
// not send anything; package upstream does.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/gateway/messages/rawjson"
	"berth/proto"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Request holds the members of a Messages request that chat completions can express. A member that they cannot
// express is refused if the answer would be another one without it. All others are dropped, and Ignored names them:
// clients send new ones with each version.
type Request struct {
	Model         string        `json:"model"`
	MaxTokens     int64         `json:"max_tokens"`
	StopSequences []string      `json:"stop_sequences"`
	Temperature   *float64      `json:"temperature"`
	TopP          *float64      `json:"top_p"`
	Stream        bool          `json:"stream"`
	Tools         []tool        `json:"tools"`
	ToolChoice    *toolChoice   `json:"tool_choice"`
	OutputConfig  *outputConfig `json:"output_config"`
	OutputFormat  *outputFormat `json:"output_format"` // earlier name of output_config.format

	Others map[string]jsontext.Value `json:",embed"`

	turns   []turn // these three are parts of the body, and nil after Encode
	system  []block
	changes []changeBlock   // in the turns
	size    int             // of the body
	callIDs map[string]bool // of all calls in the turns, for the answer
	ignored []string        // what was dropped, sorted, each once
}

// refused are members without which an answer would be another one: tools that the model does not get, a request for
// a summary in place of an answer.
var refused = []string{"mcp_servers", "container", "compaction"}

// ErrThread means that a request belongs to a thread, whose earlier messages only the hosted API has.
var ErrThread = errors.New("thread: this model's upstream has no message threads; send the whole history without it")

// A toolChange names or defines a tool that is added or removed in the middle of a conversation.
type toolChange struct {
	Type       string `json:"type"` // tool_reference or tool_definition
	Name       string `json:"name"`
	Definition *tool  `json:"definition"`
}

type tool struct {
	Type           string                    `json:"type"`
	Name           string                    `json:"name"`
	Description    string                    `json:"description"`
	InputSchema    map[string]jsontext.Value `json:"input_schema"`
	Strict         *bool                     `json:"strict"`
	AllowedCallers []string                  `json:"allowed_callers"`

	Others map[string]jsontext.Value `json:",embed"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

type outputConfig struct {
	Format *outputFormat `json:"format"`

	Others map[string]jsontext.Value `json:",embed"`
}

type outputFormat struct {
	Type   string         `json:"type"`
	Schema jsontext.Value `json:"schema"`
}

// ReadRequest decodes a Messages request. It keeps parts of the body.
func ReadRequest(body []byte) (*Request, error) {
	all, err := rawjson.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("the body is no JSON: %s", proto.AsError(err).Message)
	}
	r := Request{size: len(body), callIDs: map[string]bool{}}
	if err := jsonv2.Unmarshal(all.Without("messages", "system").Raw(), &r); err != nil {
		return nil, readError(err)
	}
	if !isNothing(r.Others["thread"]) {
		return nil, ErrThread
	}
	for _, name := range refused {
		if !isNothing(r.Others[name]) {
			return nil, cannotEncode("%s", name)
		}
	}
	r.ignoreAll("", r.Others)
	if r.OutputConfig != nil {
		r.ignoreAll("output_config.", r.OutputConfig.Others)
	}
	switch {
	case r.Model == "":
		return nil, errors.New("model: it is missing")
	case r.MaxTokens < 1:
		return nil, errors.New("max_tokens: it must be there, and at least 1")
	}
	if r.system, err = readContent("system", all.Get("system")); err != nil {
		return nil, err
	}
	return &r, r.readTurns(all.Get("messages"))
}

// readTurns splits the messages.
func (r *Request) readTurns(raw json.RawMessage) error {
	list, ok := rawjson.Elements(raw)
	if !ok || len(list) == 0 {
		return errors.New("messages: it must be a list with at least one message")
	}
	r.turns = make([]turn, len(list))
	for i, one := range list {
		if one[0] != '{' {
			return fmt.Errorf("messages.%d: it must be an object", i)
		}
		r.turns[i] = turn{one, rawjson.Text(rawjson.Member(one, "role"))}
	}
	return nil
}

// A changeBlock is a block tool_addition or tool_removal, and where the request has what it names.
type changeBlock struct {
	block
	where string
}

// note keeps what later steps need of a message: the IDs of calls, and changes of the tools.
func (r *Request) note(where string, blocks []block) {
	for k, b := range blocks {
		switch b.kind {
		case "tool_use":
			r.callIDs[b.text("id")] = true
		case "tool_addition", "tool_removal":
			r.changes = append(r.changes, changeBlock{b, fmt.Sprintf("%s.content.%d.tool", where, k)})
		}
	}
}

func readError(err error) error {
	var syntax *jsontext.SyntacticError
	var meaning *jsonv2.SemanticError
	switch {
	case errors.As(err, &meaning):
		return fmt.Errorf("%s: it cannot be %s", strings.TrimPrefix(strings.ReplaceAll(string(meaning.JSONPointer), "/",
			"."), "."), meaning.JSONKind)
	case errors.As(err, &syntax):
		return fmt.Errorf("the body is no JSON, at byte %d: %v", syntax.ByteOffset, syntax.Err)
	}
	return errors.New("the body is no JSON")
}

// cannotEncode returns the error for a part of a request that chat completions cannot express.
func cannotEncode(format string, args ...any) error {
	return fmt.Errorf("%s: this model's upstream speaks chat completions, which cannot express it; leave it out, or "+
		"ask a model of another upstream", fmt.Sprintf(format, args...))
}

// isNothing reports whether a value is as good as left out.
func isNothing(value jsontext.Value) bool {
	text := strings.TrimSpace(string(value))
	return text == "" || text == "null" || text == "[]" || text == "{}" || text == "false"
}

// maxIgnored is how many different names Ignored may return.
const maxIgnored = 40

// memberName matches the names that may stand in a header.
var memberName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,80}$`)

// ignore records that a part of the request is dropped.
func (r *Request) ignore(name string) {
	if at, known := slices.BinarySearch(r.ignored, name); !known && len(r.ignored) < maxIgnored &&
		memberName.MatchString(name) {
		r.ignored = slices.Insert(r.ignored, at, name)
	}
}

// ignoreAll records the members of an object that are dropped and ask for something.
func (r *Request) ignoreAll(prefix string, members map[string]jsontext.Value) {
	for name, value := range members {
		if !isNothing(value) {
			r.ignore(prefix + name)
		}
	}
}

// Ignored returns the parts of the request that Encode has dropped, such as "thinking" and "tools.defer_loading".
func (r *Request) Ignored() []string { return r.ignored }
