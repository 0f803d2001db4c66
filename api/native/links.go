package native

import (
	"net/http"
	"strconv"
	"strings"
)

// A lead says where an answer names what other routes are about, so that whoever follows the document, be it a
// person, a generator of clients or a fuzzer, comes from what makes a thing to what uses it.
type lead struct {
	from   string // operationId
	status int
	to     string            // the part of a path that these values fill
	values map[string]string // runtime expressions of OpenAPI, by parameter of the path
}

const inBody, inRequest = "$response.body#/", "$request.path."

// leads are to everything below a container, a command, a job, a workspace, a key and a stored file.
var leads = []lead{
	{"createContainer", http.StatusCreated, "/v1/containers/{id}", map[string]string{"id": inBody + "id"}},
	{"createContainer", http.StatusCreated, "/v1/workspaces/{id}", map[string]string{"id": inBody + "workspace_id"}},
	{"run", http.StatusOK, "/v1/containers/{id}/jobs/{job}", map[string]string{"id": inRequest + "id", "job": inBody +
		"exec/job_id"}},
	{"run", http.StatusOK, "/v1/containers/{id}/execs/{exec}", map[string]string{"id": inRequest + "id",
		"exec": inBody + "exec/id"}},
	{"run", http.StatusAccepted, "/v1/containers/{id}/execs/{exec}", map[string]string{"id": inRequest + "id",
		"exec": inBody + "id"}},
	{"runOnce", http.StatusOK, "/v1/containers/{id}/execs/{exec}", map[string]string{"id": inBody + "container/id",
		"exec": inBody + "exec/id"}},
	{"runOnce", http.StatusAccepted, "/v1/containers/{id}/execs/{exec}", map[string]string{
		"id": inBody + "container_id", "exec": inBody + "id"}},
	{"createKey", http.StatusCreated, "/v1/keys/{id}", map[string]string{"id": inBody + "id"}},
	{"uploadFile", http.StatusOK, "/v1/files/{file_id}", map[string]string{"file_id": inBody + "id"}},
}

// link adds the leads to the operations of a document.
func link(rows []row, paths map[string]map[string]any) {
	for _, l := range leads {
		for _, source := range rows {
			if source.id != l.from {
				continue
			}
			// It panics if a lead names a status that the row does not have: a mistake that every
			// start and every test would show.
			at := paths[source.path][strings.ToLower(source.method)].(schema)["responses"].(schema)[strconv.Itoa(l.status)].(schema)
			if at["links"] == nil {
				at["links"] = schema{}
			}
			for _, target := range rows {
				if l.reaches(target.path) {
					at["links"].(schema)[target.id] = schema{"operationId": target.id, "parameters": l.values}
				}
			}
		}
	}
}

// reaches reports whether the lead has all that the path needs.
func (l lead) reaches(path string) bool {
	rest, below := strings.CutPrefix(path, l.to)
	return below && (rest == "" || rest[0] == '/') && !strings.Contains(rest, "{")
}
