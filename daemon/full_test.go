package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/tools/toolstore"
)

// TestFullImage uses each group of programs of the full image, as the ordinary user and without network. Building the
// image takes long, so it runs in `make test-full`.
func TestFullImage(t *testing.T) {
	archive := os.Getenv("BERTH_FULL_IMAGE")
	if archive == "" {
		t.Skip("BERTH_FULL_IMAGE is not set: `make test-full` builds the full image and runs this")
	}
	start := time.Now()
	if err := base.ImportImage("full", archive); err != nil {
		t.Fatal(err)
	}
	t.Logf("imported in %.1fs; the daemon's memory was at most %s", time.Since(start).Seconds(), peak(t, base.PID()))
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/images/full", nil) })
	scripts, err := filepath.Glob(filepath.Join("testdata", "full", "*"))
	if err != nil || len(scripts) < 13 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	full := createFrom(t, "full")
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), func(t *testing.T) { trial(t, full, path) })
	}
	t.Run("code", func(t *testing.T) { testListings(t, "full", "ts", "r", "java") })
	t.Run("a context of TypeScript", func(t *testing.T) { testTypeScriptContext(t, "full") })
	t.Run("media_probe", func(t *testing.T) {
		run := mediaProbe(t, "full")
		if text := string(run.Output); text != `{"seconds":2}` && text != `{"seconds":2.0}` || len(run.Files) != 1 {
			t.Errorf("%s %+v %+v", text, run, run.Error)
		}
	})
	t.Run("providers", testProviders)
	t.Run("starts as fast as base", func(t *testing.T) {
		path := filepath.Join("testdata", "full", "startup.py")
		loaded := strings.Fields(trial(t, createFrom(t, "base"), path))
		for _, module := range strings.Fields(trial(t, full, path)) {
			if !slices.Contains(loaded, module) {
				t.Errorf("python3 loads %s before it does anything, and in base it does not", module)
			}
		}
	})
}

// peak returns the kernel's peak memory of a process.
func peak(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// createFrom creates a container from the image with the default limits.
func createFrom(t *testing.T, image string) string {
	t.Helper()
	c := call[proto.Container](t, base, 201, "POST", "/v1/containers",
		fmt.Sprintf(`{"image":%q}`, image))
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	return c.ID
}

// trial runs a script in the directory of a new job and returns its output. The script must succeed.
func trial(t *testing.T, container, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	program := map[string]string{".py": "python3", ".sh": "bash"}[filepath.Ext(path)]
	cmd, err := json.Marshal(proto.Cmd{
		Command: "cat >script && " + program + " script", Stdin: string(text), TimeoutSeconds: 600,
	})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	res := call[proto.ExecResult](t, base, 200, "POST", "/v1/containers/"+container+"/exec", string(cmd))
	out := res.Result.Result
	if out == nil {
		t.Fatalf("%s: %+v", filepath.Base(path), res.Result.Error)
	}
	if out.ReturnCode != 0 {
		t.Fatalf("%s ended with %d and said\n%s%s", filepath.Base(path), out.ReturnCode, out.Stdout, out.Stderr)
	}
	t.Logf("%.1fs", time.Since(start).Seconds())
	return out.Stdout
}

// testProviders creates the real clients of model providers from a tool's globals. It makes no request.
func testProviders(t *testing.T) {
	store(t, base, toolstore.NewTool{Name: "providers", Configuration: toolstore.Configuration{
		Code: `def run(input):
    return {'openai': openai_client.api_key, 'anthropic': anthropic_client.api_key, 'gemini': type(gemini_client.models).__name__}
`,
		EnvVariables: map[string]string{"OPENAI_API_KEY": "k-1", "ANTHROPIC_API_KEY": "k-2", "GEMINI_API_KEY": "k-3"},
	}})
	run := call[toolstore.Run](t, base, 200, "POST", "/v1/tools/providers/run", `{"image":"full"}`)
	if want := `{"openai":"k-1","anthropic":"k-2","gemini":"Models"}`; string(run.Output) != want {
		t.Errorf("%s %+v", run.Output, run.Error)
	}
}
