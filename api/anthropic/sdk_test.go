package anthropic

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/api"
	"berth/files"
	"berth/proto"
	"berth/test/clients"
	"berth/test/needs"
	"berth/test/sessiontest"
)

// An sdk is an unmodified official SDK and a program of ours below sdktest/ that uses it.
type sdk struct {
	name    string
	rows    []string // of the contract that the program must report on
	command func(t *testing.T) *exec.Cmd
}

var sdks = []sdk{
	{"gov1", []string{"1", "3", "8", "9", "10", "19", "22", "24", "skills", "44", "45"}, goProgram("gov1")},
	{"gov1old", []string{"19", "skills"}, goProgram("gov1old")},
	{"gov2", []string{"1", "4", "6", "7", "8", "9", "10", "11", "12", "16", "18", "21", "22", "24", "skills", "44",
		"45", "46", "47", "48"}, goProgram("gov2")},
	{"typescript", rowsOfNode, nodeProgram},
	{"typescript newest", rowsOfNode, newestNodeProgram},
	{"python", rowsOfPython, pythonProgram},
	{"python newest", rowsOfPython, newestPythonProgram},
}

var (
	rowsOfNode = []string{"1", "4", "6", "7", "9", "11", "16", "21", "22", "24", "skills", "44", "45", "46", "47", "48",
		"thread", "chat", "models"}
	rowsOfPython = []string{"1", "3", "4", "6", "7", "9", "10", "11", "12", "16", "18", "19", "21", "22", "24", "skills",
		"44", "45", "46", "47", "48", "thread", "chat", "models"}
)

func TestSDKs(t *testing.T) {
	needs.Time(t)
	for _, s := range sdks {
		t.Run(s.name, s.run)
	}
}

// run starts the program against servers of its own and makes a subtest of each row.
func (s sdk) run(t *testing.T) {
	trouble := &trouble{attempts: map[string]int{}}
	open := newDesk(t, files.Config{}, false, trouble.make)
	strict := newDesk(t, files.Config{}, true)
	small := newDesk(t, files.Config{QuotaBytes: 1 << 20}, false)
	for _, d := range []*desk{open, strict} {
		d.provide(t, "xlsx")
	}
	talk := newStudio(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // more than sockets buffer
	small64 := content[:64<<10]
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

	cmd := s.command(t)
	cmd.Env = append(append(os.Environ(), cmd.Env...),
		"BERTH_BASE_URL="+open.URL, "BERTH_STRICT_URL="+strict.URL, "BERTH_SMALL_URL="+small.URL, "BERTH_API_KEY="+
			annKey,
		"BERTH_MESSAGES_URL="+talk.URL, "BERTH_MESSAGES_KEY="+sessiontest.Secret,
		"BERTH_PRODUCED_ID="+open.produce(t, string(small64)).ID, "BERTH_PRODUCED_SHA256="+sum(small64),
		"BERTH_BIG_ID="+open.produce(t, string(content)).ID, "BERTH_BIG_SHA256="+sum(content))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out, stderr.String())
	}
	reports := parseReports(out)
	if err := talk.model.Err(); err != nil {
		t.Error(err)
	}
	for _, row := range s.rows {
		t.Run("row"+row, func(t *testing.T) {
			if got := reports[row]; got != "PASS" {
				t.Error(cmp.Or(got, "the program did not report on this row"))
			}
			if row == "7" {
				trouble.check(t)
			}
		})
		delete(reports, row)
	}
	if len(reports) > 0 {
		t.Errorf("rows that nobody expected: %v", reports)
	}
}

// parseReports reads lines "PASS 9" and "FAIL 9 why" by row.
func parseReports(out []byte) map[string]string {
	reports := map[string]string{}
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		verdict, rest, _ := strings.Cut(sc.Text(), " ")
		row, why, _ := strings.Cut(rest, " ")
		if verdict == "FAIL" {
			verdict += ": " + why
		}
		reports[row] = verdict
	}
	return reports
}

