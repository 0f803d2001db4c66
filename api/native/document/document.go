// Package document describes the HTTP API for its OpenAPI document: texts, bounds of fields, rules across fields, and
// links between routes.
//
// Bounds stand in schema tags on the wire types. This package has those that a tag can only name, since they take more
// than a number or depend on settings of the daemon. In: what holds for every edge. Out: the routes, which their edges
// describe, and the building of the document, which is package openapi's. Package native calls it once, at start.
package document

import (
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"time"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
)

// A Config is what the document says of one daemon.
type Config struct {
	Version        string
	Limits         proto.Limits         // most that a container may have
	NetworkMax     proto.NetworkMode    // widest network of a container
	RuntimeClasses []proto.RuntimeClass // that a container may have
	Sockets        map[string]openapi.Socket
	Bounds         map[string]schema       // more bounds that schema tags name
	Names          map[reflect.Type]string // names of types, where they are not those of Go
}

// descriptions are the doc comments of the types of bodies and of their fields. enumsJSON has the constants of string
// types. A test of package native writes both files when it is run with -update, and fails where the source differs.
var (
	//go:embed descriptions.json
	descriptions []byte
	//go:embed enums.json
	enumsJSON []byte
	//go:embed examples.json
	examplesJSON []byte

	comments = parse[map[string]string]("descriptions.json", descriptions)
	enums    = parse[map[string][]string]("enums.json", enumsJSON)
)

func parse[T any](name string, text []byte) (v T) {
	if err := json.Unmarshal(text, &v); err != nil {
		panic(name + ": " + err.Error()) // every test would show it
	}
	return v
}

// Values returns the constants of a string type.
func Values[T ~string]() []string {
	t := reflect.TypeFor[T]()
	return enums[t.PkgPath()+"."+t.Name()]
}

// Build returns the document of the documented routes of edges.
func Build(cfg Config, edges ...api.Edge) []byte {
	named := cfg.bounds()
	maps.Copy(named, cfg.Bounds)
	return openapi.Document(openapi.Config{
		Title: "berth", Version: cfg.Version,
		Description: "Stateful Linux containers for agents and the people who run them. Unknown fields and query " +
			"keys are refused by name, except by the routes of hosted APIs (/v1/files, /v1/skills, /v1/messages). " +
			"Every answer has a Request-Id header.",
		License: "Apache-2.0", Tags: tags, Examples: examples(), Failure: failure{}, Sockets: cfg.Sockets,
		Links: links, Names: cfg.Names, Named: named, Types: typeRules,
		Enums: enums, Special: special, Comments: comments,
		OneOf: map[reflect.Type][]any{
			reflect.TypeFor[proto.BashContent](): {proto.BashResult{}, proto.BashError{}},
			reflect.TypeFor[proto.ToolEnv]():     {map[string]string{}, []proto.ToolVariable{}}},
	}, api.Documented(edges...))
}

// A Step is one operation of examples.json. The file is a story: a test sends its requests in order, and compares the
// answers.
type Step struct {
	Operation string `json:"operation"`
	// why no test without root, a registry or a model can send it; "": the test sends it
	Unsent string `json:"unsent,omitempty"`
	openapi.Example
}

// Steps returns the steps of examples.json.
func Steps() []Step { return parse[[]Step]("examples.json", examplesJSON) }

// examples returns the first example of each operation.
func examples() map[string]openapi.Example {
	all := map[string]openapi.Example{}
	for _, s := range Steps() {
		if _, has := all[s.Operation]; !has {
			all[s.Operation] = s.Example
		}
	}
	return all
}

// special holds types whose JSON does not follow from their fields.
var special = map[reflect.Type]schema{
	reflect.TypeFor[proto.Time]():      {"type": "string", "format": "date-time"},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {"type": "string", "contentEncoding": "base64"},
}

// An error. Every route of this edge answers with it.
type failure struct {
	Error     proto.Error `json:"error"`
	RequestID string      `json:"request_id"` // Also in the Request-Id header; the daemon's log has it.
}

// links lead to the routes below a container, a command, a job, a workspace, a key and a stored file. A value is where
// the request or the answer has what stands for a wildcard.
var links = []openapi.Link{
	link("createContainer", http.StatusCreated, "/v1/containers/{id}", "id", inBody+"id"),
	link("createContainer", http.StatusCreated, "/v1/workspaces/{id}", "id", inBody+"workspace_id"),
	link("run", http.StatusOK, "/v1/containers/{id}/jobs/{job}", "id", inPath+"id", "job", inBody+"exec/job_id"),
	link("run", http.StatusOK, "/v1/containers/{id}/execs/{exec}", "id", inPath+"id", "exec", inBody+"exec/id"),
	link("run", http.StatusAccepted, "/v1/containers/{id}/execs/{exec}", "id", inPath+"id", "exec", inBody+"id"),
	link("runOnce", http.StatusOK, "/v1/containers/{id}/execs/{exec}", "id", inBody+"container/id",
		"exec", inBody+"exec/id"),
	link("runOnce", http.StatusAccepted, "/v1/containers/{id}/execs/{exec}", "id", inBody+"container_id",
		"exec", inBody+"id"),
	link("createKey", http.StatusCreated, "/v1/keys/{id}", "id", inBody+"id"),
	link("uploadFile", http.StatusOK, "/v1/files/{file_id}", "file_id", inBody+"id"),
}

const inBody, inPath = "$response.body#/", "$request.path."

// link makes a link; pairs are wildcards and their values.
func link(from string, status int, to string, pairs ...string) openapi.Link {
	l := openapi.Link{From: from, Status: status, To: to, Values: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		l.Values[pairs[i]] = pairs[i+1]
	}
	return l
}
