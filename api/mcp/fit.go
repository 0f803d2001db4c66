package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/files"
	"berth/proto"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of the result of a tool call, in bytes of its JSON. A call that reports progress is answered with an event,
// and the Python SDK refuses an event of more than 1 MiB.
const (
	maxAnswer     = 1<<20 - 16<<10 // the whole result; the rest is for the message around it
	maxEmbedded   = 640 << 10      // pictures and contents of files; what exceeds this is a link
	maxStructured = 640 << 10      // structured content
	maxTwice      = 64 << 10       // what may be both text and structured content
	minText       = 8 << 10        // what a text has at least after it was cut
)

// fit makes a result small enough for every client: it cuts the longest texts. What else may be long is bounded where
// it is made.
func (c *call) fit(res *sdk.CallToolResult) {
	for {
		over := len(encode(res)) - maxAnswer
		if over <= 0 {
			return
		}
		longest := longestText(res.Content)
		if longest == nil || jsonLen(longest.Text) <= minText {
			res.Content = []sdk.Content{text(fmt.Sprintf("Error: the answer has %d bytes more than the limit of %d; "+
				"have the tool write it to a file, and read the file in parts", over, maxAnswer))}
			res.StructuredContent, res.IsError = nil, true
			return
		}
		longest.Text = cutText(longest.Text, max(minText, jsonLen(longest.Text)-over))
	}
}

// longestText returns the longest text of a content, or nil.
func longestText(content []sdk.Content) (longest *sdk.TextContent) {
	for _, part := range content {
		if t, ok := part.(*sdk.TextContent); ok && (longest == nil || len(t.Text) > len(longest.Text)) {
			longest = t
		}
	}
	return longest
}

// takeRoom reports whether a picture or file whose JSON has that many bytes still fits beside those before it.
func (c *call) takeRoom(size int) bool {
	if c.embedded+size > maxEmbedded {
		return false
	}
	c.embedded += size
	return true
}

// base64Len is the length of data in JSON.
func base64Len(data []byte) int { return (len(data) + 2) / 3 * 4 }

// picture returns a picture as content, or a link if the answer has no room for it.
func (c *call) picture(ctx context.Context, name, media string, data []byte) sdk.Content {
	if c.takeRoom(base64Len(data)) {
		return &sdk.ImageContent{MIMEType: media, Data: data}
	}
	return c.storedLink(ctx, "The picture", name, media, data)
}

// storedLink stores data that do not fit into the answer, and returns a link. what names them in a note.
func (c *call) storedLink(ctx context.Context, what, name, media string, data []byte) sdk.Content {
	f, err := c.Files.Put(ctx, files.Upload{Owner: c.peer.owner, Filename: name, MIMEType: media, Downloadable: true,
		Scope: c.containerID(), SizeBytes: int64(len(data))}, bytes.NewReader(data))
	if err != nil {
		return text(fmt.Sprintf("%s has %d bytes, which does not fit into the answer, and was not stored: %s", what,
			len(data), proto.AsError(err).Message))
	}
	c.addAuditItems(f.ID)
	c.notes = append(c.notes, fmt.Sprintf("%s has %d bytes, which does not fit into the answer; read the stored file "+
		"%s%s", strings.ToLower(what[:1])+what[1:], len(data), fileURI, f.ID))
	return linkTo(f)
}

// cutMark replaces the middle of a text, as in the results of commands.
const cutMark = "\n[output truncated: %d bytes left out]\n"

var cutMarks = regexp.MustCompile(`\n\[output truncated: (\d+) bytes left out\]\n`)

// cutText leaves out the middle of a text, so that its JSON has at most limit bytes. What an earlier cut left out there
// is counted again.
func cutText(s string, limit int) string {
	if jsonLen(s) <= limit {
		return s
	}
	side := max(0, limit-2*len(cutMark)) / 2
	head, tail := len(s), 0
	room := side
	for i, r := range s {
		if room -= runeJSON(r); room < 0 {
			head = i
			break
		}
	}
	room = side
	for tail = len(s); tail > head; {
		r, n := utf8.DecodeLastRuneInString(s[:tail])
		if room -= runeJSON(r); room < 0 {
			break
		}
		tail -= n
	}
	dropped := tail - head
	for _, m := range cutMarks.FindAllStringSubmatch(s[head:tail], -1) {
		if n, err := strconv.Atoi(m[1]); err == nil {
			dropped += n - len(m[0])
		}
	}
	return s[:head] + fmt.Sprintf(cutMark, dropped) + s[tail:]
}

// jsonLen is the most bytes that a text has as a JSON string.
func jsonLen(s string) int {
	n := len(`""`)
	for _, r := range s {
		n += runeJSON(r)
	}
	return n
}

// runeJSON is the most bytes that a character has in a JSON string of Go's encoder, which escapes for HTML, too.
func runeJSON(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
		return 2
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029', r == utf8.RuneError, r == 0x7f:
		return 6
	}
	return utf8.RuneLen(r)
}

// cutLines is cutText for lines. They count together.
func cutLines(lines []string, limit int) []string {
	all := strings.Join(lines, "")
	if jsonLen(all) <= limit {
		return lines
	}
	return proto.LogLines(cutText(all, limit))
}

// largestFirst returns the keys of a map, those with the largest values first.
func largestFirst[V ~[]byte](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := len(m[b]) - len(m[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return keys
}

// encode marshals v, which cannot fail for the types used here.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}
