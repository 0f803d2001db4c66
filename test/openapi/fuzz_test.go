// Package openapi_test holds the real daemon against its own OpenAPI document, with a fuzzer that neither of them
// knows.
package openapi_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

var (
	seconds = flag.Int("openapi.seconds", 50, "how long to fuzz, about")
	seed    = flag.Int("openapi.seed", 1, "what the fuzzer's choices begin with")
)

// A schema-driven fuzzer finds no 500, no status, header, media type or body that is not in the document, nothing
// accepted that the document forbids, no way around the API key, and nothing to be reached after its deletion. First
// it follows the document from one route to the next, so that what it makes is used; then it tries the ends of what
// the document allows; then it is given a container with commands, files and a job, so that no route ends at an ID
// that does not exist. How far it comes in a given time is the machine's matter, so that last part is repeated until
// all of these routes have done what they were asked for.
//
// One of its checks is left out: that whatever the document allows is accepted. Whether a path is a directory, a
// cursor was given out or an archive is whole is not for a schema to say.
func TestDaemonIsAsDocumented(t *testing.T) {
	needs.Containers(t)
	fuzzer := installFuzzer(t)
	d, err := daemontest.New("--stop-on-exit", "--exec-timeout=3s", "--max-containers=40", "--idle-timeout=1m")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	third := max(1, *seconds/3)
	fuzz(t, fuzzer, d, configure(t, ""), *seed, third, "--phases", "fuzzing,stateful")
	fuzz(t, fuzzer, d, configure(t, ""), *seed, third, "--phases", "coverage")
	before := d.Log()
	// Contexts start interpreters, which takes so long that nothing else would get its turn beside them.
	fuzz(t, fuzzer, d, provision(t, d), *seed, third, "--phases", "fuzzing", "--include-path-regex",
		`^/v1/containers/\{id\}/contexts`)
	paths := `^/v1/containers/\{id\}/(?!contexts)`
	for try := range 8 { // on a busy machine the fuzzer makes few requests in its time
		fuzz(t, fuzzer, d, provision(t, d), *seed+try, third, "--phases", "fuzzing", "--include-path-regex", paths,
			"--exclude-operation-id", "stopContainer", "--exclude-operation-id", "resetContainer",
			"--exclude-operation-id", "restoreContainer", "--exclude-operation-id", "forkContainer",
			"--exclude-operation-id", "closeShell")
		left := unanswered(d.Log()[len(before):])
		if len(left) == 0 {
			break
		}
		paths = pathsOf(left)
	}
	for _, route := range unanswered(d.Log()[len(before):]) {
		t.Errorf("nothing that %s was asked for succeeded", route)
	}
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}

// pathsOf is a pattern of the paths of routes.
func pathsOf(routes []string) string {
	var paths []string
	for _, route := range routes {
		_, path, _ := strings.Cut(route, " ")
		paths = append(paths, regexp.QuoteMeta(path))
	}
	return "^(" + strings.Join(paths, "|") + ")$"
}

// unanswered are the routes below a container that never succeeded by the daemon's log.
func unanswered(log string) (routes []string) {
	for _, route := range []string{"GET /v1/containers/{id}/fs/content", "PUT /v1/containers/{id}/fs/content",
		"GET /v1/containers/{id}/execs/{exec}/logs", "POST /v1/containers/{id}/execs/{exec}/signal",
		"GET /v1/containers/{id}/execs/{exec}/events", "GET /v1/containers/{id}/execs/{exec}/result",
		"GET /v1/containers/{id}/jobs/{job}/manifest", "POST /v1/containers/{id}/exec",
		"POST /v1/containers/{id}/fs/move"} {
		if !strings.Contains(log, `route="`+route+`" status=20`) {
			routes = append(routes, route)
		}
	}
	return routes
}

