// Package anthropic is the edge for the official Anthropic SDKs: the Files API, the Skills API and Messages, as the
// hosted service answers them. Package daemon mounts it.
//
// Two generations of SDK are in use. They differ in the header that carries the key (package api accepts both), in
// anthropic-version (both are accepted), and in the shape of lists, which depends on the anthropic-beta header:
//
//	header                      list                              an entry has
//	none of these               data, next_page                   expires_at
//	files-api-2025-04-14        data, has_more, first_id, last_id scope
//	managed-agents-2026-04-01   all of them                       both
//
// Most deployed clients still send the second. Unknown query keys and beta values are ignored.
package anthropic

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"berth/api"
	"berth/files"
	"berth/gateway/messages"
	"berth/proto"
	"berth/tools/skills"
)

// A Config is what the edge serves.
type Config struct {
	Files    *files.Store
	Skills   *skills.Store     // nil: no Skills API
	Messages *messages.Service // nil: no Messages API

	// StrictDownloads refuses to return files that were uploaded rather than made by code, as the hosted service
	// does. It is off by default, since its users complain about that most.
	StrictDownloads bool
}

// An edge has the handlers.
type edge struct{ Config }

// formOverhead is how much a form may have besides the file: boundaries, part headers and other fields, in bytes.
const formOverhead = 1 << 20

// New makes the edge. It also renders the errors for paths below /v1 that no other edge has.
func New(cfg Config) api.Edge {
	e := edge{cfg}
	made := api.Edge{
		Name:     "anthropic",
		Prefixes: []string{"/v1"},
		Dialect:  dialect,
		Check:    check,
		Routes: append([]api.Route{
			{Method: "POST", Pattern: "/v1/files", Where: api.None, Handle: e.upload, Act: "file.upload",
				MaxBodyBytes: cfg.Files.MaxFileBytes() + formOverhead},
			{Method: "GET", Pattern: "/v1/files", Where: api.None, Handle: e.list},
			{Method: "GET", Pattern: "/v1/files/{file_id}", Where: api.None, Handle: e.metadata},
			{Method: "GET", Pattern: "/v1/files/{file_id}/content", Where: api.None,
				Handle: e.download, Act: "file.download"},
			{Method: "DELETE", Pattern: "/v1/files/{file_id}", Where: api.None, Handle: e.delete, Act: "file.delete"},
		}, e.skillRoutes()...),
	}
	if cfg.Messages != nil {
		made.Routes = append(made.Routes,
			api.Route{Method: "POST", Pattern: "/v1/messages", Where: api.InBody, Handle: e.answerMessages,
				Act: "messages", MaxBodyBytes: maxMessages},
			api.Route{Method: "POST", Pattern: "/v1/messages/count_tokens", Where: api.None, Handle: e.answerMessages,
				Act: "messages.count_tokens", MaxBodyBytes: maxMessages},
		)
	}
	document(made.Routes)
	return made
}

// versions are those of the older and the newer SDKs. Files look the same in both.
var versions = []string{"2023-06-01", "2026-10-21"}

// check verifies the headers of every request.
func check(r *http.Request) error {
	version := r.Header.Get("anthropic-version")
	encoding := r.Header.Get("Content-Encoding")
	switch {
	case version == "":
		return proto.Errorf(proto.InvalidArgument, "", "anthropic-version", "anthropic-version: header is required")
	case !slices.Contains(versions, version):
		return proto.Errorf(proto.InvalidArgument, "", "anthropic-version",
			"anthropic-version: %.40q is not a known version; use one of %s", version, strings.Join(versions, ", "))
	case encoding != "" && encoding != "identity":
		return coded{"request_body_encoding_unsupported", proto.Errorf(proto.InvalidArgument, "", "Content-Encoding",
			"Compressed request bodies are not supported; send the body as it is.")}
	}
	return nil
}

// A shape is one of the three dialects of lists.
type shape int

const (
	shapeGA shape = iota
	shapeLegacy
	shapeHybrid
)

// shapeOf follows the beta header. The files beta has precedence, since its clients know nothing newer.
func shapeOf(r *http.Request) shape {
	betas := strings.Join(r.Header.Values("anthropic-beta"), ",")
	found := shapeGA
	for beta := range strings.SplitSeq(betas, ",") {
		switch strings.TrimSpace(beta) {
		case "files-api-2025-04-14":
			return shapeLegacy
		case "managed-agents-2026-04-01":
			found = shapeHybrid
		}
	}
	return found
}

// invalid is an error of a request that will stay wrong.
func invalid(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, "%s", fmt.Sprintf(format, args...))
}
