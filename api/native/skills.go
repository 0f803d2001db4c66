package native

import (
	"berth/api"
	"net/http"
)

// skillRows are what the document says of the Skills API, which api/anthropic serves.
func skillRows() []row {
	skill := func(op op) op {
		op.tag, op.failure, op.header, op.fails = "skills", fileFailure, []param{versionParam}, skillFails
		op.more = "Speaks the hosted Skills API: an anthropic-version header is required, unknown query keys are " +
			"ignored, and errors have its envelope. " + op.more
		return op
	}
	form := []content{{media: "multipart/form-data", of: skillForm}}
	pages := []param{
		{name: "limit", kind: whole, least: 1, max: 1000, does: "At most so many; the default is 20."},
		{name: "page", does: "next_page of the answer before."},
	}
	source := param{name: "source", choices: []string{"custom", "anthropic"}, does: "Only those that were uploaded, " +
		"or only those that the daemon provides."}
	const at = "/v1/skills/{skill_id}"
	return []row{
		{"POST", "/v1/skills", api.None, nil, skill(op{id: "createSkill", does: "Store a skill.", body: form,
			answers: ok(skillShape),
			more: "Files come one by one, each with its path as its filename, or as one zip archive. They are all " +
				"in one directory, which has a SKILL.md with name and description."})},
		{"GET", "/v1/skills", api.None, nil, skill(op{id: "listSkills", does: "List skills, newest first, and then those that " +
			"the daemon provides.", query: append(pages, source), answers: ok(listOf(skillShape))})},
		{"GET", at, api.None, nil, skill(op{id: "getSkill", does: "Describe a skill.", answers: ok(skillShape)})},
		{"DELETE", at, api.None, nil, skill(op{id: "deleteSkill", does: "Delete a skill with its versions.",
			answers: ok(deletedShape("skill_deleted"))})},
		{"POST", at + "/versions", api.None, nil, skill(op{id: "createSkillVersion", does: "Store a new version of a skill.",
			body: form, answers: ok(skillVersionShape)})},
		{"GET", at + "/versions", api.None, nil, skill(op{id: "listSkillVersions", does: "List the versions of a skill, " +
			"newest first.", query: pages, answers: ok(listOf(skillVersionShape))})},
		{"GET", at + "/versions/{version}", api.None, nil,
			skill(op{id: "getSkillVersion", does: "Describe a version of a skill; \"latest\" is the newest.",
				answers: ok(skillVersionShape)})},
		{"GET", at + "/versions/{version}/content", api.None, nil,
			skill(op{id: "downloadSkillVersion", does: "Read the files of a version, as a zip archive.",
				answers: map[int][]content{http.StatusOK: raw("application/zip")}})},
		{"DELETE", at + "/versions/{version}", api.None, nil,
			skill(op{id: "deleteSkillVersion", does: "Delete a version of a skill, unless it is the only one.",
				answers: ok(deletedShape("skill_version_deleted"))})},
	}
}

func dateTime() schema { return schema{"type": "string", "format": "date-time"} }

func listOf(of schema) schema {
	return object([]string{"data", "has_more", "next_page"}, schema{"data": schema{"type": "array", "items": of},
		"has_more": schema{"type": "boolean"}, "next_page": orNull(stringType())})
}

func deletedShape(kind string) schema {
	return object([]string{"id", "type"}, schema{"id": stringType(), "type": schema{"const": kind}})
}

// The shapes of the Skills API. Those of the older dialect, for clients with the header anthropic-beta:
// skills-2025-10-02, have other names in them, which is why so little is required.
var (
	skillShape = object([]string{"id", "type", "created_at", "updated_at", "source"}, schema{
		"id": stringType(), "type": schema{"const": "skill"}, "created_at": dateTime(), "updated_at": dateTime(),
		"display_name": stringType(), "latest_version_id": stringType(), "display_title": stringType(),
		"latest_version": orNull(stringType()),
		"source": schema{"anyOf": []any{stringType(),
			object([]string{"type"}, schema{"type": schema{"enum": []string{"custom", "anthropic"}}})}},
	})
	skillVersionShape = object([]string{"id", "type", "skill_id", "created_at", "name", "description"}, schema{
		"id": stringType(), "type": schema{"const": "skill_version"}, "skill_id": stringType(),
		"created_at": dateTime(),
		"name":       stringType(), "description": stringType(), "directory": stringType(), "version": stringType(),
	})
	skillForm = object([]string{"files[]"}, schema{
		"files[]":      schema{"type": "array", "items": schema{"type": "string", "format": "binary"}},
		"display_name": schema{"type": "string", "maxLength": 255},
	})
)

// What the daemon provides is not to be changed, which is a 403.
var skillFails = append([]int{http.StatusForbidden}, fileFails...)
