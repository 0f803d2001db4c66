package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"berth/client"
	"berth/proto"
)

// Group 35, what the daemon stores for a tenant beside containers: files, skills, tools, runs of tools, workspaces.
// Each store finds its records by itself, so each has a check of its own that may be missing.
var _ = register(Case{
	Group: 35, Name: "tenants/stored",
	Tries: "use another tenant's stored file, skill, tool, parked run of a tool, and workspace on every documented " +
		"route, in bodies, and find them in lists",
	Wants: "each is answered like one that never existed, and nothing of the other tenant changes",
	Run:   foreignStored,
})

// A hoard is what one tenant has stored, and who may use it.
type hoard struct {
	owner                     *Target
	file, skill, tool, toolID string
	run, container, workspace string
}

// parkedTool is a tool whose runs wait for approval, so that a run can be attacked while it waits.
const parkedTool = `{"name":%q,"tool_type":"code_runner","approval_action":"review",` +
	`"configuration":{"type":"CodeRunner","runtime":"python","code":"def run(input):\n    return 1"}}`

// skillText is the content of a skill's only file.
const skillText = "---\nname: attack\ndescription: of another tenant\n---\n"

// hoard stores one thing of each kind as a tenant. What it stored is removed at the end of the case.
func (t *Target) hoard(ctx context.Context) (h hoard, err error) {
	h.owner, h.tool = t, unique("attack_")
	f, err := t.UploadFile(ctx, client.Upload{Name: "secret.txt", Body: strings.NewReader("secret")})
	if err != nil {
		return h, err
	}
	h.file = f.ID
	t.Later(func(ctx context.Context) error { return t.removed(ctx, "/v1/files/"+h.file) })
	kind, form, err := skillForm()
	if err != nil {
		return h, err
	}
	if h.skill, err = t.stored(ctx, "/v1/skills", kind, form); err != nil {
		return h, err
	}
	t.Later(func(ctx context.Context) error { return t.removed(ctx, "/v1/skills/"+h.skill) })
	const asJSON = "application/json"
	if h.toolID, err = t.stored(ctx, "/v1/tools", asJSON, fmt.Appendf(nil, parkedTool, h.tool)); err != nil {
		return h, err
	}
	t.Later(func(ctx context.Context) error { return t.removed(ctx, "/v1/tools/"+h.tool) })
	if h.run, err = t.stored(ctx, "/v1/tools/"+h.tool+"/run", asJSON, []byte("{}")); err != nil {
		return h, err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	h.container, h.workspace = con.ID, con.WorkspaceID
	return h, err
}

// skillForm returns the body of a request that stores a skill.
func skillForm() (kind string, body []byte, err error) {
	var buf bytes.Buffer
	form := multipart.NewWriter(&buf)
	part, err := form.CreateFormFile("files[]", "attack/SKILL.md")
	if err == nil {
		_, err = part.Write([]byte(skillText))
	}
	if err == nil {
		err = form.Close()
	}
	return form.FormDataContentType(), buf.Bytes(), err
}

// stored makes a request that must store something, and returns its ID.
func (t *Target) stored(ctx context.Context, path, kind string, body []byte) (id string, err error) {
	a, err := t.ask(ctx, http.MethodPost, path, nil, bytes.NewReader(body), "Content-Type", kind)
	if err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(a.body, &made); err != nil || a.status/100 != 2 || made.ID == "" {
		return "", fmt.Errorf("POST %s: %d %.300s", path, a.status, a.body)
	}
	return made.ID, nil
}

// removed deletes something that may be gone.
func (t *Target) removed(ctx context.Context, path string) error {
	a, err := t.ask(ctx, http.MethodDelete, path, nil, nil)
	if err == nil && a.status/100 != 2 && a.status != http.StatusNotFound {
		err = fmt.Errorf("DELETE %s: %d %.300s", path, a.status, a.body)
	}
	return err
}

// never returns a hoard of valid IDs that belong to nothing.
func (h hoard) never() hoard {
	zeros := func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		return kind + "_" + strings.Repeat("0", len(id)-len(kind)-1)
	}
	return hoard{file: zeros(h.file), skill: zeros(h.skill), tool: strings.Repeat("z", len(h.tool)),
		toolID: zeros(h.toolID), run: zeros(h.run), container: zeros(h.container), workspace: zeros(h.workspace)}
}

// names returns what identifies the things.
func (h hoard) names() []string {
	return []string{h.file, h.skill, h.tool, h.toolID, h.run, h.container, h.workspace}
}

// paths returns the path of a route with the IDs of a hoard; nil if it names nothing of a hoard. A tool has two names.
func (h hoard) paths(r route) []string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.path, "/v1/"), "/")
	id := map[string]string{"tool_runs": h.run, "workspaces": h.workspace}[kind]
	switch {
	case !strings.Contains(r.path, "{"):
		return nil
	case kind == "tools":
		return []string{r.at(map[string]string{"name": h.tool}), r.at(map[string]string{"name": h.toolID})}
	case kind == "files" || kind == "skills" || id != "":
		return []string{r.at(map[string]string{"file_id": h.file, "skill_id": h.skill, "version": "latest", "id": id})}
	}
	return nil
}

