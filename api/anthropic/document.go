package anthropic

import (
	"net/http"

	"berth/api"
	"berth/api/openapi"
)

type schema = openapi.Schema

// Beginnings of the descriptions of all operations, since readers of a generated client see one operation at a time.
const (
	filesMore = "Speaks the hosted Files API: an anthropic-version header is required, unknown query keys are " +
		"ignored, and errors have the envelope of that API. "
	skillsMore = "Speaks the hosted Skills API: an anthropic-version header is required, unknown query keys are " +
		"ignored, and errors have the envelope of that API. "
	messagesMore = "Goes to the upstream that has the model. An anthropic-version header is required. Errors have " +
		"the envelope of the hosted API, with the upstream's own status where the upstream answered. "
)

// document adds to the routes their part of the OpenAPI document.
func document(routes []api.Route) {
	operations := map[string]*openapi.Operation{}
	for _, part := range []map[string]*openapi.Operation{filesOperations(), skillsOperations(), messagesOperations()} {
		for at, o := range part {
			o.Failure = failureShape
			o.Header = []openapi.Param{{Name: "anthropic-version", Required: true, Choices: versions,
				Description: "The version of the API that the client speaks."}}
			operations[at] = o
		}
	}
	for i, r := range routes {
		routes[i].Doc = operations[r.Method+" "+r.Pattern]
	}
}

// Statuses of errors. 529: the daemon is busy or shuts down. 403: a skill that the daemon provides cannot be changed.
var (
	fails       = []int{400, 401, 404, 405, 413, 429, 500, 504, statusOverloaded}
	skillsFails = append([]int{http.StatusForbidden}, fails...)
)

func answers(of schema) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusOK: {{Media: "application/json", Of: of}}}
}

func bytesOf(media string) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusOK: {{Media: media}}}
}

// pages are the query keys of paged lists.
var pages = []openapi.Param{
	{Name: "limit", Kind: openapi.Whole, Min: 1, Max: 1000,
		Description: "Maximum length of the page; the default is 20."},
	{Name: "page", Description: "next_page of the previous answer."},
}

func filesOperations() map[string]*openapi.Operation {
	file := func(o openapi.Operation) *openapi.Operation {
		o.Tag, o.Fails, o.Description = "stored files", fails, filesMore+o.Description
		return &o
	}
	return map[string]*openapi.Operation{
		"POST /v1/files": file(openapi.Operation{ID: "uploadFile", Summary: "Store a file.",
			Body: []openapi.Content{{Media: "multipart/form-data", Of: uploadShape}}, Answers: answers(fileShape)}),
		"GET /v1/files": file(openapi.Operation{ID: "listFiles", Summary: "List stored files, newest first.",
			Description: "The shape of the list depends on the anthropic-beta header, as in the hosted API.",
			Query: append(pages[:2:2],
				openapi.Param{Name: "ids[]", Repeat: true, Description: "Only these files; excludes limit and page."},
				openapi.Param{Name: "before_id", Description: "With a beta header: files before this one."},
				openapi.Param{Name: "after_id", Description: "With a beta header: files after this one."},
				openapi.Param{Name: "scope_id",
					Description: "With a beta header: only files that this container made."}),
			Answers: answers(fileListShape)}),
		"GET /v1/files/{file_id}": file(openapi.Operation{ID: "getFile", Summary: "Describe a stored file.",
			Answers: answers(fileShape)}),
		"GET /v1/files/{file_id}/content": file(openapi.Operation{ID: "downloadFile", Summary: "Read a stored file.",
			Answers: bytesOf("*/*")}),
		"DELETE /v1/files/{file_id}": file(openapi.Operation{ID: "deleteFile", Summary: "Delete a stored file.",
			Answers: answers(deletedShape("file_deleted"))}),
	}
}

