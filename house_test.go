// Package berth_test holds the rules of the house: who may import whom, and what every package
// must have.
package berth_test

import (
	"bytes"
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
	"proto":                {},
	"backup":               {"proto", "runtime/diskpool", "state/durable"},
	"state/ledger":         {"state/durable", "state/ledger/journal"},
	"state/ledger/journal": {},
	"state/durable":        {},
	"gc":                   {},
	"state/audit":          {"proto", "state/ledger", "state/durable"},
	"state/registries":     {"state/vault", "proto", "state/ledger"},
	"api/jsonlines":        {},
	"api/buildform":        {"api/forms", "api/openapi", "proto"},
	"state/vault":          {"proto", "state/ledger", "state/durable"},
	"guest/output":         {"proto"},
	"state/keys":           {"proto", "state/ledger"},
	"state/tokens":         {"proto"},
	"state/logins":         {"proto", "state/ledger"},
	"console":              {"proto", "api", "api/strictjson"},
	"events":               {"proto", "state/audit"},
	"events/webhook":       {"state/vault", "proto", "proto/span", "events", "state/ledger"},
	"egress":               {"proto"},
	"guest/wire":           {"proto"},
	"guest/client":         {"proto", "guest/wire", "guest/output"},
	"guest/user":           {"proto", "guest/wire"},
	"guest/fs": {"proto", "guest/wire", "guest/output", "guest/user", "guest/fs/access", "guest/fs/archive",
		"guest/fs/editor", "guest/fs/find", "guest/fs/grep", "guest/fs/notify"},
	"files": {"proto", "state/ledger", "state/keylock", "files/filename", "files/intake",
		"state/durable"},
	"session/secrets":   {"proto", "state/ledger"},
	"session/lease":     {"proto"},
	"session/inventory": {"proto", "state/ledger"},
	"session/mounts":    {"proto", "guest/client", "guest/wire"},
	"session/handshake": {"guest/client", "guest/wire"},
	"session/snapshots": {"proto", "state/ledger"},
	"session/loopback":  {"egress"},
	"session/refusals":  {"proto", "egress"},
	"session/limits":    {"proto", "guest/wire"},
	"session/stats":     {"proto", "session/limits"},
	"session/shells":    {"proto"},
	"session/cpu":       {"state/ledger"},
	"session/peers":     {"guest/client"},
	"session/events":    {"proto", "guest/output"},
	"session/existing":  {"proto", "egress"},
	"session/index":     {"proto"},
	"session/endlog":    {"state/ledger"},
	"session/presence":  {},
	"session/retries":   {"proto", "session/secrets", "state/ledger"},
	"session/execstore": {"proto", "guest/output", "state/durable"},
	"session/validate":  {"proto", "session/secrets"},
	"session": {"proto", "proto/span", "tools/bridge/inside", "egress", "guest/client", "guest/wire", "state/ledger",
		"state/vault",
		"guest/output", "session/cpu", "session/secrets", "session/events", "session/execstore",
		"session/existing", "session/handshake", "session/index", "session/retries", "session/inventory",
		"session/lease",
		"session/limits", "session/endlog", "session/presence", "session/refusals", "session/loopback", "session/mounts", "session/peers", "session/shells",
		"session/snapshots",
		"session/validate"},
	"session/filework":  {"proto", "session", "guest/client", "guest/wire"},
	"session/fleeting":  {"proto", "session"},
	"session/inbound":   {"proto", "session", "session/loopback", "guest/client"},
	"session/listening": {"proto", "session", "session/inbound", "guest/client", "guest/wire", "state/ledger"},
	"session/asking":    {"proto", "egress", "session", "state/ledger", "tools/approval"},
	"api/ports": {"proto", "api", "api/ports/address", "api/ports/public", "api/ports/signed", "guest/client",
		"session", "session/inbound"},
	"api/approvals": {"proto", "api", "api/openapi", "api/strictjson", "session/asking", "tools/bridge",
		"tools/toolstore"},
	"api/ports/public":  {"proto", "session", "session/inbound", "state/keylock"},
	"api/ports/address": {"proto"},
	"api/ports/signed":  {"state/vault", "proto", "state/ledger"},
	"test/sessiontest": {"session/asking", "session/inventory", "session/limits", "test/needs", "proto", "tools/bridge", "egress",
		"guest/client", "guest/wire",
		"state/ledger", "state/keys", "files",
		"session", "artifacts", "state/vault"},
	"tools/approval": {"proto", "state/ledger"},
	"tools/schema":   {"proto"},
	"tools/bridge": {"proto", "tools/approval", "egress", "state/ledger", "session", "tools/bridge/codeapi",
		"tools/bridge/provider", "tools/bridge/remote", "session/loopback"},
	"tools/bridge/codeapi":  {"proto", "tools/schema"},
	"tools/bridge/provider": {"proto", "tools/schema"},
	"tools/bridge/remote": {"proto", "tools/bridge/codeapi", "tools/bridge/provider",
		"tools/bridge/mcpclient"},
	"tools/bridge/mcpclient":        {"proto", "proto/sse"},
	"tools/bridge/inside":           {},
	"tools/bridge/inside/arguments": {},
	"tools/bridge/inside/command":   {"tools/bridge/inside/arguments"},
	"artifacts": {"proto", "state/ledger", "files", "session", "session/secrets", "session/filework",
		"files/filename", "state/keylock"},
	"tools/toolinput": {"proto"},
	"tools/tooluse":   {"proto", "session", "tools/toolinput"},
	"code/driver":     {},
	"code": {"proto", "proto/span", "code/cell", "code/driver", "sandbox-image/contents", "session", "session/fleeting",
		"session/events"},
	"code/cell": {"proto", "guest/output"},
	"tools/skills": {"proto", "state/ledger", "session", "tools/skills/content",
		"tools/skills/provided", "state/durable"},
	"tools/skills/content":  {"proto"},
	"tools/skills/provided": {"proto", "tools/skills/content"},
	"tools/toolstore": {"proto", "proto/span", "tools/approval", "state/ledger", "state/vault", "session",
		"session/secrets",
		"tools/toolstore/field", "tools/toolstore/program"},
	"tools/toolstore/field":   {"proto"},
	"tools/toolstore/program": {"proto", "sandbox-image/contents", "tools/toolstore/field"},
	"test/scripted":           {"proto"},
	"gateway/upstream":        {"proto", "proto/span", "gateway/upstream/answer", "gateway/upstream/chat"},
	"api/openapi":             {"proto"},
	"api":                     {"proto", "proto/span", "proto/sse", "api/openapi"},
	"api/native": {"api/buildform", "guest/client", "build", "proto", "api", "api/jsonlines", "api/live", "api/native/document",
		"api/ports",
		"api/openapi", "api/strictjson", "state/audit",
		"session", "session/filework", "artifacts", "tools/tooluse", "code", "tools/toolstore", "tools/bridge",
		"events", "events/webhook", "session/inbound", "session/stats"},
	"api/e2b": {"proto", "api", "api/e2b/access", "api/e2b/envd", "api/e2b/interpreter",
		"api/e2b/templates", "api/e2b/usage", "api/ports/address", "api/ports/public", "code", "events", "session", "session/inbound",
		"session/stats"},
	"api/librechat": {"proto", "api", "api/forms", "files", "files/filename", "session", "session/filework", "session/fleeting",
		"state/keylock", "tools/bridge", "tools/bridge/codeapi", "tools/bridge/provider"},
	"api/e2b/connectrpc":  {"proto", "api"},
	"api/e2b/templates":   {"proto", "build", "build/wire"},
	"api/e2b/usage":       {"proto"},
	"api/e2b/interpreter": {"proto", "api", "code", "session"},
	"api/e2b/envd": {"proto", "api", "api/e2b/connectrpc", "api/e2b/usage", "session", "session/filework",
		"session/stats"},
	"api/e2b/access":      {"proto"},
	"api/live":            {"proto", "api", "api/strictjson", "session"},
	"api/native/document": {"proto", "api", "api/openapi"},
	"api/manual":          {"proto", "api"},
	"docs":                {},
	"api/strictjson":      {"proto"},
	"proto/sse":           {},
	"proto/span":          {"proto"},
	"daemon/traces":       {"proto", "proto/span"},
	"gateway":             {"proto", "proto/span", "state/ledger"},
	"gateway/messages": {"proto", "proto/span", "proto/sse", "gateway", "gateway/upstream",
		"gateway/messages/exectool", "gateway/messages/history", "gateway/messages/rawjson"},
	"gateway/messages/batches": {"proto", "gateway/upstream", "gateway/messages", "gateway/messages/rawjson",
		"state/ledger"},
	"gateway/containers": {"proto", "gateway", "session", "artifacts", "code", "tools/tooluse", "tools/bridge",
		"tools/skills", "tools/bridge/codeapi", "tools/bridge/provider"},
	"api/forms": {"proto"},
	"api/anthropic": {"proto", "api", "api/forms", "api/openapi", "files", "gateway", "gateway/messages",
		"gateway/messages/batches", "tools/skills", "files/filename"},
	"api/mcp": {"proto", "proto/span", "proto/sse", "api", "session", "session/filework", "files",
		"artifacts", "tools/tooluse",
		"tools/toolinput", "code",
		"tools/toolstore", "files/filename", "tools/toolstore/field"},
	"build/wire": {},
	"build": {"proto", "proto/span", "build/wire", "egress", "guest/client", "guest/wire", "session",
		"session/loopback", "session/secrets",
		"session/validate", "state/keylock"},
	"builder":            {"build/wire"},
	"packaging/bom":      {},
	"packaging/ociimage": {},
	"builder/buildtest":  {"proto", "client", "test/daemontest"},
	"guest/buildstep":    {"guest/user", "guest/wire"},
	"sandbox-image": {"proto", "sandbox-image/buildenv", "sandbox-image/debian", "sandbox-image/layer",
		"sandbox-image/ociarchive", "sandbox-image/recipe"},
	"test/stored": {},
	"test/apitest": {"proto", "console", "state/logins", "state/registries", "api", "api/approvals", "api/native", "code", "events", "events/webhook", "session",
		"session/stats", "state/audit", "state/vault",
		"test/sessiontest", "tools/toolstore"},
	"test/clients": {},
	"test/logtest": {},
	"test/needs":   {},

	"test/netclients/gofetch": {},
	"test/porttest":           {},
	"mk/baseimage":            {"sandbox-image"},
	"cmd/berth": {"runtime/diskpool", "runtime/mountns", "runtime/doctor", "proto", "sandbox-image", "session",
		"runtime/containerd",
		"daemon/acme", "daemon/notify", "daemon/settings", "gateway/upstream", "cli", "cli/app", "cli/term",
		"client", "daemon",
		"daemon/gosched", "test/attack", "test/launch",
		"test/scripted"},
	"cli": {"proto", "client", "cli/admin", "cli/app", "cli/data", "cli/term", "cli/code", "cli/flags",
		"cli/tools", "cli/watch"},
	"cli/watch": {"proto", "client", "cli/app", "cli/term"},
	"cli/admin": {"backup", "proto", "client", "api/e2b/access", "state/ledger", "state/audit", "cli/app",
		"cli/app/profile", "cli/term", "test/attack"},
	"cli/app":         {"proto", "client", "cli/app/profile", "cli/term"},
	"cli/app/profile": {"proto", "state/durable"},
	"cli/data": {"proto", "client", "sandbox-image", "cli/app", "cli/flags", "cli/pack", "cli/term",
		"cli/unpack"},
	"client":                 {"proto", "proto/sse"},
	"client/functions":       {"client", "proto"},
	"client/terminal":        {"client", "proto"},
	"examples/go":            {"client", "proto"},
	"test/daemontest":        {"test/launch"},
	"test/launch":            {},
	"test/bench":             {"proto", "cli/app", "cli/term", "client", "test/launch", "cli/pack", "cli/unpack"},
	"test/bench/berth-bench": {"proto", "cli", "cli/app", "test/bench"},
	"cli/term":               {"proto"},
	"test/attack":            {"proto", "client"},
	"test/attacktest":        {"test/daemontest", "test/egresstest"},
	"test/mutants":           {},
	"daemon/certs":           {"state/durable"},
	"daemon/settings":        {},
	"daemon/notify":          {},
	"daemon/acme":            {"daemon/acme/records", "state/durable"},
	"daemon/acme/records":    {},
	"test/acmetest":          {},
	"test/oauthtest":         {},
	"daemon/gosched":         {},
	"cli/pack":               {"proto"},
	"cli/unpack":             {"proto"},
	"daemon": {"backup", "build", "build/wire", "runtime/images", "session/inventory", "events", "events/webhook",
		"proto", "egress", "state/ledger", "state/audit", "state/vault", "state/keys", "state/registries",
		"state/tokens", "state/logins", "console", "files", "artifacts", "session", "runtime/containerd", "gc", "code", "gateway",
		"gateway/containers", "gateway/messages", "gateway/messages/batches", "gateway/upstream", "api", "api/native",
		"api/anthropic", "api/e2b", "api/e2b/access", "api/e2b/templates", "api/librechat", "daemon/acme", "daemon/certs", "daemon/traces", "api/mcp",
		"api/approvals", "api/manual", "docs", "session/asking",
		"api/ports", "api/ports/address", "api/ports/signed", "tools/toolstore", "tools/bridge",
		"tools/skills", "session/inbound", "egress/authority", "egress/proxy", "state/durable", "session/loopback",
		"session/listening", "session/stats"},

	"state/keylock":      {},
	"test/egresstest":    {},
	"egress/authority":   {"egress"},
	"egress/placeholder": {"proto", "egress"},
	"egress/resolve":     {"proto", "egress"},
	"egress/sniff":       {"proto", "egress"},
	"egress/names":       {},
	"egress/proxy": {"proto", "egress", "egress/authority", "egress/names", "egress/placeholder", "egress/resolve",
		"egress/sniff"},
	"files/filename":            {"proto"},
	"files/intake":              {},
	"gateway/upstream/answer":   {},
	"gateway/upstream/chat":     {"proto", "proto/sse", "gateway/upstream/answer", "gateway/messages/rawjson"},
	"gateway/messages/rawjson":  {"proto"},
	"gateway/messages/exectool": {"proto", "gateway/messages/rawjson"},
	"gateway/messages/history":  {"proto", "gateway/messages/exectool", "gateway/messages/rawjson"},
	// The guest's packages, inside the container.
	"guest/gosched": {},
	"guest/sockets": {},
	"guest/proc":    {"proto", "guest/gosched", "guest/sockets", "guest/wire", "guest/user"},
	"guest/zygote":  {"guest/gosched", "guest/wire", "guest/proc"},
	"guest/input":   {"guest/wire"},
	"guest/forward": {"proto", "guest/wire"},
	"guest/signals": {},
	"guest/pid1": {"proto", "guest/wire", "guest/output", "guest/user", "guest/fs", "guest/proc", "guest/zygote",
		"guest/input", "guest/forward"},
	"guest/capacity": {"guest/user"},
	"cmd/berth-guest": {"proto", "guest/buildstep", "guest/capacity", "guest/gosched", "guest/wire",
		"guest/pid1", "guest/signals", "guest/user",
		"tools/bridge/inside/command"},
	"test/guesttest": {"proto", "guest/wire"},

	// The runtime's packages.
	"runtime/outbound": {"proto"},
	"runtime/containerd": {"build/wire", "session/inventory", "proto", "egress", "runtime/outbound", "proto/span",
		"runtime/removetree",
		"session", "runtime/diskpool", "runtime/cgroup", "runtime/meter",
		"runtime/mountns", "runtime/images", "runtime/inprocess", "runtime/isolation", "runtime/warmpool",
		"runtime/launch", "runtime/layer", "runtime/forkserver", "runtime/ocispec", "state/keylock", "session/limits",
		"runtime/inside"},
	"runtime/inside":     {"proto", "runtime/layer", "runtime/meter", "session/limits"},
	"runtime/btrfs":      {},
	"runtime/removetree": {},
	"runtime/layer":      {"runtime/removetree"},
	"runtime/diskpool":   {"proto", "runtime/removetree", "runtime/btrfs", "runtime/layer"},
	"runtime/cgroup":     {"proto"},
	"runtime/meter":      {"session/limits", "runtime/btrfs", "runtime/diskpool", "runtime/cgroup"},
	"runtime/mountns":    {},
	"runtime/isolation":  {"proto", "runtime/outbound"},
	"runtime/inprocess":  {"runtime/images"},
	"runtime/images":     {"build/wire", "proto", "proto/span", "runtime/diskpool", "state/keylock"},
	"runtime/ocispec":    {"proto", "runtime/diskpool", "runtime/layer", "runtime/cgroup", "runtime/mountns"},
	"runtime/forkserver": {"runtime/diskpool"},
	"runtime/launch": {"build/wire", "proto", "runtime/diskpool", "runtime/cgroup", "runtime/forkserver",
		"runtime/mountns",
		"runtime/layer", "runtime/ocispec"},
	"runtime/warmpool": {"proto"},
	"runtime/doctor": {"proto", "session", "runtime/containerd", "runtime/btrfs", "runtime/diskpool",
		"runtime/outbound",
		"runtime/cgroup",
		"runtime/forkserver", "runtime/mountns", "runtime/launch"},

	// Rooms below guest/fs, cli and sandbox-image.
	"guest/fs/access":          {"proto", "guest/wire", "guest/user"},
	"guest/fs/archive":         {"proto", "guest/wire", "guest/user", "guest/fs/access"},
	"guest/fs/editor":          {"proto", "guest/wire", "guest/user", "guest/fs/access", "guest/fs/hunk"},
	"guest/fs/hunk":            {"proto"},
	"guest/fs/find":            {"proto", "guest/wire", "guest/fs/access"},
	"guest/fs/grep":            {"proto", "guest/wire", "guest/fs/find"},
	"guest/fs/notify":          {},
	"cli/code":                 {"proto", "client", "cli/app", "cli/code/ipynb", "cli/code/picture", "cli/flags", "cli/term"},
	"cli/code/picture":         {"cli/term"},
	"cli/code/ipynb":           {"proto"},
	"cli/flags":                {"proto", "cli/app", "cli/term"},
	"cli/tools":                {"proto", "client", "cli/app", "cli/flags", "cli/term"},
	"sandbox-image/buildenv":   {"proto"},
	"sandbox-image/contents":   {},
	"sandbox-image/debian":     {"proto", "sandbox-image/buildenv"},
	"sandbox-image/layer":      {"sandbox-image/buildenv"},
	"sandbox-image/ociarchive": {"sandbox-image/buildenv", "sandbox-image/layer"},
	"sandbox-image/recipe":     {"code/driver", "sandbox-image/buildenv", "sandbox-image/debian"},
}

