package anthropic

import (
	"cmp"
	"encoding/base64"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"berth/api"
	"berth/proto"
	"berth/tools/skills"
)

// This file has the Skills API in two dialects. Clients that send the skills beta use other names, and mean the time
// of a version where others mean its ID.
//
//	header              a skill has                       a version has                 to delete
//	none                display_name, latest_version_id   skver_…                       a skill, with its versions
//	skills-2025-10-02   display_title, latest_version     a number, and its directory   versions, and then the skill

// olderSkills reports whether a client uses the older dialect.
func olderSkills(r *http.Request) bool { return hasBeta(r, "skills-2025-10-02") }

// A skill has the fields of a skill in both dialects.
type skill struct {
	ID        string     `json:"id"`
	Type      string     `json:"type" schema:"const=skill"`
	CreatedAt proto.Time `json:"created_at"`
	UpdatedAt proto.Time `json:"updated_at"`
}

type skillGA struct {
	skill
	DisplayName     string      `json:"display_name"`
	LatestVersionID string      `json:"latest_version_id"`
	Source          skillSource `json:"source"`
}

type skillSource struct {
	Type string `json:"type" schema:"enum=custom|anthropic"`
}

// LatestVersion is null if no version is left, which only clients of this dialect can cause.
type skillOlder struct {
	skill
	DisplayTitle  string  `json:"display_title"`
	LatestVersion *string `json:"latest_version"`
	Source        string  `json:"source"`
}

func describeSkill(k skills.Skill, older bool) any {
	common := skill{k.ID, "skill", proto.At(k.Created), proto.At(k.Updated)}
	if !older {
		return skillGA{common, k.DisplayName, k.Latest.ID, skillSource{k.Source}}
	}
	out := skillOlder{skill: common, DisplayTitle: k.DisplayName, Source: k.Source}
	if k.Latest.ID != "" {
		name := olderName(k.Latest)
		out.LatestVersion = &name
	}
	return out
}

// olderName returns the older dialect's name of a version.
func olderName(v skills.Version) string {
	if v.Number == 0 {
		return v.ID
	}
	return strconv.FormatInt(v.Number, 10)
}

// A skillVersion has the fields of a version in both dialects.
type skillVersion struct {
	ID          string     `json:"id"`
	Type        string     `json:"type" schema:"const=skill_version"`
	SkillID     string     `json:"skill_id"`
	CreatedAt   proto.Time `json:"created_at"`
	Name        string     `json:"name"`
	Description string     `json:"description"`
}

type skillVersionOlder struct {
	skillVersion
	Directory string `json:"directory"`
	Version   string `json:"version"`
}

func describeSkillVersion(v skills.Version, older bool) any {
	common := skillVersion{v.ID, "skill_version", v.SkillID, proto.At(v.Created), v.Name, v.Description}
	if older {
		return skillVersionOlder{common, v.Name, olderName(v)}
	}
	return common
}

func (e edge) getSkill(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	k, err := e.Skills.Get(r.Context(), c.Owner, r.PathValue("skill_id"))
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, describeSkill(k, olderSkills(r)))
}

func (e edge) getSkillVersion(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	v, err := e.Skills.Version(r.Context(), c.Owner, r.PathValue("skill_id"), r.PathValue("version"))
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, describeSkillVersion(v, olderSkills(r)))
}

// A skillList is a page. NextPage is null at the end.
type skillList struct {
	Data     []any   `json:"data"`
	HasMore  bool    `json:"has_more"`
	NextPage *string `json:"next_page"`
}

func (e edge) listSkills(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	q := r.URL.Query()
	source := q.Get("source")
	if source != "" && source != skills.Custom && source != skills.Provided {
		return proto.Invalid("source", "source must be %q or %q.", skills.Custom, skills.Provided)
	}
	list, err := e.Skills.List(r.Context(), c.Owner, source)
	if err != nil {
		return err
	}
	return skillPage(w, q, list, func(k skills.Skill) string { return k.ID }, func(k skills.Skill) any {
		return describeSkill(k, olderSkills(r))
	})
}

func (e edge) listSkillVersions(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	list, err := e.Skills.Versions(r.Context(), c.Owner, r.PathValue("skill_id"))
	if err != nil {
		return err
	}
	return skillPage(w, r.URL.Query(), list, func(v skills.Version) string { return v.ID }, func(v skills.Version) any {
		return describeSkillVersion(v, olderSkills(r))
	})
}

// usualPage is the length of a page without a limit.
const usualPage = 20

// skillPage answers one page of a list. The cursor names the last entry of the page, and is invalid after its
// deletion.
func skillPage[T any](w http.ResponseWriter, q url.Values, list []T, id func(T) string, describe func(T) any) error {
	limit, err := parseLimit(q)
	if err != nil {
		return err
	}
	if q.Has("page") {
		last, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(q.Get("page"), pagePrefix))
		at := slices.IndexFunc(list, func(v T) bool { return id(v) == string(last) })
		if err != nil || at < 0 {
			return proto.Invalid("page", "page is not one that this endpoint gave out as next_page, or what it "+
				"follows was deleted; begin again without it.")
		}
		list = list[at+1:]
	}
	n := min(cmp.Or(limit, usualPage), len(list))
	page := skillList{Data: make([]any, 0, n), HasMore: n < len(list)}
	for _, v := range list[:n] {
		page.Data = append(page.Data, describe(v))
	}
	if page.HasMore {
		next := pagePrefix + base64.RawURLEncoding.EncodeToString([]byte(id(list[n-1])))
		page.NextPage = &next
	}
	return api.JSON(w, http.StatusOK, page)
}

// The answers to deletions.
type (
	deletedSkill struct {
		ID   string `json:"id"`
		Type string `json:"type" schema:"const=skill_deleted"`
	}
	deletedVersion struct {
		ID   string `json:"id"`
		Type string `json:"type" schema:"const=skill_version_deleted"`
	}
)

func (e edge) deleteSkill(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	id := r.PathValue("skill_id")
	if err := e.SkillChanges.Delete(r.Context(), c.Owner, id, olderSkills(r)); err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, deletedSkill{id, "skill_deleted"})
}

func (e edge) deleteSkillVersion(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	older := olderSkills(r)
	v, err := e.SkillChanges.DeleteVersion(r.Context(), c.Owner, r.PathValue("skill_id"), r.PathValue("version"), older)
	if err != nil {
		return err
	}
	id := v.ID
	if older {
		id = olderName(v)
	}
	return api.JSON(w, http.StatusOK, deletedVersion{id, "skill_version_deleted"})
}

// downloadSkill sends the files of a version as one zip archive.
func (e edge) downloadSkill(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	begin := func(v skills.Version) {
		h := w.Header()
		h.Set("Content-Type", "application/zip")
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": v.Name + ".zip"}))
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "private, no-store")
		w.WriteHeader(http.StatusOK)
	}
	return e.Skills.WriteZip(r.Context(), c.Owner, r.PathValue("skill_id"), r.PathValue("version"), begin, w)
}
