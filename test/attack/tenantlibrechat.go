package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// Groups 35 and 1, the code API of LibreChat: a file is named by a session and an ID, which its application shows to
// people, and names of files say where they go.
var _ = register(
	Case{
		Group: 35, Name: "tenants/librechat",
		Tries: "use another tenant's file and container through the code API of LibreChat: read, list, delete and " +
			"take it into a run of one's own, by their session and by one's own, with the same hint",
		Wants: "none is found, and the other tenant's file stays as it was",
		Run:   foreignLibreChat,
	},
	Case{
		Group: 1, Name: "paths/librechat",
		Tries: "have a run of the code API of LibreChat put its inputs outside /mnt/data by their names: above it, " +
			"absolute, over the program itself",
		Wants: "each is refused",
		Run:   escapingInputs,
	},
)

// An inputFile names a stored file, as clients of LibreChat's code API do.
type inputFile struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Session string `json:"storage_session_id"`
}

// librechatUpload stores a file by the code API of LibreChat.
func (t *Target) librechatUpload(ctx context.Context, name, content string) (f inputFile, err error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {
		fmt.Sprintf(`form-data; name="file"; filename="%s"`, name)}})
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return f, err
	}
	a, err := t.ask(ctx, http.MethodPost, "/librechat/v1/upload", nil, &body, "Content-Type", w.FormDataContentType())
	if err != nil {
		return f, err
	}
	var up struct {
		Session string `json:"storage_session_id"`
		Files   []struct {
			ID string `json:"fileId"`
		} `json:"files"`
	}
	if err := json.Unmarshal(a.body, &up); err != nil || len(up.Files) != 1 {
		return f, fmt.Errorf("an upload was answered %d %.200s", a.status, a.body)
	}
	return inputFile{ID: up.Files[0].ID, Name: name, Session: up.Session}, nil
}

// librechatRun runs code of bash by the code API of LibreChat.
func (t *Target) librechatRun(ctx context.Context, code string, files ...inputFile) (answer, error) {
	return t.askJSON(ctx, http.MethodPost, "/librechat/v1/exec", map[string]any{"lang": "bash", "code": code,
		"files": files, "user_id": "one", "runtime_session_hint": "the same"})
}

func foreignLibreChat(ctx context.Context, t *Target) (string, error) {
	neighbour, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	const secret = "the neighbour's secret"
	theirs, err := neighbour.librechatUpload(ctx, "theirs.txt", secret)
	if err != nil {
		return "", err
	}
	own, err := t.librechatUpload(ctx, "own.txt", "mine")
	if err != nil {
		return "", err
	}
	if a, err := neighbour.librechatRun(ctx, "cp theirs.txt kept.txt", theirs); err != nil ||
		a.status != http.StatusOK {
		return "", fmt.Errorf("the neighbour's run was answered %d %.200s: %w", a.status, a.body, err)
	}
	wishes := 0
	for _, session := range []string{theirs.Session, own.Session} {
		file, as := "/"+session+"/"+theirs.ID, theirs
		as.Session = session
		for _, way := range [][2]string{{"GET", "/download" + file}, {"GET", "/sessions/" + session + "/objects/" +
			theirs.ID}, {"GET", "/download/" + own.Session + "/../" + theirs.Session + "/" + theirs.ID},
			{"DELETE", "/files" + file}} {
			a, err := t.ask(ctx, way[0], "/librechat/v1"+way[1], nil, nil)
			if err != nil {
				return "", err
			}
			if a.status < 400 && a.status != http.StatusTemporaryRedirect && a.status != http.StatusMovedPermanently ||
				strings.Contains(string(a.body), secret) {
				return "", Breached("%s %s was answered %d %.200s", way[0], way[1], a.status, a.body)
			}
			wishes++
		}
		a, err := t.ask(ctx, http.MethodGet, "/librechat/v1/files/"+session, nil, nil)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(a.body), theirs.ID) || strings.Contains(string(a.body), theirs.Name) {
			return "", Breached("the list of %s has the file of another tenant: %.200s", session, a.body)
		}
		if a, err = t.librechatRun(ctx, "cat *", as); err != nil {
			return "", err
		} else if a.status < 400 || strings.Contains(string(a.body), secret) {
			return "", Breached("a run with the file of another tenant was answered %d %.200s", a.status, a.body)
		}
		wishes += 2
	}
	// The same hint of the same user of the application is another container.
	a, err := t.librechatRun(ctx, "cat kept.txt")
	if err != nil {
		return "", err
	}
	if a.status != http.StatusOK || strings.Contains(string(a.body), secret) {
		return "", Breached("a run with another tenant's hint was answered %d %.200s", a.status, a.body)
	}
	file := "/librechat/v1/download/" + theirs.Session + "/" + theirs.ID
	if a, err = neighbour.ask(ctx, http.MethodGet, file, nil, nil); err != nil || string(a.body) != secret {
		return "", Breached("the neighbour's file is %d %.200q now: %v", a.status, a.body, err)
	}
	return fmt.Sprintf("%d wishes were refused", wishes+1), nil
}

func escapingInputs(ctx context.Context, t *Target) (string, error) {
	f, err := t.librechatUpload(ctx, "in.txt", "content")
	if err != nil {
		return "", err
	}
	names := []string{"../in", "a/../../in", "/etc/in", "/mnt/data/../in", "..", ".", "a//b", "a/./b",
		".berth-main.sh", strings.Repeat("x", 300), strings.Repeat("d/", 600) + "x"}
	for _, name := range names {
		f.Name = name
		a, err := t.librechatRun(ctx, "true", f)
		if err != nil {
			return "", err
		}
		if a.status < 400 || a.status >= 500 {
			return "", Breached("an input named %.40q was answered %d %.200s", name, a.status, a.body)
		}
	}
	return fmt.Sprintf("%d names were refused", len(names)), nil
}
