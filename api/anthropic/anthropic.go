// Package anthropic is the edge that the official Anthropic SDKs speak to: the Files API, the Skills API and
// Messages, as the hosted service answers them.
//
// Two generations of SDK are in the field. They differ in the header that carries the key (package api takes both),
// in anthropic-version (both are accepted), and in the shape of lists, which follows the anthropic-beta header:
//
//	header                      list                              an entry has
//	none of these               data, next_page                   expires_at
//	files-api-2025-04-14        data, has_more, first_id, last_id scope
//	managed-agents-2026-04-01   all of them                       both
//
// Most deployed clients still send the second. Query keys and beta values that are not known are ignored.
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
	Skills   *skills.Store     // nil: there is no Skills API
	Messages *messages.Service // nil: there is no Messages API

	// StrictDownloads refuses to give back files that were uploaded rather than made by code, as the hosted
	// service does. Its users' most frequent complaint is why this is off by default.
	StrictDownloads bool
}

// An edge has the handlers.
type edge struct{ Config }

// formOverhead is what a form may hold besides the file: boundaries, part headers, other fields.
const formOverhead = 1 << 20

// New makes the edge. It answers for every path below /v1 that no other edge has.
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

// check is what every request must fulfil.
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

// A shape is which of the three list dialects a client speaks.
type shape int

const (
	shapeGA shape = iota
	shapeLegacy
	shapeHybrid
)

// shapeOf follows the beta header; the files beta wins, since its clients know nothing newer.
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

// invalid is for what is wrong with a request and will stay wrong.
func invalid(field, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "", field, "%s", fmt.Sprintf(format, args...))
}