// onlyIn names outside modules that one package alone may import.
var onlyIn = map[string][]string{
	"github.com/containerd/": {"runtime/containerd", "runtime/inprocess", "runtime/images", "runtime/diskpool",
		"runtime/launch", "runtime/ocispec",
		"runtime/doctor", "builder",
		"test/bench"}, // diskpool: loop devices; ocispec: the seccomp profile; doctor: mounts
	"github.com/modelcontextprotocol/": {"api/mcp", "tools/bridge/mcpclient"},
	"github.com/openai/":               {"gateway/upstream/chat"},
	"go.etcd.io/bbolt":                 {"state/ledger"},
	"go.opentelemetry.io/":             {"daemon/traces", "proto/span"},
	"github.com/robfig/cron":           {"gc"},
	"github.com/spf13/cobra": {"cmd/berth", "cli", "cli/admin", "cli/app", "cli/data", "cli/code", "cli/flags",
		"cli/tools", "cli/watch"},
}

// badNames say nothing about what is inside.
var badNames = []string{"util", "utils", "common", "helpers", "models", "types", "manager", "misc", "base"}

const module = "berth/"

// modules are the directories of the modules that the rules hold for.
var modules = []string{".", "builder", "packaging", "test/bench"}

type pkg struct {
	ImportPath, Name, Dir string
	Imports, GoFiles      []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	var list []pkg
	for _, dir := range modules {
		cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Imports,GoFiles", "./...")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", dir, err)
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p pkg
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.ImportPath = strings.TrimPrefix(p.ImportPath, module); len(p.GoFiles) > 0 &&
				!strings.Contains(p.ImportPath, "testdata") {
				list = append(list, p)
			}
		}
	}
	return list
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
			if p.ImportPath == "proto" && strings.Contains(imp, ".") && imp != "github.com/google/uuid" {
				t.Errorf("proto may import the standard library and google/uuid, which makes IDs, not %s", imp)
			}
		}
	}
}

