package native

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"reflect"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
	"berth/tools/bridge"
)

// descriptions are the doc comments of the types of bodies and of their fields. A test writes the file when it is run
// with -update, and fails where a comment has changed since.
//
//go:embed descriptions.json
var descriptions []byte

// document builds the OpenAPI document of these edges, once at start.
func document(i Info, edges []api.Edge) []byte {
	var comments map[string]string
	if err := json.Unmarshal(descriptions, &comments); err != nil {
		panic("descriptions.json: " + err.Error())
	}
	return openapi.Document(openapi.Config{
		Title: "berth", Version: i.Version,
		Description: "Stateful Linux containers for agents and the people who run them. Unknown fields and query " +
			"keys are refused by name, except by the routes of hosted APIs (/v1/files, /v1/skills, /v1/messages). " +
			"Every answer has a Request-Id header.",
		Failure:  failure{},
		Messages: []any{message{}, bridge.ClientMessage{}}, Answers: []any{bridge.DaemonMessage{}},
		Links: links, Names: typeNames, Named: namedBounds(i), Types: typeRules,
		Enums: enums, Special: special, Comments: comments,
		OneOf: map[reflect.Type][]any{
			reflect.TypeFor[proto.BashContent](): {proto.BashResult{}, proto.BashError{}}},
	}, api.Documented(edges...))
}

// typeNames are the documented names of types that have a longer name in Go, since package proto holds all of them.
var typeNames = map[reflect.Type]string{
	reflect.TypeFor[proto.CodeContext]():       "Context",
	reflect.TypeFor[proto.JobSummary]():        "Summary",
	reflect.TypeFor[proto.ToolConfiguration](): "Configuration",
	reflect.TypeFor[proto.ToolField]():         "Field",
	reflect.TypeFor[proto.ToolRun]():           "Run",
	reflect.TypeFor[proto.ToolRunError]():      "RunError",
	reflect.TypeFor[proto.ToolRunRequest]():    "RunRequest",
}

// An error. Every route of this edge answers with it.
type failure struct {
	Error     proto.Error `json:"error"`
	RequestID string      `json:"request_id"` // Also in the Request-Id header; the daemon's log has it.
}

const inBody, inRequest = "$response.body#/", "$request.path."

// links lead to the routes below a container, a command, a job, a workspace, a key and a stored file.
var links = []openapi.Link{
	{From: "createContainer", Status: http.StatusCreated, To: "/v1/containers/{id}",
		Values: map[string]string{"id": inBody + "id"}},
	{From: "createContainer", Status: http.StatusCreated, To: "/v1/workspaces/{id}",
		Values: map[string]string{"id": inBody + "workspace_id"}},
	{From: "run", Status: http.StatusOK, To: "/v1/containers/{id}/jobs/{job}",
		Values: map[string]string{"id": inRequest + "id", "job": inBody + "exec/job_id"}},
	{From: "run", Status: http.StatusOK, To: "/v1/containers/{id}/execs/{exec}",
		Values: map[string]string{"id": inRequest + "id", "exec": inBody + "exec/id"}},
	{From: "run", Status: http.StatusAccepted, To: "/v1/containers/{id}/execs/{exec}",
		Values: map[string]string{"id": inRequest + "id", "exec": inBody + "id"}},
	{From: "runOnce", Status: http.StatusOK, To: "/v1/containers/{id}/execs/{exec}",
		Values: map[string]string{"id": inBody + "container/id", "exec": inBody + "exec/id"}},
	{From: "runOnce", Status: http.StatusAccepted, To: "/v1/containers/{id}/execs/{exec}",
		Values: map[string]string{"id": inBody + "container_id", "exec": inBody + "id"}},
	{From: "createKey", Status: http.StatusCreated, To: "/v1/keys/{id}",
		Values: map[string]string{"id": inBody + "id"}},
	{From: "uploadFile", Status: http.StatusOK, To: "/v1/files/{file_id}",
		Values: map[string]string{"file_id": inBody + "id"}},
}
