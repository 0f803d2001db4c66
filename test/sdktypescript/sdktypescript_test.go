// Package sdktypescript_test packs the TypeScript SDK as npm does, and has programs use it against a real daemon: its cases in
// Node, and in Chromium with `make test-sdk-browser`, and the examples of its README.
package sdktypescript_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
)

const sdk = "../../sdk/typescript"

var update = flag.Bool("update", false, "write the SDK's types anew instead of comparing them")

// maxPacked bounds the package, in bytes as it is downloaded.
const maxPacked = 100 << 10

func TestSDK(t *testing.T) {
	needs.Containers(t)
	app := pack(t)
	d, err := daemontest.New("--stop-on-exit", "--ports-max", "public")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	t.Run("types", func(t *testing.T) { generated(t, d) })
	t.Run("node", func(t *testing.T) {
		clients.Report(t, program(t, d, app, nil, "node", "main.mjs"), 20)
	})
	t.Run("readme", func(t *testing.T) { readme(t, d, app) })
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}

// pack builds the SDK, packs it twice with the same result, and returns a directory where programs can import it.
func pack(t *testing.T) (app string) {
	t.Helper()
	dir := t.TempDir()
	app = filepath.Join(dir, "app")
	archive := clients.PackTypeScriptSDK(t, sdk, filepath.Join(dir, "source"))
	first, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(clients.PackTypeScriptSDK(t, sdk, filepath.Join(dir, "again")))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) || len(first) > maxPacked {
		t.Errorf("the package is not the same twice, or has more than %d bytes: %d, %d", maxPacked, len(first),
			len(second))
	}
	clients.UnpackTypeScriptSDK(t, sdk, archive, filepath.Join(app, "node_modules"))
	run(t, ".", nil, "sh", "-euc", `cp main*.mjs cases.mjs "$1"`, "sh", app)
	return app
}

// TestBrowser runs the cases in Chromium: on a page of another origin, with a key, and on one of the daemon's, with a
// cookie.
func TestBrowser(t *testing.T) {
	chromium := os.Getenv("BERTH_CHROMIUM")
	if chromium == "" {
		t.Skip("BERTH_CHROMIUM is not set: `make test-sdk-browser` installs the browser and runs this")
	}
	app := pack(t)
	tools := clients.Install(t, "sdk-typescript-browser", clients.Node, "browser/package.json", "browser/package-lock.json")
	run(t, app, nil, "ln", "-s", filepath.Join(tools, "node_modules/playwright-core"), "node_modules/playwright-core")
	l, err := net.Listen("tcp", "localhost:0") // the daemon must know the page's port before the page is there
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	d, err := daemontest.New("--stop-on-exit", "--ports-max", "public", "--origin", "http://localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := program(t, d, app, []string{"BERTH_CHROMIUM=" + chromium, "BERTH_PAGE_PORT=" + port,
		"BERTH_SDK=" + filepath.Join(app, "node_modules/@berth/sdk")}, "node", "main.browser.mjs")
	clients.Report(t, out, 32)
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}

// generated checks that the types are those of the daemon's document.
func generated(t *testing.T, d *daemontest.Daemon) {
	status, document, err := d.Do("GET", "/openapi.json", nil)
	if err != nil || status != 200 {
		t.Fatal(status, err)
	}
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, document, 0o644); err != nil {
		t.Fatal(err)
	}
	want := run(t, sdk, nil, "node", "generate.mjs", file)
	have, err := os.ReadFile(sdk + "/src/types.ts")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		err = os.WriteFile(sdk+"/src/types.ts", want, 0o644)
	} else if !bytes.Equal(have, want) {
		t.Error("src/types.ts is not what the daemon's OpenAPI document gives: run `make sdk-types`")
	}
	if err != nil {
		t.Error(err)
	}
}

// example matches an example of the README.
var example = regexp.MustCompile("(?ms)^```ts\n(.*?)^```$")

// readme compiles the examples of the README as strictly as a user may, and runs each.
func readme(t *testing.T, d *daemontest.Daemon, app string) {
	text, err := os.ReadFile(sdk + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	list := example.FindAllSubmatch(text, -1)
	if len(list) < 6 {
		t.Fatalf("the README has %d examples", len(list))
	}
	args := []string{"--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--target", "ES2022",
		"--lib", "ES2022,ESNext.Disposable,DOM,DOM.AsyncIterable", "--module", "NodeNext", "--types", ""}
	for i, e := range list {
		name := fmt.Sprintf("example%d.mts", i+1)
		if err := os.WriteFile(filepath.Join(app, name), e[1], 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	run(t, app, nil, filepath.Join(app, "../source/node_modules/.bin/tsc"), args...)
	for i, e := range list {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			out := string(program(t, d, app, nil, "node", fmt.Sprintf("example%d.mjs", i+1)))
			for line := range strings.Lines(string(e[1])) {
				if _, want, ok := strings.Cut(strings.TrimSpace(line), "// → "); ok && !strings.Contains(out, want) {
					t.Errorf("it does not print %q, but %q", want, out)
				}
			}
		})
	}
}

// run runs a program to its end and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s\n%s", name, args, err, out, stderr.String())
	}
	return out
}

// program runs a program that uses the daemon, and returns what it prints. Where it prints "restart", the daemon is
// killed and started again where it was.
func program(t *testing.T, d *daemontest.Daemon, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_API_KEY="+d.Key,
		"BERTH_TEST_KEY_FILE="+filepath.Join(d.Dir, "api-key"))
	cmd.Env = append(cmd.Env, env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	for r := bufio.NewReader(pipe); ; {
		line, err := r.ReadString('\n')
		if line == "restart\n" {
			if err := d.Restart(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(in, "done\n") // a program that has ended says so below
		} else {
			out.WriteString(line)
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("%s %q: %v\n%s\n%s", name, args, err, out, stderr.String())
	}
	return out.Bytes()
}
