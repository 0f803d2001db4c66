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

// Group 10: the editor. Models edit files with it thousands of times a day, and trust its answers. A wrong
// replacement is worse than an error.
var _ = register(
	// Known bugs of such editors: they normalize line ends, repair invalid UTF-8, or take the first of two matches.
	Case{
		Group: 10, Name: "editor/texts", Inside: true,
		Tries: "replace what is there not at all, once and many times, in texts with CRLF, without line ends, in " +
			"binary files and in a line of 64 MiB",
		Wants: "one match is replaced byte for byte, anything else is an error that leaves the file as it was",
		Run:   editorTexts,
	},
	// Read, change and write are three steps. Without a lock, the second of two edits overwrites the first, and both
	// are reported as done.
	Case{
		Group: 10, Name: "editor/concurrent", Inside: true,
		Tries: "edit 40 lines of one file at once, while commands append to it",
		Wants: "no edit that was told to be done is lost",
		Run:   editorConcurrent,
	},
)

// edit uses the editor and reports whether it did the edit. A refusal is a result with status 200, which a model
// reads like any other. Only its type distinguishes it.
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

// editorTexts edits texts that editors tend to change by accident, and compares all bytes.
func editorTexts(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	fs := t.FS(b.id, proto.UserDefault)
	for i, k := range []struct {
		text, old, now, want string // want is the content of the file after the edit
	}{
		{"one two", "three", "x", "one two"},
		{"one two", "two", "2", "one 2"},
		// A count that continues after each match finds one match and would replace it. But there are two possible
		// places.
		{"aaa", "aa", "b", "aaa"}, // two overlapping matches
		{"a\r\nb\r\nc", "b\r\n", "B\r\n", "a\r\nB\r\nc"},
		// A text with LF matches one with CRLF, and the result must not have both.
		{"a\r\nb\r\n", "a\nb", "x\ny", "x\r\ny\r\n"},
		{"\x00\x01\xff\xfebin", "bin", "BIN", "\x00\x01\xff\xfeBIN"},
		{"bad\xffutf", "utf", "UTF", "bad\xffUTF"},
		{"", "x", "y", ""},
		// A line of 1 MiB, for readers with a line buffer of fixed size.
		{strings.Repeat("l", 1<<20) + "end", "lend", "", strings.Repeat("l", 1<<20-1)},
		// This text is a pattern and a template of regular expressions; here it must be plain bytes.
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

// editorLarge gives the editor a file that is too large. 64 MiB is far above the editor's limit, and on one line a
// view would have to return all of it.
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
		// It must not be done, and the error must not repeat the line.
		if done || len(a.body) > 1<<20 {
			return "", Breached("%s of a line of 64 MiB: %.200s", command, a.body)
		}
	}
	return "matches were replaced byte for byte, the rest refused", b.t.alive(ctx, b.id)
}

// editorConcurrent edits forty lines of one file concurrently. An edit may be refused, but one that was reported as
// done must be in the file.
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
	// Every line must still exist: reading the file during a write would have lost some.
	if counted == 0 || strings.Count(text, "line") != n {
		return "", Breached("%d of %d edits were done, %d lines are left", counted, n, strings.Count(text, "line"))
	}
	return fmt.Sprintf("all %d edits that were told as done are in the file", counted), nil
}
