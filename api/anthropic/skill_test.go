package anthropic

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/files"
)

// provide has a skill that everybody has.
func (d *desk) provide(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(d.shelf, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(skillText(name)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func skillText(name string) string {
	return "---\nname: " + name + "\ndescription: What it is for.\n---\n"
}

// skillPart is a file of a skill in a form.
func skillPart(path, text string) part {
	return part{`form-data; name="files[]"; filename="` + path + `"`, "application/octet-stream", text}
}

func (d *desk) createSkill(t *testing.T, parts ...part) answer {
	t.Helper()
	kind, body := formOf(parts...)
	return d.do(t, "POST", "/v1/skills", bytes.NewReader(body), "Content-Type", kind)
}

func TestSkillForms(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	notes := skillPart("notes/SKILL.md", skillText("notes"))
	made := d.createSkill(t, notes, fieldPart("display_name", "Nötes"), fieldPart("color", "blue")).wantOK(t)
	if got := keysOf(made.json); got != "created_at display_name id latest_version_id source type updated_at" ||
		made.str("display_name") != "Nötes" {
		t.Errorf("made %s", made.body)
	}
	older := d.do(t, "GET", "/v1/skills/"+made.str("id"), nil, "anthropic-beta",
		"code-execution-2025-08-25,skills-2025-10-02").wantOK(t)
	if got := keysOf(older.json); got != "created_at display_title id latest_version source type updated_at" ||
		older.str("source") != "custom" {
		t.Errorf("older dialect: %s", older.body)
	}
	for name, parts := range map[string][]part{
		"no files":        {fieldPart("display_name", "x")},
		"archive and all": {notes, skillPart("more.zip", "PK")},
		"no archive":      {skillPart("notes.zip", "PK")},
		"control":         {notes, fieldPart("display_name", "a\nb")},
		"no name":         {part{`form-data; name="files[]"`, "", "x"}},
	} {
		t.Run(name, func(t *testing.T) { d.createSkill(t, parts...).wantError(t, 400, "invalid_request_error", "") })
	}
	d.createSkill(t, notes, skillPart("notes/big", strings.Repeat("x", 31<<20))).wantError(t, 413, "request_too_large",
		"")
	kind, body := formOf(notes)
	d.do(t, "POST", "/v1/skills", bytes.NewReader(body[:len(body)-10]), "Content-Type", kind).wantError(
		t, 400, "invalid_request_error", "")
	if left, err := filepath.Glob(filepath.Join(d.dir, "skills", "draft-*")); err != nil || len(left) > 0 {
		t.Errorf("refused forms left %v, %v", left, err)
	}
}

func TestSkillsAreTheirOwners(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	d.provide(t, "xlsx")
	made := d.createSkill(t, skillPart("notes/SKILL.md", skillText("notes"))).wantOK(t)
	path, bob := "/v1/skills/"+made.str("id"), "Bearer "+bobKey
	kind, body := formOf(skillPart("notes/SKILL.md", skillText("notes")))
	for _, try := range [][2]string{{"GET", path}, {"DELETE", path}, {"GET", path + "/versions"},
		{"GET", path + "/versions/latest"}, {"GET", path + "/versions/latest/content"},
		{"DELETE", path + "/versions/" + made.str("latest_version_id")}} {
		d.do(t, try[0], try[1], nil, "Authorization", bob).wantError(t, 404, "not_found_error", "")
	}
	d.do(t, "POST", path+"/versions", bytes.NewReader(body), "Content-Type", kind, "Authorization", bob).wantError(
		t, 404, "not_found_error", "")
	if got := d.do(t, "GET", "/v1/skills", nil, "Authorization", bob).wantOK(t).ids(); len(got) != 1 ||
		got[0] != "xlsx" {
		t.Errorf("bob sees %v", got)
	}
	if got := d.do(t, "GET", "/v1/skills", nil).wantOK(t).ids(); len(got) != 2 || got[1] != "xlsx" {
		t.Errorf("ann sees %v", got)
	}
	d.do(t, "DELETE", "/v1/skills/xlsx", nil).wantError(t, 403, "permission_error", "")
	d.do(t, "GET", "/v1/skills?source=plugin", nil).wantError(t, 400, "invalid_request_error", "")
	d.do(t, "GET", "/v1/skills?page=page_nonsense", nil).wantError(t, 400, "invalid_request_error", "")
}
