package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"berth/proto"
)

// Group 10: the editor.
// Models edit files with it, thousands of times a day, and believe what it answers. A wrong replacement is
// worse than an error.
var _ = register(
	// Line ends that are made alike, invalid UTF-8 that is mended, and the first of two matches taken: all
	// of them were bugs of such editors.
	Case{
		Group: 10, Name: "editor/texts", Inside: true,
		Tries: "replace what is there not at all, once and many times, in texts with CRLF, without line ends, in " +
			"binary files and in a line of 64 MiB",
		Wants: "one match is replaced byte for byte, anything else is an error that leaves the file as it was",
		Run:   editorTexts,
	},
	// Read, change and write are three steps. Without a lock, the second of two edits writes over the
	// first and both are told as done.
	Case{
		Group: 10, Name: "editor/concurrent", Inside: true,
		Tries: "edit 40 lines of one file at once, while commands append to it",
		Wants: "no edit that was told to be done is lost",
		Run:   editorConcurrent,
	},
)

// edit uses the editor, and reports whether it did what it was asked for.
// An editor's refusal is a result, in a 200, so that a model reads it like any other; the type alone tells
// one from the other.
func (b box) edit(ctx context.Context, path, command string, input map[string]any) (done bool, a answer, err error) {
	if a, err = editor(command, input)(ctx, b, path); err != nil {
		return false, a, err
	}
	var res struct {
		Content struct {
			Type string `json:"type"`
		} `json:"content"`
	}
	if err := json.Unmarshal(a.body, &res); err != nil || a.status != 200 {
		return false, a, Breached("the editor answered %d %.200s", a.status, a.body)
	}
	return !strings.HasSuffix(res.Content.Type, "_error"), a, nil
}

// editorTexts replaces in texts that editors like to change on the way, and compares all bytes.
func editorTexts(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	fs := t.FS(b.id, proto.UserDefault)
	for i, k := range []struct {
		text, old, now, want string // want is what the file then holds
	}{
		{"one two", "three", "x", "one two"},
		{"one two", "two", "2", "one 2"},
		// A count that goes on behind a match finds one, and would replace it; there are two places that
		// it could mean.
		{"aaa", "aa", "b", "aaa"}, // two matches that overlap
		{"a\r\nb\r\nc", "b\r\n", "B\r\n", "a\r\nB\r\nc"},
		// A text with LF must not match one with CRLF, or the result would mix both.
		{"a\r\nb\r\n", "a\nb", "x", "a\r\nb\r\n"},
		{"\x00\x01\xff\xfebin", "bin", "BIN", "\x00\x01\xff\xfeBIN"},
		{"bad\xffutf", "utf", "UTF", "bad\xffUTF"},
		{"", "x", "y", ""},
		// A line of a mebibyte, for what reads by lines into a buffer of fixed size.
		{strings.Repeat("l", 1<<20) + "end", "lend", "", strings.Repeat("l", 1<<20-1)},
		// The same text is a pattern and a template to a regular expression; here it is bytes alone.
		{"$1 \\1 &", "$1", "\\0&$$", "\\0&$$ \\1 &"},
	} {
		path := fmt.Sprintf("/workspace/texts/%d", i)
		if _, err := fs.Write(ctx, path, 0, strings.NewReader(k.text), int64(len(k.text))); err != nil {
			return "", err
		}
		done, a, err := b.edit(ctx, path, "str_replace", map[string]any{"old_str": k.old, "new_str": k.now})
		if err != nil {
			return "", err
		}
		got, err := t.ask(ctx, "GET", b.at("fs/content"), b.query(path), nil)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(got.body, []byte(k.want)) || done != (k.want != k.text) {
			return "", Breached("replacing %.20q with %.20q in %.20q: %.200s; the file then holds %.40q", k.old, k.now,
				k.text, a.body, got.body)
		}
	}
	return b.editorLarge(ctx)
}

// editorLarge gives the editor more than it takes.
// 64 MiB is far above the editor's limit, and as one line also what a view would have to answer whole.
func (b box) editorLarge(ctx context.Context) (string, error) {
	const path = "/workspace/texts/large"
	if _, err := b.t.Output(ctx, b.id, "", "head -c 64M /dev/zero | tr '\\0' l >"+path); err != nil {
		return "", err
	}
	for _, command := range []string{"view", "str_replace", "insert"} {
		done, a, err := b.edit(ctx, path, command, map[string]any{"old_str": "lx", "new_str": "y", "insert_line": 1,
			"insert_text": "z"})
		if err != nil {
			return "", err
		}
		// Neither may it be done, nor may the error repeat the line.
		if done || len(a.body) > 1<<20 {
			return "", Breached("%s of a line of 64 MiB: %.200s", command, a.body)
		}
	}
	return "matches were replaced byte for byte, the rest refused", b.t.alive(ctx, b.id)
}

// editorConcurrent edits forty lines of one file at once. An edit may be refused; one that was told as
// done has to be there.
func editorConcurrent(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const n, path = 40, "/workspace/shared/f"
	if _, err := t.Output(ctx, b.id, "", fmt.Sprintf("mkdir -p /workspace/shared; for i in $(seq %d); do echo "+
		"\"line <$i>\"; done >%s", n, path)); err != nil {
		return "", err
	}
	done, errs := make([]bool, n+1), make([]error, n+1)
	var wg sync.WaitGroup
	for i := 1; i <= n; i++ {
		wg.Go(func() {
			done[i], _, errs[i] = b.edit(ctx, path, "str_replace", map[string]any{"old_str": fmt.Sprintf("<%d>", i),
				"new_str": fmt.Sprintf("(%d)", i)})
		})
	}
	wg.Wait()
	text, err := t.Output(ctx, b.id, "", "cat "+path)
	if err != nil {
		return "", err
	}
	counted := 0
	for i := 1; i <= n; i++ {
		if errs[i] != nil {
			return "", errs[i]
		}
		if done[i] != strings.Contains(text, fmt.Sprintf("(%d)", i)) {
			return "", Breached("edit %d was told as done: %v; the file does not agree", i, done[i])
		}
		if done[i] {
			counted++
		}
	}
	// Every line must still be there: a file that was read while it was being written would have lost
	// some.
	if counted == 0 || strings.Count(text, "line") != n {
		return "", Breached("%d of %d edits were done, %d lines are left", counted, n, strings.Count(text, "line"))
	}
	return fmt.Sprintf("all %d edits that were told as done are in the file", counted), nil
}