// trouble makes the metadata of some IDs fail in ways that the Files API has no occasion for, below
// the code that renders errors, and counts how often each was asked for.
type trouble struct {
	mu       sync.Mutex // guards attempts
	attempts map[string]int
}

func (tr *trouble) make(e *api.Edge) {
	i := slices.IndexFunc(e.Routes, func(r api.Route) bool {
		return r.Method == "GET" &&
			r.Pattern == "/v1/files/{file_id}"
	})
	handle := e.Routes[i].Handle
	e.Routes[i].Handle = func(w http.ResponseWriter, r *http.Request, c api.Caller) error {
		id := r.PathValue("file_id")
		tr.mu.Lock()
		tr.attempts[id]++
		n := tr.attempts[id]
		tr.mu.Unlock()
		switch {
		case id == "file_conflict":
			return proto.Errorf(proto.AlreadyExists, "", id, "It is taken.")
		case id == "file_broken":
			return errors.New("broken on purpose")
		case id == "file_busy" && n == 1:
			return proto.Errorf(proto.TooMany, "", id, "Come back later.")
		case id == "file_busy":
			return api.JSON(w, http.StatusOK, describe(proto.StoredFile{ID: id, Filename: "x", MIMEType: "text/plain"},
				shapeGA))
		}
		return handle(w, r, c)
	}
}

// check says whether the SDK repeated what it should and nothing else.
func (tr *trouble) check(t *testing.T) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for id, want := range map[string]int{"file_conflict": 1, "file_broken": 1, "file_busy": 2} {
		if tr.attempts[id] != want {
			t.Errorf("%s: %d attempts, want %d", id, tr.attempts[id], want)
		}
	}
}

// goProgram is a module of its own, so that the SDK is no dependency of ours.
func goProgram(name string) func(*testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), tool(t, "go"), "run", ".")
		cmd.Dir = filepath.Join("..", "..", "test", "sdktest", name)
		cmd.Env = []string{"GOWORK=off", "GOFLAGS="}
		return cmd
	}
}

func nodeProgram(t *testing.T) *exec.Cmd {
	return exec.CommandContext(t.Context(), tool(t, "node"), filepath.Join(install(t, "ts", clients.Node), "main.mjs"))
}

func pythonProgram(t *testing.T) *exec.Cmd {
	dir := install(t, "py", clients.Python)
	return exec.CommandContext(t.Context(), filepath.Join(dir, "venv", "bin", "python"), filepath.Join(dir, "main.py"))
}

// The newest versions, whatever they are: users install them.

func newestNodeProgram(t *testing.T) *exec.Cmd {
	dir, _ := clients.InstallNewest(t, clients.NPM("@anthropic-ai/sdk"), program("ts", "main.mjs"))
	return exec.CommandContext(t.Context(), tool(t, "node"), filepath.Join(dir, "main.mjs"))
}

func newestPythonProgram(t *testing.T) *exec.Cmd {
	dir, _ := clients.InstallNewest(t, clients.PyPI("anthropic"), program("py", "main.py"))
	return exec.CommandContext(t.Context(), filepath.Join(dir, "venv", "bin", "python"), filepath.Join(dir, "main.py"))
}

// program is the path of a test's own program.
func program(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "test", "sdktest"}, parts...)...)
}

// install gives the directory in which the program and its SDK are.
func install(t *testing.T, name, command string) string {
	t.Helper()
	files, err := filepath.Glob(program(name, "*.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", name, err)
	}
	return clients.Install(t, "sdk-"+name, command, files...)
}

// tool finds a program that these tests need. A machine without it fails them: they are the proof
// that unmodified clients work.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		packages := map[string]string{"npm": "npm", "node": "nodejs", "python3": "python3 python3-venv", "go": "golang"}
		t.Fatalf("the SDK tests need %s: apt-get install %s", name, packages[name])
	}
	return path
}
