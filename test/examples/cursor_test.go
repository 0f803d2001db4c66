package examples_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// useAsCursor connects as the file says that the recipe puts in place. Cursor itself has no program that runs without
// an account.
func useAsCursor(t *testing.T, w *world, dir string) {
	text, err := os.ReadFile(filepath.Join(dir, ".cursor/mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		MCPServers map[string]struct {
			URL     string
			Headers map[string]string
		}
	}
	decode(t, []byte(strings.NewReplacer("${env:BERTH_URL}", w.URL, "${env:BERTH_API_KEY}", w.Key).Replace(
		string(text))), &config)
	server := config.MCPServers["berth"]
	client := mcp.NewClient(&mcp.Implementation{Name: "cursor-vscode", Version: "1.0.0"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL,
		HTTPClient: &http.Client{Transport: headers(server.Headers)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash",
		Arguments: map[string]any{"command": "echo $((6 * 7))", "container": "cursor"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || !strings.HasPrefix(text.Text, "42") {
		t.Errorf("the tool bash answers %+v", result.Content[0])
	}
}

// headers sends requests with these headers.
type headers map[string]string

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}
