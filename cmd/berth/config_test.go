package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/daemon/settings"
	"berth/session"
)

// writeConfig writes a configuration file.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "berth.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestExampleHasEverySetting checks that the example has each flag of serve once, and names no other one.
func TestExampleHasEverySetting(t *testing.T) {
	var grouped []string
	for _, g := range settingGroups {
		grouped = append(grouped, g.Keys...)
	}
	slices.Sort(grouped)
	want := append(settings.Keys(newOptions().flags), "accept-loss")
	slices.Sort(want)
	if !slices.Equal(grouped, want) {
		t.Errorf("in the groups %v, of serve %v", grouped, want)
	}
	for _, key := range settings.Keys(newOptions().flags) {
		if n := strings.Count(configExample(), "\n#"+key+" = "); n != 1 {
			t.Errorf("%s is there %d times", key, n)
		}
	}
	if !strings.Contains(configExample(), "# accept-loss: ") {
		t.Error("accept-loss is not explained")
	}
}

// TestExampleHasTheDefaults checks that the example is a valid file, and that a daemon with all its commented values is
// the same as one without a file.
func TestExampleHasTheDefaults(t *testing.T) {
	o, _, err := load(inputs{file: writeConfig(t, configExample())})
	if err != nil || len(o.from) > 0 {
		t.Fatalf("%v, %v", o.from, err)
	}
	text := regexp.MustCompile(`(?m)^#([a-z][a-z-]* = )`).ReplaceAllString(configExample(), "$1")
	o, cfg, err := load(inputs{file: writeConfig(t, text)})
	if err != nil || len(o.from) != len(settings.Keys(o.flags)) {
		t.Fatalf("%d of %d: %v", len(o.from), len(settings.Keys(o.flags)), err)
	}
	_, plain, err := load(inputs{})
	if err != nil {
		t.Fatal(err)
	}
	// What the help names as the default of the part that uses a value stands in the example, and is 0 here.
	for _, f := range []struct {
		name       string
		got, plain any
	}{
		{"listen", cfg.Listen, plain.Listen}, {"data", cfg.Dir, plain.Dir}, {"egress", cfg.Egress, plain.Egress},
		{"limits", cfg.Session.Limits, session.DefaultLimits}, {"sudo", cfg.Session.NoSudo, plain.Session.NoSudo},
		{"warm", cfg.WarmMax, plain.WarmMax}, {"stop", cfg.Session.StopAfter, plain.Session.StopAfter},
		{"ask", cfg.AskTime, plain.AskTime}, {"ports", cfg.Session.PortsMax, plain.Session.PortsMax},
		{"upstreams", len(cfg.Upstreams), 0}, {"oauth", cfg.OAuth.Issuer, ""}, {"acme", cfg.ACME, plain.ACME},
	} {
		if !reflect.DeepEqual(f.got, f.plain) {
			t.Errorf("%s: %+v, without a file %+v", f.name, f.got, f.plain)
		}
	}
}

// TestConfigReportsFaultsOfValues checks that values that are wrong by themselves or beside others are all reported, at
// the place where each was set.
func TestConfigReportsFaultsOfValues(t *testing.T) {
	file := writeConfig(t, `cpus = 0.001
pids = 1
warm-max = -1
runtime-class = "vm"
tls-cert = "/a"
oauth-issuer = "https://a.example.org"
origin = ["https://a.example.org/path"]
domain = "10.0.0.1"
network-max = "all"
ports-max = "open"
resolver = "nowhere"
upstream = ["nonsense"]
egress-allow-private = ["10.0.0.1/8"]
network-ask = "1ms"
registry-mirror = ["docker.io"]
acme-dns = "exec"
listen = "here"
lissten = "here"
`)
	environ := settings.Values{"pool-bytes": {Texts: []string{"1000"},
		Source: settings.Source{Kind: settings.Environment, Name: "BERTH_POOL_BYTES"}}}
	_, _, err := load(inputs{file: file, environment: environ})
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{
		":1: cpus: 0.001 is too little for a container; 0.01 is the least", ":2: pids: 1 is too little",
		":3: warm-max: must not be negative", `:4: runtime-class: there is no runtime class "vm"`,
		":5: tls-cert: needs --tls-key", ":6: oauth-issuer: needs --oauth-resource",
		`:7: origin: "https://a.example.org/path" is not a web origin`, `:8: domain: "10.0.0.1" is not a domain`,
		`:9: network-max: "all" is not a network mode`, `:10: ports-max: "open" is not an access`,
		`:11: resolver: "nowhere" is not the host:port`, ":12: upstream: ", ":13: egress-allow-private: ",
		":14: network-ask: it must be from 1s to 24h", ":15: registry-mirror: ", ":16: acme-dns: needs --acme",
		`:17: listen: "here" is not an address and a port`,
		":18: lissten: there is no such setting; did you mean listen?",
	} {
		if !strings.Contains(err.Error()+"\n", "\n"+file+want) && !strings.HasPrefix(err.Error(), file+want) {
			t.Errorf("%q is missing", want)
		}
	}
	if !strings.Contains(err.Error(), "\nBERTH_POOL_BYTES: 1000 bytes are too few") {
		t.Error("the variable's fault is missing")
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 19 {
		t.Errorf("%d faults in\n%v", n, err)
	}
}

// otherVariables are read by other parts of the program, or by its tests and tools, with meanings of their own.
var otherVariables = regexp.MustCompile(`BERTH_[A-Z0-9_]+`)

// TestVariablesDoNotClash checks that no setting has the variable of something else. BERTH_BIN means the same to the
// tests: the directory of the programs.
func TestVariablesDoNotClash(t *testing.T) {
	ours := make(map[string]bool)
	for _, key := range settings.Keys(newOptions().flags) {
		ours[settings.Variable(key)] = true
	}
	seen := make(map[string]bool)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "node_modules" ||
			d.Name() == "settings"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasPrefix(path, "../../bin/") ||
			!slices.Contains([]string{".go", ".py", ".mjs", ".ts", ".mk", ".sh", ""}, filepath.Ext(path)) ||
			strings.HasPrefix(path, "../../cmd/berth/config"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, name := range otherVariables.FindAllString(string(text), -1) {
			seen[name] = true
			if ours[name] && name != "BERTH_BIN" && !strings.Contains(path, "/cmd/berth/") {
				t.Errorf("%s has %s, which is a setting of serve", path, name)
			}
		}
		return err
	})
	if err != nil || !seen["BERTH_API_KEY"] || !seen["BERTH_HOST"] || len(ours) < 50 {
		t.Errorf("%v; %d variables seen", err, len(seen))
	}
	for _, client := range []string{"BERTH_API_KEY", "BERTH_HOST", "BERTH_CA", "BERTH_URL", "BERTH_KEY"} {
		if ours[client] {
			t.Errorf("%s is a setting of serve", client)
		}
	}
}
