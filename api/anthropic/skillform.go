package anthropic

import (
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"berth/api"
	"berth/api/forms"
	"berth/proto"
	"berth/tools/skills"
)

// A skillForm is an upload of a skill: files, each with its path as its filename, or one zip archive.
type skillForm struct {
	skills.Upload
	title string
	parts int
	zip   bool
}

// createSkill stores the files of a form as a new skill.
func (e edge) createSkill(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	f, err := e.readSkill(r, c)
	if err != nil {
		return err
	}
	defer f.Close()
	k, err := f.Create(f.title)
	if err != nil {
		return err
	}
	api.Note(r.Context(), k.ID)
	return api.JSON(w, http.StatusOK, describeSkill(k, olderSkills(r)))
}

// createSkillVersion stores the files of a form as the newest version of a skill.
func (e edge) createSkillVersion(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	id := r.PathValue("skill_id")
	if _, err := e.Skills.Get(r.Context(), c.Owner, id); err != nil {
		return err // before reading the files
	}
	f, err := e.readSkill(r, c)
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := f.Release(r.Context(), id)
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, describeSkillVersion(v, olderSkills(r)))
}

// readSkill reads a whole form. The caller closes it.
func (e edge) readSkill(r *http.Request, c api.Caller) (*skillForm, error) {
	parts, err := forms.Open(r)
	if err != nil {
		return nil, err
	}
	draft, err := e.SkillChanges.NewDraft(r.Context(), c.Owner)
	if err != nil {
		return nil, err
	}
	f := &skillForm{Upload: draft}
	if err := forms.Each(parts, maxSkillParts, f.readPart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxSkillParts bounds the parts of a form. The store bounds the files.
const maxSkillParts = 10_000

// readPart reads one part.
func (f *skillForm) readPart(d map[string]string, part forms.Part) error {
	switch name := d["name"]; {
	case name == "display_name" || name == "display_title":
		return f.readTitle(name, part)
	case name == "files" || strings.HasPrefix(name, "files["):
		return f.addFile(d["filename"], part)
	}
	return nil
}

// maxTitleBytes is longer than any valid title.
const maxTitleBytes = 2048

func (f *skillForm) readTitle(field string, part forms.Part) error {
	text, err := io.ReadAll(io.LimitReader(part, maxTitleBytes))
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return proto.Invalid(field, "%s is not UTF-8.", field)
	}
	f.title = string(text)
	return nil
}

// addFile adds one file. A zip archive is the only file and in no directory; inside the skill's directory it is a
// file like any other.
func (f *skillForm) addFile(name string, part forms.Part) error {
	archive := !strings.Contains(name, "/") && strings.HasSuffix(strings.ToLower(name), ".zip")
	if f.zip || archive && f.parts > 0 {
		return proto.Invalid("files", "A zip archive must be the only file of the form.")
	}
	f.parts++
	if archive {
		f.zip = true
		return f.AddZip(name, part)
	}
	return f.Add(name, false, part)
}
