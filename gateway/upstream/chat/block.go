package chat

import (
	"encoding/json"
	"fmt"

	"berth/gateway/messages/rawjson"

	jsonv2 "github.com/go-json-experiment/json"
)

// A turn is one message of a request. Its blocks are read when they are needed: histories have many.
type turn struct {
	raw  json.RawMessage
	role string
}

// blocks returns the content blocks of the message.
func (m turn) blocks(where string) ([]block, error) {
	return readContent(where+".content", rawjson.Member(m.raw, "content"))
}

// A block is a content block of any type. It is part of the body, so that long texts are neither decoded nor copied
// before they are written for the upstream.
type block struct {
	raw   json.RawMessage
	kind  string // its type
	plain bool   // raw is a string, which stands for a text block
}

// readContent splits content: a list of blocks, or a string, which stands for one text block. null and nothing are no
// blocks.
func readContent(where string, raw json.RawMessage) ([]block, error) {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return nil, nil
	case raw[0] == '"':
		return []block{{raw: raw, kind: "text", plain: true}}, nil
	}
	list, ok := rawjson.Elements(raw)
	if !ok {
		return nil, fmt.Errorf("%s: it must be a string or a list of blocks", where)
	}
	blocks := make([]block, len(list))
	for i, one := range list {
		if one[0] != '{' {
			return nil, fmt.Errorf("%s.%d: it must be an object", where, i)
		}
		blocks[i] = block{raw: one, kind: rawjson.Text(rawjson.Member(one, "type"))}
	}
	return blocks, nil
}

// content splits the content of the block itself.
func (b block) content(where string) ([]block, error) {
	return readContent(where+".content", rawjson.Member(b.raw, "content"))
}

// text returns a short member.
func (b block) text(name string) string { return rawjson.Text(rawjson.Member(b.raw, name)) }

// words are a text as it stands in JSON between its quotes.
type words []byte

// wordsOf returns the words of a value, or nil if it is no string.
func wordsOf(raw json.RawMessage) words {
	if len(raw) < 2 || raw[0] != '"' {
		return nil
	}
	return words(raw[1 : len(raw)-1])
}

// spoken returns the words of a text of ours.
func spoken(text string) words { return wordsOf(rawjson.Marshal(text)) }

// words returns the words of a member. source is the member that has it, or "" if the block has it.
func (b block) words(source, name string) words {
	raw := b.raw
	switch {
	case b.plain:
		return wordsOf(raw)
	case source != "":
		raw = rawjson.Member(raw, source)
	}
	return wordsOf(rawjson.Member(raw, name))
}

// toolChange returns what a block tool_addition or tool_removal changes, or nil if it cannot be read.
func (b block) toolChange() *toolChange {
	var c toolChange
	if jsonv2.Unmarshal(rawjson.Member(b.raw, "tool"), &c) != nil {
		return nil
	}
	return &c
}

// wantsCitations reports whether the answer is to cite the block.
func (b block) wantsCitations() bool {
	return string(rawjson.Member(rawjson.Member(b.raw, "citations"), "enabled")) == "true"
}

// appendJoined appends texts as one string, with a text of ours between them.
func appendJoined(b []byte, list []words, between string) []byte {
	b = append(b, '"')
	for i, w := range list {
		if i > 0 {
			b = append(b, between...)
		}
		b = append(b, w...)
	}
	return append(b, '"')
}

// Between texts, as JSON.
const (
	paragraph = `\n\n`
	newline   = `\n`
)
