package history

import (
	"bytes"
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

// Read splits the messages of a request, which are known to be valid JSON. It goes through them once.
func Read(messages json.RawMessage) (list []Message, err error) {
	if messages = bytes.TrimSpace(messages); len(messages) == 0 || messages[0] != '[' {
		return nil, errNoMessages()
	}
	var blocks []Block // of the current message
	rawjson.Walk(messages, 0, func(_ []byte, at int) (end int) {
		if messages[at] != '{' {
			if err == nil {
				err = proto.Invalid("messages", "messages.%d must be an object", len(list))
			}
			return rawjson.SkipValue(messages, at)
		}
		m, hasRole, hasContent := Message{}, false, false
		end = rawjson.Walk(messages, at, func(name []byte, at int) (end int) {
			switch {
			case !hasContent && rawjson.IsText(name, "content"):
				if hasContent = true; messages[at] != '[' {
					break
				}
				blocks, end = readBlocks(blocks[:0], messages, at)
				m.Blocks = append(make([]Block, 0, len(blocks)), blocks...)
				return end
			case !hasRole && rawjson.IsText(name, "role"):
				hasRole, end = true, rawjson.SkipValue(messages, at)
				m.Role = rawjson.Text(messages[at:end])
				return end
			}
			return rawjson.SkipValue(messages, at)
		})
		m.Raw = messages[at:end:end]
		list = append(list, m)
		return end
	})
	if err == nil && len(list) == 0 {
		err = errNoMessages()
	}
	return list, err
}

func errNoMessages() error {
	return proto.Invalid("messages", "messages must be an array with at least one message")
}

// readBlocks appends the blocks of the list at a place in the messages, and returns its end.
func readBlocks(list []Block, messages json.RawMessage, at int) (all []Block, end int) {
	end = rawjson.Walk(messages, at, func(_ []byte, at int) (end int) {
		kind, hasKind := "", false
		end = rawjson.Walk(messages, at, func(name []byte, at int) (end int) {
			end = rawjson.SkipValue(messages, at)
			if !hasKind && rawjson.IsText(name, "type") {
				kind, hasKind = rawjson.Text(messages[at:end]), true
			}
			return end
		})
		list = append(list, Block{messages[at:end:end], kind})
		return end
	})
	return list, end
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
