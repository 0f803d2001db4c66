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

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Request holds the members of a Messages request that chat completions can express. A member that they cannot
// express is refused if the answer would be another one without it. All others are dropped, and Ignored names them:
// clients send new ones with each version.
type Request struct {
	Model         string        `json:"model"`
	MaxTokens     int64         `json:"max_tokens"`
	Messages      []turn        `json:"messages"`
	System        content       `json:"system"`
	StopSequences []string      `json:"stop_sequences"`
	Temperature   *float64      `json:"temperature"`
	TopP          *float64      `json:"top_p"`
	Stream        bool          `json:"stream"`
	Tools         []tool        `json:"tools"`
	ToolChoice    *toolChoice   `json:"tool_choice"`
	OutputConfig  *outputConfig `json:"output_config"`
	OutputFormat  *outputFormat `json:"output_format"` // earlier name of output_config.format

	Others map[string]jsontext.Value `json:",embed"`

	ignored []string // what was dropped, sorted, each once
}

// refused are members without which an answer would be another one: tools that the model does not get, a request for
// a summary in place of an answer.
var refused = []string{"mcp_servers", "container", "compaction"}

// ErrThread means that a request belongs to a thread, whose earlier messages only the hosted API has.
var ErrThread = errors.New("thread: this model's upstream has no message threads; send the whole history without it")

// A turn is one message.
type turn struct {
	Role         string                    `json:"role"`
	Content      content                   `json:"content"`
	ClearAt      string                    `json:"clear_at"`      // for system: when it is not shown any more
	OutputConfig map[string]jsontext.Value `json:"output_config"` // for system: dropped
}

// A content is a list of blocks. In JSON, a string stands for one text block, and the results of server tools have an
// object.
type content []block

// UnmarshalJSON reads a string, a list of blocks or one block.
func (c *content) UnmarshalJSON(data []byte) error {
	if data[0] == '{' {
		*c = make(content, 1)
		return jsonv2.Unmarshal(data, &(*c)[0])
	}
	var text string
	if json.Unmarshal(data, &text) == nil && string(data) != "null" {
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	var list []block
	err := jsonv2.Unmarshal(data, &list)
	*c = list
	return err
}

// A block is a content block of any supported type.
type block struct {
	Type      string         `json:"type"`
	Text      string         `json:"text"`
	Source    source         `json:"source"` // for image, document and search_result
	Title     string         `json:"title"`
	Context   string         `json:"context"`
	Citations jsontext.Value `json:"citations"`

	ID    string         `json:"id"` // for tool_use
	Name  string         `json:"name"`
	Input jsontext.Value `json:"input"`

	ToolUseID string  `json:"tool_use_id"` // for tool_result
	Content   content `json:"content"`
	IsError   bool    `json:"is_error"`

	ToolName string      `json:"tool_name"` // for tool_reference
	Tool     *toolChange `json:"tool"`      // for tool_addition and tool_removal
}

// A toolChange names or defines a tool that is added or removed in the middle of a conversation.
type toolChange struct {
	Type       string `json:"type"` // tool_reference or tool_definition
	Name       string `json:"name"`
	Definition *tool  `json:"definition"`
}

type source struct {
	Type      string  `json:"type"` // base64, url or text
	MediaType string  `json:"media_type"`
	Data      string  `json:"data"`
	URL       string  `json:"url"`
	Content   content `json:"content"` // for a document made of blocks
	Name      string  `json:"-"`       // of a search_result, whose source is a string
}

// UnmarshalJSON reads an object, or the string that a search_result has.
func (s *source) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &s.Name)
	}
	type plain source
	return jsonv2.Unmarshal(data, (*plain)(s))
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

// ReadRequest decodes a Messages request.
func ReadRequest(body []byte) (*Request, error) {
	var r Request
	if err := jsonv2.Unmarshal(body, &r); err != nil {
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
	case len(r.Messages) == 0:
		return nil, errors.New("messages: at least one message is required")
	}
	return &r, nil
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
