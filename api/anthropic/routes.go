package anthropic

import (
	"net/http"

	"berth/api"
	"berth/api/openapi"
	"berth/gateway/messages/batches"
)

// A row is one route and its part of the OpenAPI document.
type row struct {
	method, pattern string
	handle          api.Handler
	act             string // action name in the audit log; "": not audited
	openapi.Operation
}

// A group is the routes of one of the APIs, with what they have in common.
type group struct {
	tag     string
	more    string // begins each description: readers of a generated client see one operation at a time
	fails   []int
	maxBody int64 // of routes with a body
	rows    []row
}

// routes returns the routes of a group for the server.
func (g group) routes() (list []api.Route) {
	for _, r := range g.rows {
		route := api.Route{Method: r.method, Pattern: r.pattern, Where: api.None, Handle: r.handle, Act: r.act}
		if r.Body != nil {
			route.MaxBodyBytes = g.maxBody
		}
		if r.ID == "createMessage" {
			route.Where = api.InBody
		}
		o := r.Operation
		o.Tag, o.Fails, o.Failure, o.Description = g.tag, g.fails, envelope{}, g.more+o.Description
		o.Header = []openapi.Param{{Name: "anthropic-version", Required: !anyVersion(r.method, r.pattern),
			Choices: versions, Description: "The version of the API that the client speaks."}}
		route.Doc = &o
		list = append(list, route)
	}
	return list
}

// fails are the statuses of errors. 529: the daemon is busy or shuts down.
var fails = []int{400, 401, 404, 405, 413, 429, 500, 504, statusOverloaded}

// formOverhead is how much a form may have besides the file: boundaries, part headers and other fields, in bytes.
const formOverhead = 1 << 20

// pages are the query keys of paged lists.
var pages = []openapi.Param{
	{Name: "limit", Kind: openapi.Whole, Min: 1, Max: 1000,
		Description: "Maximum length of the page; the default is 20."},
	{Name: "page", Description: "next_page of the previous answer."},
}

// idPages are the query keys of lists whose pages begin at an ID.
var idPages = []openapi.Param{
	pages[0],
	{Name: "after_id", Description: "Begins behind this entry."},
	{Name: "before_id", Description: "Ends before this entry."},
}

// Bodies of which a header selects the form.
var (
	fileForms    = openapi.Forms{fileHybrid{}, fileGA{}, fileLegacy{}}
	fileLists    = openapi.Forms{listHybrid{}, listGA{}, listLegacy{}}
	skillForms   = openapi.Forms{skillOlder{}, skillGA{}}
	versionForms = openapi.Forms{skillVersionOlder{}, skillVersion{}}
	skillLists   = openapi.Forms{skillList{}}
)

func (e edge) files() group {
	const all, one = "/v1/files", "/v1/files/{file_id}"
	return group{"stored files", "Speaks the hosted Files API: an anthropic-version header is required, unknown " +
		"query keys are ignored, and errors have the envelope of that API. ", fails,
		e.MaxFileBytes + formOverhead, []row{
			{"POST", all, e.upload, "file.upload", openapi.Operation{ID: "uploadFile", Summary: "Store a file.",
				Body: inForm(openapi.Object([]string{"file"}, schema{"file": binary,
					"expires_in_seconds": schema{"type": "integer", "minimum": 3600, "maximum": 7776000}})),
				Answers: ok(fileForms)}},
			{"GET", all, e.list, "", openapi.Operation{ID: "listFiles", Summary: "List stored files, newest first.",
				Description: "The shape of the list depends on the anthropic-beta header, as in the hosted API.",
				Query: append(pages[:2:2],
					openapi.Param{Name: "ids[]", Repeat: true,
						Description: "Only these files; excludes limit and page."},
					openapi.Param{Name: "before_id", Description: "With a beta header: files before this one."},
					openapi.Param{Name: "after_id", Description: "With a beta header: files after this one."},
					openapi.Param{Name: "scope_id",
						Description: "With a beta header: only files that this container made."}),
				Answers: listOf(fileLists, fileForms)}},
			{"GET", one, e.metadata, "", openapi.Operation{ID: "getFile", Summary: "Describe a stored file.",
				Answers: ok(fileForms)}},
			{"GET", one + "/content", e.download, "file.download", openapi.Operation{ID: "downloadFile",
				Summary: "Read a stored file.", Answers: bytesOf("*/*")}},
			{"DELETE", one, e.delete, "file.delete", openapi.Operation{ID: "deleteFile",
				Summary: "Delete a stored file.", Answers: ok(deletedFile{})}},
		}}
}