// provision makes a container with all that its routes may be asked for, and returns a configuration of the fuzzer that
// names it. What reads an output gets a command that has ended, since one that runs has output without end.
//
// The fuzzer's first guesses at a path are names such as 0, so files of these names can be moved.
//
// Each run of the fuzzer gets a container of its own: one forgets its oldest commands, and on a fast machine a run
// starts more than are remembered.
func provision(t *testing.T, d *daemontest.Daemon) string {
	t.Helper()
	var c struct{ ID string }
	ask(t, d, "/v1/containers", `{"idle_timeout_seconds": 3600}`, &c)
	var ended struct {
		Exec struct {
			ID    string
			JobID string `json:"job_id"`
		}
	}
	ask(t, d, "/v1/containers/"+c.ID+"/exec",
		`{"command": "echo out; echo err >&2; mkdir 0; echo text >a; echo text >/workspace/a; echo text >/tmp/0; touch /workspace/0 /workspace/00 /workspace/1", "shell": "main"}`, &ended)
	var running struct{ ID string }
	ask(t, d, "/v1/containers/"+c.ID+"/exec",
		`{"command": "trap '' HUP INT TERM; while :; do read x; done", "tty": {"rows": 24, "cols": 80}, "open_stdin": true, "background": true}`, &running)
	text := fmt.Sprintf("[parameters]\n\"path.id\" = %q\n\"path.exec\" = %q\n\"path.job\" = %q\n", c.ID, ended.Exec.ID,
		ended.Exec.JobID)
	for id, path := range map[string]string{"readFile": "a", "readTar": "/workspace", "listDirectory": "/workspace",
		"statFile": "a", "watchDirectory": "/tmp/0"} { // a watch of a directory would not end
		text += fmt.Sprintf("[[operations]]\ninclude-operation-id = %q\nparameters = { \"path.id\" = %q, "+
			"\"query.path\" = %q }\n", id, c.ID, path)
	}
	for _, id := range []string{"signalExec", "writeStdin", "resizeExec"} {
		text += fmt.Sprintf("[[operations]]\ninclude-operation-id = %q\nparameters = { \"path.id\" = %q, "+
			"\"path.exec\" = %q }\n", id, c.ID, running.ID)
	}
	return configure(t, text)
}

// configure writes a configuration of the fuzzer, with what every run needs: 501 says that an image has no
// interpreter for a language, and 503 that the registry of an example cannot be reached. Neither is a fault of the
// daemon's.
func configure(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "schemathesis.toml")
	text += `[[operations]]
include-operation-id = "setRegistry"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]
`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// ask posts and decodes the answer.
func ask(t *testing.T, d *daemontest.Daemon, path, body string, answer any) {
	t.Helper()
	status, out, err := d.Do("POST", path, strings.NewReader(body))
	if err == nil && status < 300 {
		err = json.Unmarshal(out, answer)
	}
	if err != nil || status >= 300 {
		t.Fatalf("%s: %d %v %s", path, status, err, out)
	}
}

// fuzz runs the fuzzer for some seconds. What it finds fails the test.
func fuzz(t *testing.T, fuzzer string, d *daemontest.Daemon, config string, seed, seconds int, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, fuzzer, append([]string{"--config-file", config, "run", d.URL + "/openapi.json",
		"--header", "X-Api-Key: " + d.Key, "--exclude-checks", "positive_data_acceptance",
		"--max-time", strconv.Itoa(seconds), "--max-examples", strconv.Itoa(max(15, seconds/5)), "--request-timeout",
		"30", "--seed", strconv.Itoa(seed),
		"--exclude-operation-id", "backUp", // it answers with all images, over and over
		"--continue-on-failure", "--no-shrink", "--no-color", "--warnings", "off", "--generation-database", "none"},
		args...)...)
	cmd.Dir = t.TempDir() // it leaves its findings where it runs
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
		return
	}
	_, summary, ok := strings.Cut(text, "Test cases:")
	if !ok {
		t.Errorf("the fuzzer tells of no test cases\n%s", text)
	}
	t.Log(strings.TrimSpace(summary))
}

// installFuzzer gives the fuzzer's program.
func installFuzzer(t *testing.T) string {
	t.Helper()
	// The versions are pinned whole: with dependencies, pip would add what the list leaves out.
	dir := clients.Install(t, "openapi", strings.Replace(clients.Python, "-r", "--no-deps -r", 1),
		filepath.Join("py", "requirements.txt"))
	return filepath.Join(dir, "venv", "bin", "schemathesis")
}