// linked says which packages of guest a program may link: the daemon no code of PID 1, and PID 1 none of the daemon's
// end. A trailing /... stands for a package and all below it.
var linked = map[string][]string{
	"cmd/berth": {"guest/client", "guest/output", "guest/wire"},
	"cmd/berth-guest": {"guest/buildstep", "guest/capacity", "guest/forward", "guest/fs/...",
		"guest/gosched", "guest/input", "guest/output", "guest/pid1", "guest/proc",
		"guest/signals", "guest/sockets", "guest/user", "guest/wire", "guest/zygote"},
}

func TestEachEndOfTheWireIsAlone(t *testing.T) {
	for program, allowed := range linked {
		out, err := exec.Command("go", "list", "-deps", "./"+program).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for dep := range strings.Lines(string(out)) {
			own, _ := strings.CutPrefix(strings.TrimSpace(dep), module)
			if strings.HasPrefix(own, "guest/") && !matches(allowed, own) {
				t.Errorf("%s links %s", program, own)
			}
			if program == "cmd/berth-guest" && own == "session" {
				t.Errorf("%s links %s", program, own)
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
			parsed, err := parser.ParseFile(token.NewFileSet(), path.Join(p.Dir, f), nil,
				parser.PackageClauseOnly|parser.ParseComments)
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
