// Package berth_test holds the rules of the house: who may import whom, and what every package
// must have.
package berth_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayImport says for each package which of our own it may import. A trailing /... stands for
// a package and all below it. A package that is not named here fails the test: say first where it stands.
var mayImport = map[string][]string{
	"proto":                         {},
	"stack":                         {},
	"quick":                         {},
	"ledger":                        {},
	"gc":                            {},
	"audit":                         {"proto", "ledger"},
	"vault":                         {"proto", "ledger"},
	"output":                        {"proto"},
	"keys":                          {"proto", "ledger"},
	"egress":                        {"proto"},
	"egress/egresstest":             {},
	"guest":                         {"proto", "output", "quick", "stack"},
	"files":                         {"proto", "ledger"},
	"session":                       {"proto", "bridge/inside", "egress", "guest", "ledger", "output", "stack"},
	"session/containerd":            {"proto", "session"},
	"session/sessiontest":           {"proto", "bridge", "egress", "guest", "ledger", "keys", "files", "session", "artifacts", "vault"},
	"bridge":                        {"proto", "bridge/mcpclient", "egress", "ledger", "session"},
	"bridge/mcpclient":              {"proto"},
	"bridge/inside":                 {},
	"bridge/inside/command":         {},
	"artifacts":                     {"proto", "ledger", "files", "session"},
	"tools":                         {"proto", "session"},
	"code/driver":                   {},
	"code":                          {"proto", "code/driver", "output", "session"},
	"skills":                        {"proto", "ledger", "session"},
	"catalog":                       {"proto", "ledger", "session", "code"},
	"gateway/scripted":              {"proto"},
	"gateway/upstream":              {"proto"},
	"api":                           {"proto", "stack"},
	"api/native":                    {"proto", "api", "audit", "keys", "session", "files", "artifacts", "tools", "code", "catalog", "bridge"},
	"gateway":                       {"proto", "ledger", "session", "files", "artifacts", "tools", "code", "gateway/upstream", "bridge", "skills"},
	"api/anthropic":                 {"proto", "api", "session", "files", "artifacts", "tools", "gateway", "skills"},
	"api/mcp":                       {"proto", "api", "session", "files", "artifacts", "tools", "code", "catalog"},
	"sandbox-image":                 {"proto", "code/driver"},
	"cmd/berth-guest":               {"proto", "guest", "bridge/inside/command"},
	"cmd/berth":                     {"proto", "guest", "sandbox-image", "session", "session/containerd", "gateway/upstream", "cmd/berth/internal/...", "gateway/scripted"},
	"cmd/berth/internal/cli":        {"proto", "ledger", "audit", "code", "session", "artifacts", "catalog", "sandbox-image", "cmd/berth/internal/client", "cmd/berth/internal/attack", "cmd/berth/internal/bench", "cmd/berth/internal/pack", "cmd/berth/internal/unpack", "bridge"},
	"cmd/berth/internal/client":     {"proto", "code", "session", "artifacts", "catalog", "bridge"},
	"cmd/berth/internal/daemontest": {"cmd/berth/internal/launch"},
	"cmd/berth/internal/launch":     {},
	"cmd/berth/internal/bench":      {"proto", "code", "cmd/berth/internal/client", "cmd/berth/internal/launch", "cmd/berth/internal/pack", "cmd/berth/internal/unpack"},
	"cmd/berth/internal/attack":     {"proto", "cmd/berth/internal/client"},
	"cmd/berth/internal/certs":      {},
	"cmd/berth/internal/pack":       {},
	"cmd/berth/internal/unpack":     {"proto"},
	"cmd/berth/internal/daemon":     {"proto", "egress", "ledger", "audit", "vault", "keys", "files", "artifacts", "session", "session/containerd", "gc", "code", "gateway", "gateway/upstream", "api", "api/native", "api/anthropic", "cmd/berth/internal/certs", "api/mcp", "catalog", "bridge", "skills", "quick"},
}

// onlyIn names outside modules that one package alone may import.
var onlyIn = map[string][]string{
	"github.com/containerd/":           {"session/containerd", "cmd/berth/internal/bench"}, // the latter compares with a stock one
	"github.com/modelcontextprotocol/": {"api/mcp", "bridge/mcpclient"},
	"github.com/openai/":               {"gateway/upstream"},
	"go.etcd.io/bbolt":                 {"ledger"},
	"github.com/robfig/cron":           {"gc"},
	"github.com/spf13/cobra":           {"cmd/berth", "cmd/berth/internal/cli"},
}

// badNames say nothing about what is inside.
var badNames = []string{"util", "utils", "common", "helpers", "models", "types", "manager", "misc", "base"}

const module = "berth/"

type pkg struct {
	ImportPath, Name, Dir string
	Imports, GoFiles      []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Imports,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath = strings.TrimPrefix(p.ImportPath, module); len(p.GoFiles) > 0 && !strings.Contains(p.ImportPath, "testdata") {
			list = append(list, p)
		}
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		allowed, ok := mayImport[p.ImportPath]
		if !ok {
			t.Errorf("package %s has no row in mayImport", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, module); ok && !matches(allowed, own) {
				t.Errorf("%s may not import %s", p.ImportPath, own)
			}
			for prefix, only := range onlyIn {
				if strings.HasPrefix(imp, prefix) && !slices.Contains(only, p.ImportPath) {
					t.Errorf("%s may not import %s; only %v may", p.ImportPath, imp, only)
				}
			}
			if p.ImportPath == "proto" && strings.Contains(imp, ".") {
				t.Errorf("proto may import the standard library only, not %s", imp)
			}
		}
	}
}

func matches(allowed []string, own string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		tree, isTree := strings.CutSuffix(a, "/...")
		return a == own || isTree && strings.HasPrefix(own+"/", tree+"/")
	})
}

func TestPackageCommentsAndNames(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(badNames, p.Name) {
			t.Errorf("package %s: the name %q says nothing", p.ImportPath, p.Name)
		}
		comments := 0
		for _, f := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), path.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Doc != nil {
				comments++
			}
		}
		if comments != 1 {
			t.Errorf("package %s has %d package comments, want one", p.ImportPath, comments)
		}
	}
}
