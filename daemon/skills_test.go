package daemon_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/test/daemontest"
)

// TestSkillsOutliveTheDaemon checks that skills survive a kill, that changes in the skills directory need no restart,
// and that a broken upload leaves nothing behind.
func TestSkillsOutliveTheDaemon(t *testing.T) {
	shelf := t.TempDir()
	put := func(description string) {
		t.Helper()
		dir := filepath.Join(shelf, "xlsx")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte("---\nname: xlsx\ndescription: "+description+
			"\n---\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("Sheets.")
	d, err := daemontest.New("--stop-on-exit", "--warm-max", "0", "--skills", shelf, "--skill-max-bytes", "100000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &server{d}
	id := s.uploadSkill(t, 200, "notes/SKILL.md", "---\nname: notes\ndescription: Notes.\n---\n")
	s.uploadSkill(t, 413, "notes/SKILL.md", "---\nname: notes\ndescription: Notes.\n---\n"+strings.Repeat("x", 100_000))

	type list struct {
		Data []struct{ ID, Description string }
	}
	listed := func() string {
		var ids []string
		for _, k := range call[list](t, s, 200, "GET", "/v1/skills", "").Data {
			ids = append(ids, k.ID)
		}
		return strings.Join(ids, " ")
	}
	if got := listed(); got != id+" xlsx" {
		t.Errorf("listed %s", got)
	}
	s.Stop(syscall.SIGKILL)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != id+" xlsx" {
		t.Errorf("after a kill: %s", got)
	}
	_, archive, err := s.Do("GET", "/v1/skills/"+id+"/versions/latest/content", nil)
	if err != nil {
		t.Fatal(err)
	}
	if z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive))); err != nil || len(z.File) != 1 ||
		z.File[0].Name != "notes/SKILL.md" {
		t.Errorf("its archive: %v, %v", z, err)
	}
	put("Sheets, and more.")
	if v := call[list](t, s, 200, "GET", "/v1/skills/xlsx/versions", "").Data; len(v) != 1 ||
		v[0].Description != "Sheets, and more." {
		t.Errorf("the provided skill: %+v", v)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "skills")); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// uploadSkill posts a skill with one file.
func (s *server) uploadSkill(t *testing.T, want int, path, text string) string {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	w, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {fmt.Sprintf(`form-data; name="files[]"; filename="%s"`, path)}})
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/skills", &body)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Api-Key": s.Key, "anthropic-version": "2023-06-01",
		"Content-Type": form.FormDataContentType()} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var made struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || res.StatusCode != want {
		t.Fatalf("a skill of %d bytes: %d, %v", len(text), res.StatusCode, err)
	}
	return made.ID
}
