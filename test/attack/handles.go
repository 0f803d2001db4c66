package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// Groups 26, 27 and 47: the IDs of containers, and what remains of a deleted or partly created container. IDs are
// random and long, but no secrets: they appear in logs and URLs. The check of the owner protects a container.
var _ = register(
	Case{
		// If an ID were reused, its next owner would get the requests of the previous one.
		Group: 26, Name: "handles/after-delete",
		Tries: "use the ID of a deleted container on every documented route while new ones are made",
		Wants: "404 or 410 each time, never the new container",
		Run:   afterDelete,
	},
	// Clients may disconnect at any moment. A container whose ID reached no client uses up its owner's quota until it
	// expires.
	Case{
		Group: 27, Name: "create/client-gone",
		Tries: "go away at different moments while containers are being made for it",
		Wants: "what was made can be seen and deleted; nothing else is left",
		Run:   clientGone,
	},
	// If the answers for "not yours" and "does not exist" differ, any client can find out which IDs exist.
	Case{
		Group: 47, Name: "handles/guessing",
		Tries: "IDs next to one that exists, of other kinds, in other letters, longer, with paths in them",
		Wants: "404 each time, in words that do not tell one from another",
		Run:   guessIDs,
	},
	// A cursor is a second way to name an object, which checks of IDs may forget.
	Case{
		Group: 47, Name: "handles/tampered-cursors",
		Tries: "page through lists with cursors that are another tenant's, deleted, cut, swapped or made up",
		Wants: "400 or a page of one's own; never another tenant's",
		Run:   tamperedCursors,
	},
	// Labels appear in lists and logs, and are stored next to the fields of a container. A label with the name of a
	// field must not become that field.
	Case{
		Group: 47, Name: "handles/labels",
		Tries: "labels with control characters, of 1 MiB, a hundred of them, named like fields of a container, with " +
			"the separators of the query",
		Wants: "refused by name, or kept as they are without touching any field",
		Run:   labelInjection,
	},
	// Pages by offset skip a container for each one that was deleted meanwhile. A cleanup that uses such a list
	// leaves some.
	Case{
		Group: 47, Name: "handles/pages-under-deletes",
		Tries: "page through a list while what it shows, and the cursor itself, is deleted",
		Wants: "each container that stays is listed exactly once",
		Run:   pagesUnderDeletes,
	},
)

// afterDelete tries each route of the API document, so a new route is tried, too.
func afterDelete(ctx context.Context, t *Target) (string, error) {
	old, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	res, err := t.Bash(ctx, old.ID, "echo old > mark")
	if err != nil {
		return "", err
	}
	if _, err := t.Delete(ctx, old.ID, false); err != nil {
		return "", err
	}
	next, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	routes, err := t.routes(ctx)
	if err != nil {
		return "", err
	}
	tried := 0
	for _, r := range routes {
		if !strings.Contains(r.path, "/containers/{id}") {
			continue
		}
		a, err := t.ask(ctx, r.method, r.at(map[string]string{"id": old.ID, "exec": res.Exec.ID,
			"job": res.Exec.JobID}), nil, r.sample())
		if err != nil {
			return "", err
		}
		// 410 is for an ID that is known to have existed, 404 for one that is forgotten; both are right.
		if a.status != http.StatusNotFound && a.status != http.StatusGone || strings.Contains(string(a.body), next.ID) {
			return "", Breached("%s %s was answered %d: %.200s", r.method, r.path, a.status, a.body)
		}
		tried++
	}
	return fmt.Sprintf("%d routes, all 404 or 410", tried), nil
}

