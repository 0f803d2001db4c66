package api_test

import (
	"slices"
	"strings"
	"testing"

	"berth/api"
	"berth/session"
)

// TestTables checks the route tables of all edges: each has a name, each route says where the ID of its container
// stands, and the pattern of its path agrees with that.
func TestTables(t *testing.T) {
	var inBody, inHeader []string
	for _, e := range newHouse(t, session.Config{}).edges {
		if e.Name == "" || len(e.Routes) == 0 {
			t.Errorf("edge %q has %d routes", e.Name, len(e.Routes))
		}
		for _, r := range e.Routes {
			name := r.Method + " " + r.Pattern
			named := slices.Contains(api.Wildcards(r.Pattern), "id") &&
				(strings.Contains(r.Pattern, "/containers/{id}") || strings.Contains(r.Pattern, "/sandboxes/{id}"))
			switch r.Where {
			case api.InPath:
				if !named {
					t.Errorf("%s names no container in its path", name)
				}
			case api.InBody:
				inBody = append(inBody, name)
			case api.InHeader:
				inHeader = append(inHeader, name)
			case api.InHost:
				if !strings.HasPrefix(e.Host, "*.") {
					t.Errorf("%s: edge %s has no wildcard host", name, e.Name)
				}
			case api.None:
			default:
				t.Errorf("%s does not say where the ID of its container stands", name)
			}
			if named && r.Where != api.InPath {
				t.Errorf("%s names a container in its path and does not say so", name)
			}
		}
	}
	slices.Sort(inBody)
	// and POST /v1/messages, of a gateway
	want := []string{"POST /v1/run_code", "POST /v1/tool_use", "POST /v1/tools/{name}/run"}
	if !slices.Equal(inBody, want) {
		t.Errorf("in the body: %v, want %v", inBody, want)
	}
	if len(inHeader) != 3 {
		t.Errorf("in a header: %v, want those of MCP", inHeader)
	}
}