func skillsOperations() map[string]*openapi.Operation {
	const at = " /v1/skills/{skill_id}"
	skill := func(o openapi.Operation) *openapi.Operation {
		o.Tag, o.Fails, o.Description = "skills", skillsFails, skillsMore+o.Description
		return &o
	}
	form := []openapi.Content{{Media: "multipart/form-data", Of: skillFormShape}}
	return map[string]*openapi.Operation{
		"POST /v1/skills": skill(openapi.Operation{ID: "createSkill", Summary: "Store a skill.", Body: form,
			Description: "Send the files one by one, each with its path as its filename, or send one zip archive. " +
				"All files are in one directory, which has a SKILL.md with name and description.",
			Answers: answers(skillShape)}),
		"GET /v1/skills": skill(openapi.Operation{ID: "listSkills",
			Summary: "List skills, newest first, followed by those that the daemon provides.",
			Query: append(pages[:2:2], openapi.Param{Name: "source", Choices: []string{"custom", "anthropic"},
				Description: "Only uploaded skills, or only those that the daemon provides."}),
			Answers: answers(listShape(skillShape))}),
		"GET" + at: skill(openapi.Operation{ID: "getSkill", Summary: "Describe a skill.",
			Answers: answers(skillShape)}),
		"DELETE" + at: skill(openapi.Operation{ID: "deleteSkill", Summary: "Delete a skill with its versions.",
			Answers: answers(deletedShape("skill_deleted"))}),
		"POST" + at + "/versions": skill(openapi.Operation{ID: "createSkillVersion", Body: form,
			Summary: "Store a new version of a skill.", Answers: answers(skillVersionShape)}),
		"GET" + at + "/versions": skill(openapi.Operation{ID: "listSkillVersions", Query: pages,
			Summary: "List the versions of a skill, newest first.", Answers: answers(listShape(skillVersionShape))}),
		"GET" + at + "/versions/{version}": skill(openapi.Operation{ID: "getSkillVersion",
			Summary: "Describe a version of a skill; \"latest\" is the newest.", Answers: answers(skillVersionShape)}),
		"GET" + at + "/versions/{version}/content": skill(openapi.Operation{ID: "downloadSkillVersion",
			Summary: "Read the files of a version as a zip archive.", Answers: bytesOf("application/zip")}),
		"DELETE" + at + "/versions/{version}": skill(openapi.Operation{ID: "deleteSkillVersion",
			Summary: "Delete a version of a skill, unless it is the only one.",
			Answers: answers(deletedShape("skill_version_deleted"))}),
	}
}

func messagesOperations() map[string]*openapi.Operation {
	request := []openapi.Content{{Media: "application/json", Of: messageRequestShape}}
	message := func(o openapi.Operation) *openapi.Operation {
		o.Tag, o.Fails, o.Body, o.Description = "messages", fails, request, messagesMore+o.Description
		return &o
	}
	return map[string]*openapi.Operation{
		"POST /v1/messages": message(openapi.Operation{ID: "createMessage", Summary: "Ask a model.",
			Description: "With the code execution tool, the daemon runs what the model calls in a container, and the " +
				"answer has typed blocks. With \"stream\": true the answer is a stream of events.",
			Answers: map[int][]openapi.Content{http.StatusOK: {{Media: "application/json", Of: messageShape},
				{Media: "text/event-stream", Of: text()}}}}),
		"POST /v1/messages/count_tokens": message(openapi.Operation{ID: "countTokens",
			Summary: "Count the tokens of a request.", Answers: answers(openapi.Object([]string{"input_tokens"},
				schema{"input_tokens": schema{"type": "integer", "minimum": 0}}))}),
	}
}

// Shorthands for schemas.
func text() schema { return schema{"type": "string"} }

func date() schema { return schema{"type": "string", "format": "date-time"} }

func orNull(s schema) schema { return schema{"anyOf": []any{s, schema{"type": "null"}}} }

func arrayOf(items schema) schema { return schema{"type": "array", "items": items} }

func deletedShape(kind string) schema {
	return openapi.Object([]string{"id", "type"}, schema{"id": text(), "type": schema{"const": kind}})
}

