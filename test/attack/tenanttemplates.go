package attack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"berth/proto"
)

// Group 35, templates of E2B's clients: builds and the files for them belong to an owner, and a template to who made it,
// although all administrators share one store of images.
var _ = register(Case{
	Group: 35, Name: "tenants/templates",
	Tries: "build, tag and delete templates without an administrator's key; and with one of another owner read the " +
		"build, copy the files, alter the signed link of an upload and take the name of a tenant's template or of an " +
		"image of the daemon",
	Wants: "each is refused, and what is not one's own is not found",
	Run:   foreignTemplates,
})

// templateBuild is a build that a tenant has ordered and uploaded files for.
type templateBuild struct {
	name, id, hash string
	link           *url.URL
}

// orderTemplate orders a build, and uploads the files of a COPY step for it.
func (t *Target) orderTemplate(ctx context.Context) (b templateBuild, err error) {
	b.name = "attack-" + strings.ToLower(rand.Text())
	sum := sha256.Sum256([]byte(b.name))
	b.hash = hex.EncodeToString(sum[:])
	a, err := t.askJSON(ctx, http.MethodPost, "/v3/templates", map[string]any{"name": b.name})
	if err != nil {
		return b, err
	}
	var made struct {
		BuildID string `json:"buildID"`
	}
	if err := json.Unmarshal(a.body, &made); err != nil || a.status != http.StatusAccepted {
		return b, fmt.Errorf("an order was answered %d %.200s", a.status, a.body)
	}
	b.id = made.BuildID
	a, err = t.ask(ctx, http.MethodGet, "/templates/"+b.name+"/files/"+b.hash, nil, nil)
	if err != nil {
		return b, err
	}
	var up struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(a.body, &up); err != nil {
		return b, fmt.Errorf("the question for files was answered %d %.200s", a.status, a.body)
	}
	if b.link, err = url.Parse(up.URL); err != nil {
		return b, err
	}
	var body bytes.Buffer
	w := tar.NewWriter(&body)
	const secret = "the other tenant's secret"
	err = w.WriteHeader(&tar.Header{Name: "secret.txt", Mode: 0o644, Size: int64(len(secret))})
	if err == nil {
		_, err = io.WriteString(w, secret)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return b, err
	}
	if a, err = t.ask(ctx, http.MethodPut, b.link.Path, b.link.Query(), &body); err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("an upload was answered %d %.200s", a.status, a.body)
	}
	return b, err
}

func foreignTemplates(ctx context.Context, t *Target) (string, error) {
	neighbour, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	key, err := t.Client.CreateKey(ctx, proto.CreateKey{Name: "berth attack: another administrator", Admin: true,
		Owner: "attack-templates", ExpiresInSeconds: 3600})
	if err != nil {
		return "", err
	}
	defer func() { _, _ = t.Client.RevokeKey(context.WithoutCancel(ctx), key.ID) }() // it expires within the hour
	other := *t
	other.Key = key.Secret
	theirs, err := other.orderTemplate(ctx)
	if err != nil {
		return "", err
	}
	copies := map[string]any{"fromImage": "base", "steps": []any{map[string]any{"type": "COPY",
		"args": []string{"secret.txt", "/"}, "filesHash": theirs.hash}}}
	ways := []templateWay{
		{neighbour, "POST", "/v3/templates", map[string]any{"name": theirs.name}},
		{neighbour, "POST", "/v2/templates", map[string]any{"alias": "attack-own"}},
		{neighbour, "GET", "/templates/attack-own/files/" + theirs.hash, nil},
		{neighbour, "POST", "/v2/templates/" + theirs.name + "/builds/" + theirs.id, copies},
		{neighbour, "DELETE", "/templates/base", nil},
		{neighbour, "POST", "/templates/tags", map[string]any{"target": "base", "tags": []string{"mine"}}},
		{neighbour, "DELETE", "/templates/tags", map[string]any{"name": "base", "tags": []string{"default"}}},
		{neighbour, "GET", "/templates/" + theirs.name + "/builds/" + theirs.id + "/status", nil},
		{t, "GET", "/templates/" + theirs.name + "/builds/" + theirs.id + "/status", nil},
		{t, "GET", "/templates/" + theirs.name + "/builds/" + theirs.id + "/logs", nil},
		{t, "POST", "/v2/templates/" + theirs.name + "/builds/" + theirs.id, map[string]any{"fromImage": "base"}},
		{t, "POST", "/v3/templates", map[string]any{"name": theirs.name}},
		{t, "POST", "/v3/templates", map[string]any{"name": "base"}},
		{t, "POST", "/v3/templates", map[string]any{"name": "attack-x", "tags": []string{"v1", "../base"}}},
		{t, "DELETE", "/templates/base", nil},
		{t, "DELETE", "/templates/tags", map[string]any{"name": "base", "tags": []string{"default"}}},
		{t, "POST", "/templates/tags", map[string]any{"target": "base", "tags": []string{"attack"}}},
	}
	for _, w := range ways {
		a, err := w.from.askJSON(ctx, w.method, w.path, w.body)
		if err != nil {
			return "", err
		}
		if a.status < 400 || a.status >= 500 {
			return "", Breached("%s %s was answered %d %.200s", w.method, w.path, a.status, a.body)
		}
	}
	n, err := t.foreignUploads(ctx, theirs, copies)
	return fmt.Sprintf("%d ways were refused", len(ways)+n), err
}

// A templateWay is a request that must be refused.
type templateWay struct {
	from         *Target
	method, path string
	body         any
}

// foreignUploads tries to reach the files of another tenant's build, and to upload in its name.
func (t *Target) foreignUploads(ctx context.Context, theirs templateBuild, copies map[string]any) (n int, err error) {
	own, err := t.orderTemplate(ctx)
	if err != nil {
		return n, err
	}
	a, err := t.ask(ctx, http.MethodGet, "/templates/"+own.name+"/files/"+theirs.hash, nil, nil)
	if err != nil {
		return n, err
	}
	if strings.Contains(string(a.body), `"present":true`) {
		return n, Breached("the files of another tenant are there: %.200s", a.body)
	}
	a, err = t.askJSON(ctx, http.MethodPost, "/v2/templates/"+own.name+"/builds/"+own.id, copies)
	if err != nil {
		return n, err
	}
	if a.status < 400 {
		return n, Breached("a build with another tenant's files was answered %d %.200s", a.status, a.body)
	}
	for name, value := range map[string]string{"owner": "attack-templates", "key": "key_0000000000000000000000",
		"expires": "99999999999", "signature": strings.Repeat("0", 64)} {
		q := own.link.Query()
		q.Set(name, value)
		if a, err = t.ask(ctx, http.MethodPut, own.link.Path, q, strings.NewReader("x")); err != nil {
			return n, err
		}
		if a.status < 400 {
			return n, Breached("an upload by a link with another %s was answered %d", name, a.status)
		}
		n++
	}
	at := strings.Replace(own.link.Path, own.hash, theirs.hash, 1)
	if a, err = t.ask(ctx, http.MethodPut, at, own.link.Query(), strings.NewReader("x")); err != nil {
		return n, err
	}
	if a.status < 400 {
		return n, Breached("an upload by the link for other files was answered %d", a.status)
	}
	return n + 3, nil
}
