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
	"context"
	"io"
	"net/http"
	"slices"
	"strings"

	"berth/api"
	"berth/files"
	"berth/gateway/messages"
	"berth/gateway/messages/batches"
	"berth/proto"
	"berth/tools/skills"
)

// A Config is what the edge serves. Files must be set.
type Config struct {
	Files         FileStore
	MaxFileBytes  int64             // of one stored file
	Skills        SkillReader       // nil: no Skills API
	SkillChanges  SkillWriter       // set if Skills is
	MaxSkillBytes int64             // of one upload of a skill
	Messages      *messages.Service // nil: no Messages API
	Batches       *batches.Service  // set if Messages is

	// StrictDownloads refuses to return files that were uploaded rather than made by code, as the hosted service
	// does. It is off by default, since its users complain about that most.
	StrictDownloads bool
}

// A FileStore keeps stored files. Package files has one.
type FileStore interface {
	Stage(ctx context.Context, up files.Upload, r io.Reader) (files.Pending, error)
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
	List(ctx context.Context, owner string, q files.Query) (files.Page, error)
	Open(ctx context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
	Delete(ctx context.Context, owner, id string) error
}

// A SkillReader has skills. Package skills has one.
type SkillReader interface {
	Get(ctx context.Context, owner, id string) (skills.Skill, error)
	List(ctx context.Context, owner, source string) ([]skills.Skill, error)
	Version(ctx context.Context, owner, id, version string) (skills.Version, error)
	Versions(ctx context.Context, owner, id string) ([]skills.Version, error)
	WriteZip(ctx context.Context, owner, id, version string, ready func(skills.Version), to io.Writer) error
}

// A SkillWriter changes skills. Package skills has one.
type SkillWriter interface {
	NewDraft(ctx context.Context, owner string) (skills.Upload, error)
	Delete(ctx context.Context, owner, id string, onlyEmpty bool) error
	DeleteVersion(ctx context.Context, owner, id, version string, mayBeLast bool) (skills.Version, error)
}

// An edge has the handlers.
type edge struct {
	Config
	intake *intake // of Messages requests
}

// New makes the edge. It also renders the errors of unknown paths for its SDKs, which send a version.
func New(cfg Config) api.Edge {
	e := edge{cfg, &intake{}}
	made := api.Edge{Name: "anthropic", Prefixes: []string{"/v1/files", "/v1/skills", "/v1/messages", "/v1/models"},
		Header: "anthropic-version", Dialect: dialect, Check: check, Routes: e.files().routes()}
	if cfg.Skills != nil {
		made.Routes = append(made.Routes, e.skills().routes()...)
	}
	if cfg.Messages != nil {
		made.Routes = append(made.Routes, e.messages().routes()...)
		made.Routes = append(made.Routes, e.batches().routes()...)
		made.Routes = append(made.Routes, e.models().routes()...)
		// Names of models may have slashes, which not all clients escape.
		made.Routes = append(made.Routes, api.Route{Method: "GET", Pattern: modelsPath + "/{model_id...}",
			Where: api.None, Handle: e.getModel})
	}
	return made
}

// versions are those of the older and the newer SDKs. Files look the same in both.
var versions = []string{"2023-06-01", "2026-10-21"}

// check verifies the headers of every request. Reading one stored file or the list of models needs no version: other
// clients than the SDKs read them, too, and they look the same in all versions.
func check(r *http.Request) error {
	version := r.Header.Get("anthropic-version")
	encoding := r.Header.Get("Content-Encoding")
	switch {
	case version == "" && anyVersion(r.Method, r.URL.Path):
	case version == "":
		return proto.Invalid("anthropic-version", "anthropic-version: header is required")
	case !slices.Contains(versions, version):
		return proto.Invalid("anthropic-version", "anthropic-version: %.40q is not a known version; use one of %s",
			version, strings.Join(versions, ", "))
	}
	if encoding != "" && encoding != "identity" {
		return coded{"request_body_encoding_unsupported", proto.Invalid("Content-Encoding",
			"Compressed request bodies are not supported; send the body as it is.")}
	}
	return nil
}

// modelsPath is the path of the list of models.
const modelsPath = "/v1/models"

// anyVersion reports whether a request needs no version.
func anyVersion(method, path string) bool {
	return (method == http.MethodGet || method == http.MethodHead) && (strings.HasPrefix(path, "/v1/files/") ||
		path == modelsPath || strings.HasPrefix(path, modelsPath+"/"))
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
	switch {
	case hasBeta(r, "files-api-2025-04-14"):
		return shapeLegacy
	case hasBeta(r, "managed-agents-2026-04-01"):
		return shapeHybrid
	}
	return shapeGA
}

// hasBeta reports whether a client asks for a beta version.
func hasBeta(r *http.Request, name string) bool {
	for beta := range strings.SplitSeq(strings.Join(r.Header.Values("anthropic-beta"), ","), ",") {
		if strings.TrimSpace(beta) == name {
			return true
		}
	}
	return false
}
