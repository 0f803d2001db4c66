package history

import (
	"encoding/json"

	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// A Message is a message of a request, split once.
type Message struct {
	Raw    json.RawMessage // as the client sent it
	Role   string
	Blocks []Block // nil: its content is no list
}

// A Block is a content block. It is part of the text of its message, so that a history with many small blocks takes
// little memory beside its text.
type Block struct {
	Raw  json.RawMessage
	Kind string // its type; "": it is no object, or has none
}

// Read splits the messages of a request, which are known to be valid JSON.
func Read(messages json.RawMessage) (list []Message, err error) {
	all, ok := rawjson.Elements(messages)
	if !ok || len(all) == 0 {
		return nil, proto.Invalid("messages", "messages must be an array with at least one message")
	}
	list = make([]Message, len(all))
	for i, raw := range all {
		if raw[0] != '{' {
			return nil, proto.Invalid("messages", "messages.%d must be an object", i)
		}
		list[i] = Message{Raw: raw, Role: rawjson.Text(rawjson.Member(raw, "role")),
			Blocks: blocksOf(rawjson.Member(raw, "content"))}
	}
	return list, nil
}

// blocksOf splits the content of a message, or returns nil if that is no list.
func blocksOf(content json.RawMessage) []Block {
	raws, ok := rawjson.Elements(content)
	if !ok {
		return nil
	}
	return BlocksOf(raws)
}

// BlocksOf returns blocks that are known to be valid JSON.
func BlocksOf(raws []json.RawMessage) []Block {
	list := make([]Block, len(raws))
	for i, raw := range raws {
		list[i] = BlockOf(raw)
	}
	return list
}

// BlockOf returns a block that is known to be valid JSON.
func BlockOf(raw json.RawMessage) Block { return Block{raw, rawjson.Text(rawjson.Member(raw, "type"))} }

// Get returns a member's value, or nil if there is none.
func (b Block) Get(name string) json.RawMessage { return rawjson.Member(b.Raw, name) }

// Text returns a string member, or "" if there is none or it is not a string.
func (b Block) Text(name string) string { return rawjson.Text(b.Get(name)) }

// object splits the block, or returns nil if it is no object.
func (b Block) object() rawjson.Object {
	o, _ := rawjson.Known(b.Raw)
	return o
}
