package messages_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/files"
	"berth/test/sessiontest"
)

// byID returns a block whose content is a stored file.
func byID(kind, file string) map[string]any {
	return map[string]any{"type": kind, "source": map[string]any{"type": "file", "file_id": file},
		"cache_control": map[string]any{"type": "ephemeral"}}
}

const png = "\x89PNG\r\n\x1a\n and more"

// An upstream does not know the files stored here, so it gets their content. It gets IDs of its own files unchanged.
func TestUpstreamsGetTheContentOfStoredFiles(t *testing.T) {
	const foreign = "file_011CNha8iCJcU1wXNR6q4V8w"
	seen := `[{"type": "text"},
		{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b\n1,2\n"}, "cache_control": {"type": "ephemeral"}},
		{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "` +
		base64.StdEncoding.EncodeToString([]byte("%PDF-1.7\x00")) + `"}},
		{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "` +
		base64.StdEncoding.EncodeToString([]byte(png)) + `"}},
		{"type": "document", "source": {"type": "file", "file_id": "` + foreign + `"}}]`
	ask := func(s *site) []any {
		return []any{map[string]any{"type": "text", "text": "read"}, byID("document", s.upload("a.csv", "a,b\n1,2\n")),
			byID("document", s.upload("a.pdf", "%PDF-1.7\x00")),
			byID("image", s.upload("a.png", png)), byID("document", foreign)}
	}
	t.Run("without the tool", func(t *testing.T) {
		s := newSite(t, `{"turns": [{"expect": {"last": `+seen+
			`}, "answer": {"content": [{"type": "text", "text": "ok"}]}}]}`)
		s.ask(map[string]any{"model": "m", "max_tokens": 9, "messages": []any{
			map[string]any{"role": "user", "content": ask(s)}}})
		s.played()
	})
	t.Run("in each round with it", func(t *testing.T) {
		both(t, func(t *testing.T, stream bool) {
			s := newSite(t, `{"plain": true, "turns": [
				{"expect": {"last": `+seen+
				`}, "answer": {"content": [{"type": "tool_use", "id": "toolu_1", "name": "bash_code_execution", "input": {"command": "echo out"}}]}},
				{"expect": {"body": {"/messages/0/content": `+seen+
				`}}, "answer": {"content": [{"type": "text", "text": "ok"}]}}]}`)
			b := body(bash, "", "stream", stream)
			b["messages"] = []any{map[string]any{"role": "user", "content": ask(s)}}
			s.ask(b)
			s.played()
		})
	})
	t.Run("in a tool's result", func(t *testing.T) {
		s := newSite(
			t,
			`{"turns": [{"expect": {"last": [{"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png"}}]}]},
			"answer": {"content": [{"type": "text", "text": "ok"}]}}]}`)
		s.ask(map[string]any{"model": "m", "max_tokens": 9, "messages": []any{
			map[string]any{"role": "user", "content": "look"},
			map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": "toolu_1",
				"name": "shot", "input": map[string]any{}}}},
			map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result",
				"tool_use_id": "toolu_1", "content": []any{byID("image", s.upload("a.png", png))}}}}}})
		s.played()
	})
	t.Run("when they are counted", func(t *testing.T) {
		s := newSite(
			t,
			`{"turns": [{"expect": {"path": "/v1/messages/count_tokens", "last": [{"source": {"data": "some text"}}]}, "answer": {"input_tokens": 4}}]}`)
		res, err := http.DefaultClient.Do(s.request("/v1/messages/count_tokens",
			encode(t, map[string]any{"model": "m", "tools": body(bash, "")["tools"],
				"messages": []any{map[string]any{"role": "user", "content": []any{
					byID("document", s.upload("a.txt", "some text"))}}}})))
		if err != nil {
			t.Fatal(err)
		}
		s.read(res)
		s.played()
	})
}

// If the caller may not read a file, the upstream gets the ID, and the rest of the request stays unchanged.
func TestFilesOfOthersAreNotEmbedded(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "ok"}]}}]}`)
	theirs, err := s.Files.Put(t.Context(), files.Upload{Owner: "another", Filename: "a.txt"}, strings.NewReader(
		"theirs"))
	if err != nil {
		t.Fatal(err)
	}
	sent := `{"model" : "m", "max_tokens":9,"messages":[ {"role":"user","content":[{"type":"document", "source":{"type":"file","file_id":"` + theirs.ID + `"}}]} ]}`
	s.send([]byte(sent))
	if got := string(s.model.Requests()[0]); got != sent {
		t.Errorf("sent on %s", got)
	}
}

func TestFilesThatNoModelCanRead(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`)
	half := strings.Repeat("0123456789abcdef", 17<<20/16)
	s.refuses(400, []any{byID("document", s.upload("a.bin", "\x00\xff\x01"))}, "file_", "PDF or text",
		"container_upload")
	s.refuses(400, []any{byID("image", s.upload("a.txt", "text"))}, "text/plain", "no image", "container_upload")
	s.refuses(413, []any{byID("document", s.upload("1.txt", half)), byID("document", s.upload("2.txt", half))},
		"33554432", "container_upload")
}

func TestFilesWhoseTimeIsOver(t *testing.T) {
	s := newSite(t, `{"turns": [{"answer": {"content": [{"type": "text", "text": "never"}]}}]}`,
		func(c *config) {
			var err error
			if c.Files, err = files.Open(files.Config{Dir: t.TempDir(), Ledger: c.Ledger, Now: func() time.Time {
				return time.Now().Add(2 * time.Hour)
			}}); err != nil {
				t.Fatal(err)
			}
		})
	f, err := s.Files.Put(t.Context(), files.Upload{Owner: sessiontest.Owner, Filename: "late.txt",
		ExpiresIn: time.Hour}, strings.NewReader("late"))
	if err != nil {
		t.Fatal(err)
	}
	s.refuses(404, []any{byID("document", f.ID)}, f.ID, "expired")
}

// refuses fails the test unless a message is refused with these words before the upstream is asked. It tries the
// message with and without the tool.
func (s *site) refuses(status int, content []any, words ...string) {
	s.t.Helper()
	for _, tool := range []bool{false, true} {
		b := body(bash, "")
		b["messages"] = []any{map[string]any{"role": "user", "content": content}}
		if !tool {
			delete(b, "tools")
		}
		r := s.send(encode(s.t, b))
		if r.status != status || r.msg.Error == nil {
			s.t.Errorf("%d %s", r.status, r.body)
			continue
		}
		for _, word := range words {
			if !strings.Contains(r.msg.Error.Message, word) {
				s.t.Errorf("%q does not say %q", r.msg.Error.Message, word)
			}
		}
	}
	if n := len(s.model.Requests()); n > 0 {
		s.t.Errorf("the upstream was asked %d times", n)
	}
}