// clientGone disconnects after 0, 2, 8, 18 and more milliseconds, up to a quarter of a second, which is about the
// duration of a create.
func clientGone(ctx context.Context, t *Target) (string, error) {
	label := unique("gone-")
	mine := client.Filter{Labels: []string{"attack=" + label}}
	for i := range 12 {
		short, cancel := context.WithTimeout(ctx, time.Duration(i*i)*2*time.Millisecond)
		con, err := t.Create(short, proto.CreateContainer{Labels: map[string]string{"attack": label},
			MaxLifetimeSeconds: 600})
		cancel()
		if err == nil {
			t.made = append(t.made, con.ID)
		}
	}
	var list []proto.Container
	settled := func() bool { // a running create is listed until it has ended
		var err error
		if list, err = t.Containers(ctx, mine); err != nil {
			return false
		}
		for _, con := range list {
			if con.State == proto.StateCreating {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(time.Minute); !settled(); time.Sleep(100 * time.Millisecond) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return "", Breached("a minute later some are still being made: %v", list)
		}
	}
	for _, con := range list {
		if _, err := t.Delete(ctx, con.ID, false); err != nil {
			return "", Breached("container %s, which nobody was told of, cannot be deleted: %v", con.ID, err)
		}
	}
	// The list by label is the only way for a client to find a container whose ID it did not receive.
	if again, err := t.Containers(ctx, mine); err != nil || len(again) > 0 {
		return "", Breached("%d are left (%v)", len(again), err)
	}
	return fmt.Sprintf("12 clients left; %d containers were there, and could be listed and deleted", len(list)), nil
}

// guessIDs asks for a neighbour's container by its ID and by other IDs.
func guessIDs(ctx context.Context, t *Target) (string, error) {
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	con, err := n.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	id := con.ID
	last := id[len(id)-1]
	tries := []string{id, id[:len(id)-1], id + "0", strings.ToLower(id), strings.ToUpper(id), "workspace_" +
		id[len("container_"):], id[:len(id)-1] + string(last^1),
		"container_" + strings.Repeat("0", 22), "container_" + strings.Repeat("z", 22), con.WorkspaceID, "*", "%",
		"container_%", "..", ".", "~", "null", "undefined", "0", "-1", "' OR 1=1 --", "{id}",
		url.PathEscape("../" + id), url.PathEscape(id + "\n"), url.PathEscape(id + "\x00"),
		url.PathEscape("\u202e" + id)}
	// The messages for well-formed IDs must be the same, apart from the ID.
	said := map[string]bool{}
	for _, guess := range tries {
		a, err := t.Raw(ctx, "GET", "/v1/containers/"+url.PathEscape(strings.TrimSpace(guess)), t.KeyHeader(), nil)
		if err != nil {
			return "", err
		}
		if a.Status != http.StatusNotFound {
			return "", Breached("%q was answered %d: %.200s", guess, a.Status, a.Body)
		}
		// A malformed ID may be reported as such; that reveals nothing about existing IDs.
		if proto.ValidID(proto.ContainerPrefix, guess) {
			said[strings.ReplaceAll(errorMessage(a.Body), guess, "ID")] = true
		}
	}
	if len(said) != 1 {
		return "", Breached("an ID that another tenant has is told from one that nobody has: %v", said)
	}
	return fmt.Sprintf("%d guesses, all 404", len(tries)), nil
}

// tamperedCursors requests pages after IDs of other owners.
func tamperedCursors(ctx context.Context, t *Target) (string, error) {
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	theirs, err := n.Container(ctx, proto.CreateContainer{Labels: map[string]string{"secret": "theirs"}})
	if err != nil {
		return "", err
	}
	for _, path := range []string{"/v1/containers?after=", "/v1/files?page=", "/v1/files?after_id=",
		"/v1/files?before_id="} {
		for _, cursor := range []string{theirs.ID, theirs.ID[:10], "container_" + strings.Repeat("z", 22),
			"container_" + strings.Repeat("0", 22), "file_" + strings.Repeat("z", 22), "%00", "..%2f..", "eyJpZCI6MX0",
			strings.Repeat("A", 5000), "-1", "0"} {
			a, err := t.ask(ctx, "GET", path+cursor, nil, nil, "anthropic-beta", "files-api-2025-04-14")
			if err != nil {
				return "", err
			}
			// The neighbour's label proves that one of its containers was shown. An error may repeat the ID of the
			// request.
			if a.status >= 500 || strings.Contains(string(a.body), `"theirs"`) || a.status < 400 &&
				strings.Contains(string(a.body), theirs.ID) {
				return "", Breached("%s%.40s was answered %d: %.200s", path, cursor, a.status, a.body)
			}
		}
	}
	return "refused, or a page of one's own", nil
}

// labelInjection tries labels that could break a log line, a terminal or a query, and then odd labels that are
// allowed.
func labelInjection(ctx context.Context, t *Target) (string, error) {
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprint("l", i)] = "x"
	}
	for what, labels := range map[string]map[string]string{
		"a line end in the value": {"a": "b\nlevel=ERROR msg=forged"}, "a line end in the key": {"a\nb": "c"},
		"an escape": {"a": "\x1b[2J"}, "a NUL": {"a": "\x00"}, "C1 control": {"a": "\u009b31m"},
		"1 MiB": {"a": strings.Repeat("x", 1<<20)}, "a key of 300": {strings.Repeat("k", 300): "x"},
		"no key": {"": "x"}, "a hundred": many,
	} {
		con, err := t.Container(ctx, proto.CreateContainer{Labels: labels})
		if _, err := Refused(err, proto.InvalidArgument, proto.TooLarge); err != nil {
			return "", fmt.Errorf("%s (container %q): %w", what, con.ID, err)
		}
	}
	// These are valid: the owner may choose any name for a label, as long as it stays a label. containerd.io/gc.root
	// would affect the image store if labels were passed on to it.
	odd := map[string]string{"id": "container_0000000000000000000000", "owner": "admin", "state": "expired",
		"containerd.io/gc.root": "x", "a=b": "c", "x,y": "&state=expired", "__proto__": "1", "ключ": "значение"}
	con, err := t.Container(ctx, proto.CreateContainer{Labels: odd})
	if err != nil {
		return "", err
	}
	got, err := t.Client.Container(ctx, con.ID)
	if err != nil {
		return "", err
	}
	if got.ID != con.ID || got.State != proto.StateRunning || len(got.Labels) != len(odd) {
		return "", Breached("the labels changed the container: %+v", got)
	}
	// A comma, an ampersand and an equals sign would each end a label in a filter that is built as text.
	list, err := t.Containers(ctx, client.Filter{Labels: []string{"x,y=&state=expired", "owner=admin"}})
	if err != nil || len(list) != 1 || list[0].ID != con.ID {
		return "", Breached("listing by odd labels found %d (%v)", len(list), err)
	}
	return "refused by name, or kept without effect", nil
}

