package attack

import (
	"archive/tar"
	"bytes"
	"context"
	"net/url"
	"strings"

	"berth/proto"
)

// A box is a container with one of its users. Most cases about files use it.
type box struct {
	t  *Target
	id string
	as string
}

// box creates a container of the target's class.
func (t *Target) box(ctx context.Context, req proto.CreateContainer) (box, error) {
	con, err := t.Container(ctx, req)
	return box{t, con.ID, proto.UserDefault}, err
}

// root returns the same container with its root user.
func (b box) root() box { return box{b.t, b.id, proto.UserRoot} }

// at returns the path of one of the container's routes.
func (b box) at(what string) string { return "/v1/containers/" + b.id + "/" + what }

// query returns the query for a path, the user, and further parameters of a verb.
func (b box) query(path string, more ...string) url.Values {
	q := url.Values{"path": {path}, "as": {b.as}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

// A verb is one API operation on a path. A case that uses all verbs need not change when the API gets another.
type verb struct {
	name   string
	writes bool
	do     func(ctx context.Context, b box, path string) (answer, error)
}

// get returns a verb that reads.
func get(what string) func(context.Context, box, string) (answer, error) {
	return func(ctx context.Context, b box, path string) (answer, error) {
		return b.t.ask(ctx, "GET", b.at("fs/"+what), b.query(path), nil)
	}
}

// note is the text that writing verbs write.
const note = "written by an attack"

// replacing reports whether the verb may replace a link. Such verbs work on the link and not on its target, like
// rename and unlink.
func (v verb) replacing() bool { return v.name == "remove" || strings.HasPrefix(v.name, "move") }

// verbs are all API operations on paths in a container.
var verbs = []verb{
	{"read", false, get("content")},
	{"stat", false, get("stat")},
	{"list", false, get("list")},
	{"tar", false, get("tar")},
	{"view", false, editor("view", nil)},
	{"write", true, func(ctx context.Context, b box, path string) (answer, error) {
		return b.t.ask(ctx, "PUT", b.at("fs/content"), b.query(path, "mode", "0666"), strings.NewReader(note))
	}},
	{"untar", true, func(ctx context.Context, b box, path string) (answer, error) {
		return b.t.ask(ctx, "PUT", b.at("fs/tar"), b.query(path), bytes.NewReader(
			archiveOf(tar.Header{Name: "secret", Mode: 0o666}, note)))
	}},
	{"mkdir", true, func(ctx context.Context, b box, path string) (answer, error) {
		return b.t.askJSON(ctx, "POST", b.at("fs/mkdir"), map[string]string{"path": path, "as": b.as})
	}},
	{"create", true, editor("create", map[string]any{"file_text": note})},
	{"str_replace", true, editor("str_replace", map[string]any{"old_str": "e", "new_str": "E"})},
	{"insert", true, editor("insert", map[string]any{"insert_line": 0, "insert_text": note})},
	// Create something to move each time.
	{"move here", true, func(ctx context.Context, b box, path string) (answer, error) {
		if a, err := b.t.ask(ctx, "PUT", b.at("fs/content"), b.query("/workspace/movable"), strings.NewReader(
			note)); err != nil || a.status != 200 {
			return a, err
		}
		return b.t.askJSON(ctx, "POST", b.at("fs/move"), map[string]string{"from": "/workspace/movable", "to": path,
			"as": b.as})
	}},
	{"move away", true, func(ctx context.Context, b box, path string) (answer, error) {
		return b.t.askJSON(ctx, "POST", b.at("fs/move"), map[string]string{"from": path, "to": "/workspace/moved",
			"as": b.as})
	}},
	{"remove", true, func(ctx context.Context, b box, path string) (answer, error) {
		return b.t.ask(ctx, "DELETE", b.at("fs/content"), b.query(path, "recursive", "true"), nil)
	}},
}

// editor returns a verb of the editor tool. Its refusals are results, so the status should always be 200. The editor
// acts as the requesting user through the same guest, and is another way to open a path.
func editor(command string, input map[string]any) func(context.Context, box, string) (answer, error) {
	return func(ctx context.Context, b box, path string) (answer, error) {
		in := map[string]any{"command": command, "path": path}
		for k, v := range input {
			in[k] = v
		}
		return b.t.askJSON(ctx, "POST", b.at("tool_use"), map[string]any{
			"type": "server_tool_use", "id": "srvtoolu_1", "name": "text_editor_code_execution", "input": in,
		})
	}
}

// archiveOf returns a tar archive with one member that holds body. The header may announce another size.
func archiveOf(h tar.Header, body string) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if h.Typeflag == 0 {
		h.Typeflag = tar.TypeReg
	}
	if h.Typeflag == tar.TypeReg && h.Size == 0 {
		h.Size = int64(len(body))
	}
	if err := w.WriteHeader(&h); err != nil {
		panic(err) // an error in this package
	}
	_, _ = w.Write([]byte(body))
	_ = w.Flush() // not Close, which fails if the header announced more than body
	buf.Write(make([]byte, 1024))
	return buf.Bytes()
}