// foreignStored compares the answers about another tenant's things with those about things that never existed.
func foreignStored(ctx context.Context, t *Target) (string, error) {
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	victim, err := n.hoard(ctx)
	if err != nil {
		return "", err
	}
	routes, err := t.routes(ctx)
	if err != nil {
		return "", err
	}
	tried := 0
	for _, r := range routes {
		never := victim.never().paths(r)
		for i, path := range victim.paths(r) {
			if err := t.sameAnswer(ctx, r, path, never[i]); err != nil {
				return "", err
			}
			tried++
		}
	}
	if tried < 15 {
		return "", fmt.Errorf("the document has only %d routes that name stored things", tried)
	}
	if err := t.foreignInBodies(ctx, victim); err != nil {
		return "", err
	}
	if err := t.foreignInLists(ctx, victim); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d requests were answered as if there were nothing, and so were bodies and lists", tried),
		victim.untouched(ctx)
}

// sameAnswer returns a Breach unless both paths are not found, in the same words.
func (t *Target) sameAnswer(ctx context.Context, r route, path, never string) error {
	var said [2]string
	for i, p := range []string{path, never} {
		var header []string
		body := r.sample()
		if r.method == http.MethodPost && strings.HasPrefix(r.path, "/v1/skills/") {
			kind, form, err := skillForm()
			if err != nil {
				return err
			}
			body, header = bytes.NewReader(form), []string{"Content-Type", kind}
		}
		p, query, _ := strings.Cut(p, "?")
		q, err := url.ParseQuery(query)
		if err != nil {
			return err
		}
		a, err := t.ask(ctx, r.method, p, q, body, header...)
		if err != nil {
			return err
		}
		if a.status != http.StatusNotFound {
			return Breached("%s %s answered another tenant %d: %.200s", r.method, p, a.status, a.body)
		}
		said[i] = errorMessage(a.body)
		for _, part := range strings.Split(p, "/") { // the message repeats the ID of its request
			if len(part) > len("versions") {
				said[i] = strings.ReplaceAll(said[i], part, "ID")
			}
		}
	}
	if said[0] != said[1] {
		return Breached("%s %s tells %q from %q, so that it can be found out what exists", r.method, r.path, said[0],
			said[1])
	}
	return nil
}

// foreignInBodies names another tenant's things in bodies of requests about the attacker's own container.
func (t *Target) foreignInBodies(ctx context.Context, victim hoard) error {
	own, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return err
	}
	at, files := "/v1/containers/"+own.ID, map[string]any{"files": []string{victim.file}}
	command := map[string]any{"command": "true", "files": []string{victim.file}}
	for _, r := range []struct {
		path string
		body map[string]any
	}{
		{"/v1/containers", files}, {"/v1/exec", command}, {at + "/exec", command}, {at + "/inputs", files},
		{"/v1/exec", map[string]any{"command": "true", "create": map[string]any{"workspace_id": victim.workspace}}},
		{"/v1/run_code", map[string]any{"code": "1", "container": victim.container}},
		{"/v1/run_code", map[string]any{"code": "1", "container": victim.container, "context": "main"}},
	} {
		a, err := t.askJSON(ctx, http.MethodPost, r.path, r.body)
		if err != nil {
			return err
		}
		t.forget(&Answer{Body: a.body})
		if err := a.refused(fmt.Sprintf("POST %s with %v", r.path, r.body), proto.NotFound); err != nil {
			return err
		}
	}
	return nil
}

// foreignInLists reads every list, and asks lists about another tenant's things.
func (t *Target) foreignInLists(ctx context.Context, victim hoard) error {
	for _, list := range []struct {
		path  string
		query url.Values
	}{
		{"/v1/containers", nil}, {"/v1/workspaces", nil}, {"/v1/tools", nil}, {"/v1/tool_runs", nil},
		{"/v1/tool_runs", url.Values{"state": {"parked"}}}, {"/v1/files", url.Values{"limit": {"1000"}}},
		{"/v1/files", url.Values{"ids[]": {victim.file}}}, {"/v1/files", url.Values{"scope_id": {victim.container}}},
		{"/v1/skills", url.Values{"limit": {"1000"}}},
	} {
		a, err := t.ask(ctx, http.MethodGet, list.path, list.query, nil)
		if err != nil {
			return err
		}
		if a.status != http.StatusOK {
			return fmt.Errorf("GET %s: %d %.300s", list.path, a.status, a.body)
		}
		for _, name := range victim.names() {
			if bytes.Contains(a.body, []byte(name)) {
				return Breached("GET %s?%s shows %s of another tenant's", list.path, list.query.Encode(), name)
			}
		}
	}
	return nil
}

// untouched returns a Breach unless everything is as its owner has stored it.
func (h hoard) untouched(ctx context.Context) error {
	for path, want := range map[string]string{"/v1/files/" + h.file + "/content": "secret",
		"/v1/skills/" + h.skill: h.skill, "/v1/tools/" + h.tool: `"version":1`, "/v1/tool_runs/" + h.run: `"parked"`} {
		a, err := h.owner.ask(ctx, http.MethodGet, path, nil, nil)
		if err != nil {
			return err
		}
		if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(want)) {
			return Breached("GET %s now answers its owner %d %.300s", path, a.status, a.body)
		}
	}
	return nil
}
