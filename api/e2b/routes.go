package e2b

import (
	"net/http"

	"berth/api"
	"berth/api/e2b/access"
)

// sandboxes is where the paths of sandboxes begin, in the first version of the routes.
const sandboxes = "/sandboxes"

// A row is one route.
type row struct {
	method, pattern string
	handle          handler
	act             string // in the audit log; "" for what only reads
	covered         bool   // the core audits it
}

// rows is the table of all routes, besides those of what is not offered.
func (e *Edge) rows() []row {
	const one, two = sandboxes, "/v2" + sandboxes
	return []row{
		{"POST", one, e.createSandbox(false), "container.create", true},
		{"POST", two, e.createSandbox(true), "container.create", true},
		{"GET", one, e.listRunning, "", false},
		{"GET", two, e.listSandboxes, "", false},
		{"GET", one + "/{id}", e.getSandbox, "", false},
		{"DELETE", one + "/{id}", e.kill, "container.delete", true},
		{"POST", one + "/{id}/connect", e.connect(false), "container.change", false},
		{"POST", two + "/{id}/connect", e.connect(true), "container.change", false},
		{"POST", one + "/{id}/resume", e.resume, "container.change", false},
		{"POST", one + "/{id}/timeout", e.setTimeout, "container.change", false},
		{"POST", one + "/{id}/refreshes", e.refresh, "container.change", false},
		{"POST", one + "/{id}/pause", e.pause, "container.pause", true},
		{"PUT", one + "/{id}/network", e.setNetwork, "container.change", false},
		{"POST", one + "/{id}/snapshots", e.takeSnapshot, "snapshot.create", true},
		{"POST", one + "/{id}/fork", e.fork, "container.fork", true},
		{"GET", one + "/{id}/metrics", e.metrics, "", false},
		{"GET", one + "/metrics", e.metricsOfAll, "", false},
		{"GET", one + "/{id}/logs", e.logs, "", false},
		{"GET", two + "/{id}/logs", e.logs, "", false},
		{"GET", "/snapshots", e.listSnapshots, "", false},
		{"GET", "/templates", e.listTemplates, "", false},
		{"GET", "/v2/templates", e.listTemplates, "", false},
		{"GET", "/templates/aliases/{alias}", e.findAlias, "", false},
		{"GET", "/templates/{template}", e.getTemplate, "", false},
		{"GET", "/templates/{template}/{part}", e.listTags, "", false},
		{"DELETE", "/templates/{template}", e.deleteTemplate, "template.delete", false},
		{"POST", "/templates/tags", e.addTags, "template.tag", false},
		{"DELETE", "/templates/tags", e.removeTags, "template.untag", false},
		{"POST", "/v2/templates", e.orderBuild, "template.order", false},
		{"POST", "/v3/templates", e.orderBuild, "template.order", false},
		{"GET", "/templates/{template}/files/{hash}", e.linkFiles, "", false},
		{"POST", "/v2/templates/{template}/builds/{build}", e.startBuild, "template.build", false},
		{"GET", "/templates/{template}/builds/{build}/status", e.buildStatus, "", false},
		{"GET", "/templates/{template}/builds/{build}/logs", e.buildLogs, "", false},
	}
}

// Control returns the control plane.
func (e *Edge) Control() api.Edge {
	out := api.Edge{Name: "e2b", Dialect: dialect, Key: access.Key, Prefixes: []string{sandboxes, "/v2", "/v3",
		"/templates", "/snapshots", "/volumes", "/volumecontent", "/secrets", "/teams", "/nodes", "/health"}}
	for _, r := range e.rows() {
		route := api.Route{Method: r.method, Pattern: r.pattern, Where: placeOf(r.pattern), Handle: serve(r.handle),
			Act: r.act, Covered: r.covered}
		if r.method == "DELETE" && r.pattern == "/templates/tags" { // the one DELETE with a body
			route.Media = []string{"*/*"}
		}
		out.Routes = append(out.Routes, route)
	}
	out.Routes = append(out.Routes, api.Route{Method: "GET", Pattern: "/health", Where: api.None, Public: true,
		Handle: func(w http.ResponseWriter, _ *http.Request, _ api.Caller) error {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}})
	out.Routes = append(out.Routes, e.uploadRoute())
	out.Routes = append(out.Routes, absent()...)
	return out
}