func listShape(of schema) schema {
	return openapi.Object([]string{"data", "has_more", "next_page"}, schema{"data": arrayOf(of),
		"has_more": schema{"type": "boolean"}, "next_page": orNull(text())})
}

// The shapes of bodies. A header selects the dialect of files, lists and skills, which OpenAPI cannot express: each
// shape has the fields of all dialects and requires those that all of them have.
var (
	fileShape = openapi.Object(
		[]string{"id", "type", "filename", "mime_type", "size_bytes", "created_at", "downloadable"}, schema{
			"id": text(), "type": schema{"const": "file"}, "filename": text(), "mime_type": text(),
			"size_bytes": schema{"type": "integer", "minimum": 0}, "created_at": date(),
			"downloadable": schema{"type": "boolean"}, "expires_at": orNull(date()),
			"scope": orNull(openapi.Object([]string{"type", "id"}, schema{"type": text(), "id": text()})),
		})
	fileListShape = openapi.Object([]string{"data"}, schema{
		"data": arrayOf(fileShape), "next_page": orNull(text()), "has_more": schema{"type": "boolean"},
		"first_id": orNull(text()), "last_id": orNull(text()),
	})
	uploadShape = openapi.Object([]string{"file"}, schema{
		"file":               schema{"type": "string", "format": "binary"},
		"expires_in_seconds": schema{"type": "integer", "minimum": 3600, "maximum": 7776000}, // 1 hour to 90 days
	})
	skillShape = openapi.Object([]string{"id", "type", "created_at", "updated_at", "source"}, schema{
		"id": text(), "type": schema{"const": "skill"}, "created_at": date(), "updated_at": date(),
		"display_name": text(), "latest_version_id": text(), "display_title": text(), "latest_version": orNull(text()),
		"source": schema{"anyOf": []any{text(), openapi.Object([]string{"type"},
			schema{"type": schema{"enum": []string{"custom", "anthropic"}}})}},
	})
	skillVersionShape = openapi.Object([]string{"id", "type", "skill_id", "created_at", "name", "description"}, schema{
		"id": text(), "type": schema{"const": "skill_version"}, "skill_id": text(), "created_at": date(),
		"name": text(), "description": text(), "directory": text(), "version": text(),
	})
	skillFormShape = openapi.Object([]string{"files[]"}, schema{
		"files[]":      arrayOf(schema{"type": "string", "format": "binary"}),
		"display_name": schema{"type": "string", "maxLength": 255},
	})

	// Messages, as far as berth reads them: the upstream defines the rest.
	messageRequestShape = openapi.Object([]string{"model", "messages"}, schema{
		"model": text(), "messages": arrayOf(schema{"type": "object"}), "tools": arrayOf(schema{"type": "object"}),
		"stream": schema{"type": "boolean"},
		"container": schema{"anyOf": []any{text(), schema{"type": "null"},
			openapi.Object(nil, schema{"id": text(), "skills": arrayOf(schema{"type": "object"})})}},
	})
	messageShape = openapi.Object([]string{"id", "type", "role", "model", "content"}, schema{
		"id": text(), "type": schema{"const": "message"}, "role": text(), "model": text(),
		"content":     arrayOf(openapi.Object([]string{"type"}, schema{"type": text()})),
		"stop_reason": orNull(text()), "stop_sequence": orNull(text()), "usage": schema{"type": "object"},
		"container": orNull(openapi.Object([]string{"id", "expires_at"}, schema{"id": text(), "expires_at": date(),
			"skills": orNull(arrayOf(schema{"type": "object"}))})),
	})

	failureShape = openapi.Object([]string{"type", "error", "request_id"}, schema{
		"type": schema{"const": "error"}, "request_id": text(),
		"error": openapi.Object([]string{"type", "message"}, schema{"type": text(), "message": text(),
			"details": orNull(openapi.Object(nil, schema{"error_code": text()}))}),
	})
)