func (e edge) skills() group {
	const all, one, of = "/v1/skills", "/v1/skills/{skill_id}", "/v1/skills/{skill_id}/versions"
	upload := inForm(openapi.Object([]string{"files[]"}, schema{"files[]": arrayOf(binary),
		"display_name": schema{"type": "string", "maxLength": 255}}))
	return group{"skills", "Speaks the hosted Skills API: an anthropic-version header is required, unknown " +
		"query keys are ignored, and errors have the envelope of that API. ",
		append([]int{http.StatusForbidden}, fails...), // a skill that the daemon provides cannot be changed
		e.MaxSkillBytes + formOverhead, []row{
			{"POST", all, e.createSkill, "skill.create", openapi.Operation{ID: "createSkill",
				Summary: "Store a skill.", Body: upload, Answers: ok(skillForms),
				Description: "Send the files one by one, each with its path as its filename, or send one zip " +
					"archive. All files are in one directory, which has a SKILL.md with name and description."}},
			{"GET", all, e.listSkills, "", openapi.Operation{ID: "listSkills",
				Summary: "List skills, newest first, followed by those that the daemon provides.",
				Query: append(pages[:2:2], openapi.Param{Name: "source", Choices: []string{"custom", "anthropic"},
					Description: "Only uploaded skills, or only those that the daemon provides."}),
				Answers: listOf(skillLists, skillForms)}},
			{"GET", one, e.getSkill, "", openapi.Operation{ID: "getSkill", Summary: "Describe a skill.",
				Answers: ok(skillForms)}},
			{"DELETE", one, e.deleteSkill, "skill.delete", openapi.Operation{ID: "deleteSkill",
				Summary: "Delete a skill with its versions.", Answers: ok(deletedSkill{})}},
			{"POST", of, e.createSkillVersion, "skill.change", openapi.Operation{ID: "createSkillVersion",
				Summary: "Store a new version of a skill.", Body: upload, Answers: ok(versionForms)}},
			{"GET", of, e.listSkillVersions, "", openapi.Operation{ID: "listSkillVersions", Query: pages,
				Summary: "List the versions of a skill, newest first.", Answers: listOf(skillLists, versionForms)}},
			{"GET", of + "/{version}", e.getSkillVersion, "", openapi.Operation{ID: "getSkillVersion",
				Summary: "Describe a version of a skill; \"latest\" is the newest.", Answers: ok(versionForms)}},
			{"GET", of + "/{version}/content", e.downloadSkill, "skill.download", openapi.Operation{
				ID: "downloadSkillVersion", Summary: "Read the files of a version as a zip archive.",
				Answers: bytesOf("application/zip")}},
			{"DELETE", of + "/{version}", e.deleteSkillVersion, "skill.delete_version", openapi.Operation{
				ID: "deleteSkillVersion", Summary: "Delete a version of a skill, unless it is the only one.",
				Answers: ok(deletedVersion{})}},
		}}
}

// messages are the routes of the Messages API. Their bodies are described as far as berth reads them: the upstream
// defines the rest.
func (e edge) messages() group {
	text, objects := schema{"type": "string"}, arrayOf(schema{"type": "object"})
	date := schema{"type": "string", "format": "date-time"}
	request := inJSON(openapi.Object([]string{"model", "messages"}, schema{
		"model": text, "messages": objects, "tools": objects, "stream": schema{"type": "boolean"},
		"max_tokens": schema{"type": "integer", "minimum": 0},
		"container": schema{"anyOf": []any{text, schema{"type": "null"},
			openapi.Object(nil, schema{"id": text, "skills": objects})}},
	}))
	message := openapi.Object([]string{"id", "type", "role", "model", "content"}, schema{
		"id": text, "type": schema{"const": "message"}, "role": text, "model": text,
		"content":     arrayOf(openapi.Object([]string{"type"}, schema{"type": text, "text": text})),
		"stop_reason": orNull(text), "stop_sequence": orNull(text), "usage": schema{"type": "object"},
		"container": orNull(openapi.Object([]string{"id", "expires_at"}, schema{"id": text, "expires_at": date,
			"skills": orNull(objects)})),
	})
	tokens := openapi.Object([]string{"input_tokens"}, schema{"input_tokens": schema{"type": "integer", "minimum": 0}})
	return group{"messages", "Goes to the upstream that has the model. An anthropic-version header is required. " +
		"Errors have the envelope of the hosted API, with the upstream's own status where the upstream answered. ",
		fails, maxMessages, []row{
			{"POST", "/v1/messages", e.answerMessages, "messages", openapi.Operation{ID: "createMessage",
				Summary: "Ask a model.", Body: request,
				Description: "With the code execution tool, the daemon runs what the model calls in a container, and " +
					"the answer has typed blocks. With \"stream\": true the answer is a stream of events.",
				Answers: map[int][]openapi.Content{http.StatusOK: append(inJSON(message), openapi.Content{
					Media: "text/event-stream", Of: text})}}},
			{"POST", "/v1/messages/count_tokens", e.answerMessages, "messages.count_tokens", openapi.Operation{
				ID: "countTokens", Summary: "Count the tokens of a request.", Body: request, Answers: ok(tokens)}},
		}}
}