// pagesUnderDeletes deletes the last container of each page before it requests the next page.
func pagesUnderDeletes(ctx context.Context, t *Target) (string, error) {
	label := unique("pages-")
	var ids []string
	for range 6 {
		con, err := t.Container(ctx, proto.CreateContainer{Labels: map[string]string{"attack": label}})
		if err != nil {
			return "", err
		}
		ids = append(ids, con.ID)
	}
	seen, gone, after := map[string]int{}, map[string]bool{}, ""
	// Six containers in pages of two are three pages. Stop after ten pages, in case the list never ends.
	for range 10 {
		a, err := t.ask(ctx, "GET", "/v1/containers", url.Values{"label": {"attack=" + label}, "limit": {"2"},
			"after": {after}}, nil)
		if err != nil {
			return "", err
		}
		page, err := decodePage(a)
		if err != nil {
			return "", err
		}
		for _, con := range page.Data {
			seen[con.ID]++
		}
		if !page.HasMore {
			break
		}
		after = page.Data[len(page.Data)-1].ID // deletes the cursor itself
		if _, err := t.Delete(ctx, after, false); err != nil {
			return "", err
		}
		gone[after] = true
	}
	for _, id := range ids {
		if !gone[id] && seen[id] != 1 {
			return "", Breached("a container that stayed was listed %d times", seen[id])
		}
	}
	return fmt.Sprintf("%d deleted between the pages; the others were listed once each", len(gone)), nil
}

type containerPage struct {
	Data    []proto.Container `json:"data"`
	HasMore bool              `json:"has_more"`
}

// decodePage decodes a page. A page that cannot be decoded is a fault of the daemon.
func decodePage(a answer) (page containerPage, err error) {
	if a.status != http.StatusOK {
		return page, Breached("a page was answered %d: %.200s", a.status, a.body)
	}
	if err := a.decode(&page); err != nil {
		return page, errors.New("a page is not what it should be")
	}
	return page, nil
}
