package native

import (
	"berth/api"
	"net/http"
)

// elsewhere is what the document says of routes that other packages serve: api/anthropic's and api.Ops.
// They are written by hand, since this package may not import what serves them.
func elsewhere() []row {
	const tag = "stored files"
	file := func(op op) op {
		op.tag, op.failure, op.header = tag, fileFailure, []param{versionParam}
		return op
	}
	return append(append(skillRows(), messageRows()...), []row{
		{"POST", "/v1/files", api.None, nil, file(op{id: "uploadFile", does: "Store a file.", more: filesMore,
			body: []content{{media: "multipart/form-data", of: uploadForm}}, answers: ok(fileMetadata),
			fails: fileFails})},
		{"GET", "/v1/files", api.None, nil, file(op{id: "listFiles", does: "List stored files, newest first.",
			more: filesMore + " The shape of the list depends on the anthropic-beta header, as at the hosted API.",
			query: []param{
				{name: "limit", kind: whole, least: 1, max: 1000, does: "At most so many; the default is 20."},
				{name: "page", does: "next_page of the answer before."},
				{name: "ids[]", repeat: true, does: "Only these files; excludes limit and page."},
				{name: "before_id", does: "With a beta header: what stands before this file."},
				{name: "after_id", does: "With a beta header: what follows this file."},
				{name: "scope_id", does: "With a beta header: only files made by this container."},
			}, answers: ok(fileList), fails: fileFails})},
		{"GET", "/v1/files/{file_id}", api.None, nil, file(op{id: "getFile", does: "Describe a stored file.", more: filesMore,
			answers: ok(fileMetadata), fails: fileFails})},
		{"GET", "/v1/files/{file_id}/content", api.None, nil, file(op{id: "downloadFile", does: "Read a stored file.",
			more:    filesMore,
			answers: map[int][]content{http.StatusOK: raw("*/*")}, fails: fileFails})},
		{"DELETE", "/v1/files/{file_id}", api.None, nil, file(op{id: "deleteFile", does: "Delete a stored file.", more: filesMore,
			answers: ok(fileDeleted), fails: fileFails})},
		{"GET", "/healthz", api.None, nil, op{id: "health", tag: "daemon", does: "200 when the daemon is ready.", public: true,
			answers: ok(schema{"type": "object", "properties": schema{"status": schema{"const": "ok"}},
				"required": []string{"status"}}), fails: []int{500, 503}}},
		{"GET", "/metrics", api.None, nil, op{id: "metrics", tag: "daemon", does: "Metrics as Prometheus reads them.",
			public:  true,
			answers: map[int][]content{http.StatusOK: raw("text/plain")}, fails: []int{500}}},
	}...)
}

// It stands at every operation, since readers of a generated client see one at a time.
const filesMore = "Speaks the hosted Files API: an anthropic-version header is required, unknown query keys are " +
	"ignored, and errors have its envelope."

// The versions are those that api/anthropic knows.
var versionParam = param{name: "anthropic-version", required: true, choices: []string{"2023-06-01", "2026-10-21"},
	does: "The version of the Files API that the client speaks."}

// 529 is a daemon that is busy, or shuts down.
var fileFails = []int{400, 401, 404, 405, 413, 429, 500, 504, 529}

// required is left out where it is empty, which older validators refuse.
func object(required []string, properties schema) schema {
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func stringType() schema { return schema{"type": "string"} }

func orNull(s schema) schema { return schema{"anyOf": []any{s, schema{"type": "null"}}} }

// The shapes of the Files API.
var (
	// expires_at and scope are not required: which of them there is depends on the beta header.
	fileMetadata = object([]string{"id", "type", "filename", "mime_type", "size_bytes", "created_at", "downloadable"},
		schema{
			"id": stringType(), "type": schema{"const": "file"}, "filename": stringType(), "mime_type": stringType(),
			"size_bytes": schema{"type": "integer", "minimum": 0}, "created_at": schema{"type": "string",
				"format": "date-time"},
			"downloadable": schema{"type": "boolean"}, "expires_at": orNull(
				schema{"type": "string", "format": "date-time"}),
			"scope": orNull(object([]string{"type", "id"}, schema{"type": stringType(), "id": stringType()})),
		})
	// One schema for three shapes of a list: a header chooses among them, which OpenAPI cannot
	// say.
	fileList = object([]string{"data"}, schema{
		"data": schema{"type": "array", "items": fileMetadata}, "next_page": orNull(stringType()),
		"has_more": schema{"type": "boolean"}, "first_id": orNull(stringType()), "last_id": orNull(stringType()),
	})
	fileDeleted = object([]string{"id", "type"}, schema{"id": stringType(), "type": schema{"const": "file_deleted"}})
	// From one hour to 90 days, in seconds.
	uploadForm = object([]string{"file"}, schema{
		"file":               schema{"type": "string", "format": "binary"},
		"expires_in_seconds": schema{"type": "integer", "minimum": 3600, "maximum": 7776000},
	})
	fileFailure = object([]string{"type", "error", "request_id"}, schema{
		"type": schema{"const": "error"}, "request_id": stringType(),
		"error": object([]string{"type", "message"}, schema{
			"type": stringType(), "message": stringType(), "details": orNull(
				object(nil, schema{"error_code": stringType()})),
		}),
	})
)