// batches are the routes of message batches. Their bodies are described as far as berth reads them.
func (e edge) batches() group {
	const all, one = batches.Path, batches.Path + "/{message_batch_id}"
	text := schema{"type": "string"}
	batch := openapi.Object([]string{"id", "type", "processing_status"}, schema{"id": text,
		"type": schema{"const": "message_batch"}, "processing_status": text, "results_url": orNull(text)})
	request := openapi.Object([]string{"custom_id", "params"}, schema{"custom_id": text,
		"params": schema{"type": "object"}})
	list := openapi.Object([]string{"data", "has_more", "first_id", "last_id"}, schema{"data": arrayOf(batch),
		"has_more": schema{"type": "boolean"}, "first_id": orNull(text), "last_id": orNull(text)})
	deleted := openapi.Object([]string{"id", "type"}, schema{"id": text,
		"type": schema{"const": "message_batch_deleted"}})
	return group{"message batches", "Goes to the upstream that has the models. An anthropic-version header is " +
		"required. Errors have the envelope of the hosted API. ", fails, maxMessages, []row{
		{"POST", all, e.createBatch, "messages.batch", openapi.Operation{ID: "createMessageBatch",
			Summary: "Send many requests to be answered later.", Body: inJSON(openapi.Object([]string{"requests"},
				schema{"requests": arrayOf(request)})), Answers: ok(batch),
			Description: "Code execution does not run in batches. All models must be of one upstream."}},
		{"GET", all, e.listBatches, "", openapi.Operation{ID: "listMessageBatches",
			Summary: "List the message batches of the caller, newest first.", Query: idPages, Answers: ok(list)}},
		{"GET", one, e.getBatch, "", openapi.Operation{ID: "getMessageBatch", Summary: "Describe a message batch.",
			Answers: ok(batch)}},
		{"DELETE", one, e.getBatch, "messages.batch_delete", openapi.Operation{ID: "deleteMessageBatch",
			Summary: "Delete a message batch that has ended.", Answers: ok(deleted)}},
		{"POST", one + "/cancel", e.cancelBatch, "messages.batch_cancel", openapi.Operation{ID: "cancelMessageBatch",
			Summary: "Cancel a message batch.", Answers: ok(batch)}},
		{"GET", one + "/results", e.batchResults, "messages.batch_results", openapi.Operation{
			ID: "getMessageBatchResults", Summary: "Read the answers of a message batch as JSON lines.",
			Answers: bytesOf("application/x-jsonl")}},
	}}
}

// models are the routes of the list of models.
func (e edge) models() group {
	text := schema{"type": "string"}
	model := openapi.Object([]string{"id", "type", "display_name", "created_at"}, schema{"id": text,
		"type": schema{"const": "model"}, "display_name": text, "created_at": schema{"type": "string",
			"format": "date-time"}})
	list := openapi.Object([]string{"data", "has_more", "first_id", "last_id"}, schema{"data": arrayOf(model),
		"has_more": schema{"type": "boolean"}, "first_id": orNull(text), "last_id": orNull(text)})
	return group{"models", "Errors have the envelope of the hosted API. ", fails, maxMessages, []row{
		{"GET", modelsPath, e.listModels, "", openapi.Operation{ID: "listModels",
			Summary: "List the models of all upstreams.", Query: idPages, Answers: ok(list),
			Description: "Each model has the name that requests use. The header Berth-Unavailable of the answer " +
				"names upstreams that gave no list."}},
		{"GET", modelsPath + "/{model_id}", e.getModel, "", openapi.Operation{ID: "getModel",
			Summary: "Describe a model.", Answers: ok(model)}},
	}}
}

// Shorthands for forms of bodies and their schemas.

type schema = openapi.Schema

var binary = schema{"type": "string", "format": "binary"}

func orNull(s schema) schema { return openapi.OrNull(s) }

func arrayOf(items schema) schema { return schema{"type": "array", "items": items} }

func inJSON(of any) []openapi.Content { return []openapi.Content{{Media: "application/json", Of: of}} }

func inForm(of schema) []openapi.Content {
	return []openapi.Content{{Media: "multipart/form-data", Of: of}}
}

func ok(of any) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusOK: inJSON(of)}
}

func listOf(list, entries openapi.Forms) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusOK: {{Media: "application/json", Of: list, Data: entries}}}
}

func bytesOf(media string) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusOK: {{Media: media}}}
}
