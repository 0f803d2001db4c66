// Package chat translates Messages requests to chat completions, and the answers back, whole or as a stream. It does
// not send anything; package upstream does.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"berth/gateway/upstream/answer"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Request holds the members of a Messages request that chat completions can express. A member that they
// cannot express is refused if it would change the answer. Hints are accepted and dropped.
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

	// Hints: accepted and dropped.
	Metadata     jsontext.Value `json:"metadata"`
	ServiceTier  jsontext.Value `json:"service_tier"`
	Thinking     jsontext.Value `json:"thinking"`
	CacheControl jsontext.Value `json:"cache_control"`
	InferenceGeo jsontext.Value `json:"inference_geo"`
	Speed        jsontext.Value `json:"speed"`

	Others map[string]jsontext.Value `json:",embed"` // refused unless empty
}

type turn struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// A content is a list of blocks. In JSON, a string stands for one text block.
type content []block

// UnmarshalJSON reads a string or a list of blocks.
func (c *content) UnmarshalJSON(data []byte) error {
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
	Type   string  `json:"type"`
	Text   string  `json:"text"`
	Source *source `json:"source"` // for image and document
	Title  string  `json:"title"`

	ID    string         `json:"id"` // for tool_use
	Name  string         `json:"name"`
	Input jsontext.Value `json:"input"`

	ToolUseID string  `json:"tool_use_id"` // for tool_result
	Content   content `json:"content"`
	IsError   bool    `json:"is_error"`
}

type source struct {
	Type      string  `json:"type"` // base64, url or text
	MediaType string  `json:"media_type"`
	Data      string  `json:"data"`
	URL       string  `json:"url"`
	Content   content `json:"content"` // for a document made of blocks
}

type tool struct {
	Type           string                    `json:"type"`
	Name           string                    `json:"name"`
	Description    string                    `json:"description"`
	InputSchema    map[string]jsontext.Value `json:"input_schema"`
	Strict         *bool                     `json:"strict"`
	DeferLoading   bool                      `json:"defer_loading"`
	AllowedCallers []string                  `json:"allowed_callers"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

type outputConfig struct {
	Format *struct {
		Type   string         `json:"type"`
		Schema jsontext.Value `json:"schema"`
	} `json:"format"`
}

// ReadRequest decodes a Messages request.
func ReadRequest(body []byte) (*Request, error) {
	var r Request
	if err := jsonv2.Unmarshal(body, &r); err != nil {
		return nil, readError(err)
	}
	for name, value := range r.Others {
		if text := strings.TrimSpace(string(value)); text != "null" && text != "[]" && text != "{}" {
			return nil, cannotEncode("%s", answer.Short(name))
		}
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
