package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PackTypeScriptSDK is PackTypeScript for the TypeScript SDK, with the compiler and what else it needs.
func PackTypeScriptSDK(t testing.TB, sdk, source string) (archive string) {
	t.Helper()
	return PackTypeScript(t, sdk, filepath.Join(typeScriptTools(t, sdk), "node_modules"), source)
}

// PackTypeScript copies the package in a directory to a new directory, builds it there with these modules, and returns
// the path of the archive that npm would publish.
func PackTypeScript(t testing.TB, dir, modules, source string) (archive string) {
	t.Helper()
	shell(t, `mkdir -p "$2"
		cp -R "$1/src" "$1/package.json" "$1/tsconfig.json" "$1/README.md" "$2"
		ln -s "$3" "$2/node_modules"`, dir, source, modules)
	out := shell(t, `cd "$1" && npm pack --json --loglevel=error`, source)
	var packed []struct{ Filename string }
	start := max(bytes.IndexByte(out, '['), 0) // behind what the build prints
	if err := json.Unmarshal(out[start:], &packed); err != nil || len(packed) != 1 {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	return filepath.Join(source, packed[0].Filename)
}

// UnpackTypeScriptSDK installs the SDK's archive, and what the SDK needs, below a directory node_modules.
func UnpackTypeScriptSDK(t testing.TB, sdk, archive, modules string) {
	t.Helper()
	UnpackTypeScript(t, archive, filepath.Join(modules, "@berth", "sdk"))
	shell(t, `ln -s "$1/node_modules/ws" "$2/ws"`, typeScriptTools(t, sdk), modules)
}

// UnpackTypeScript unpacks an archive of PackTypeScript into a directory, in place of what is there.
func UnpackTypeScript(t testing.TB, archive, to string) {
	t.Helper()
	shell(t, `rm -rf "$2" && mkdir -p "$2" && tar xzf "$1" --strip-components=1 -C "$2"`, archive, to)
}

// typeScriptTools returns where the compiler and what the SDK depends on are installed.
func typeScriptTools(t testing.TB, sdk string) string {
	t.Helper()
	return Install(t, "sdk-typescript", Node, sdk+"/package.json", sdk+"/package-lock.json")
}

// shell runs a script and returns what it prints.
func shell(t testing.TB, script string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", script, args, err, out)
	}
	return out
}
