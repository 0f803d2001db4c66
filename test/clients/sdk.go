package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PackTypeScriptSDK copies the TypeScript SDK to a new directory, builds it there, and returns the path of the archive
// that npm would publish. sdk is the path of its sources.
func PackTypeScriptSDK(t testing.TB, sdk, source string) (archive string) {
	t.Helper()
	shell(t, `mkdir -p "$2"
		cp -R "$1/src" "$1/package.json" "$1/tsconfig.json" "$1/README.md" "$2"
		ln -s "$3/node_modules" "$2/node_modules"`, sdk, source, typeScriptTools(t, sdk))
	out := shell(t, `cd "$1" && npm pack --json --loglevel=error`, source)
	var packed []struct{ Filename string }
	start := max(bytes.IndexByte(out, '['), 0) // behind what the build prints
	if err := json.Unmarshal(out[start:], &packed); err != nil || len(packed) != 1 {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	return filepath.Join(source, packed[0].Filename)
}

// UnpackTypeScriptSDK installs such an archive below a directory node_modules.
func UnpackTypeScriptSDK(t testing.TB, sdk, archive, modules string) {
	t.Helper()
	shell(t, `mkdir -p "$2/@berth/sdk"
		ln -s "$3/node_modules/ws" "$2/ws"
		tar xzf "$1" --strip-components=1 -C "$2/@berth/sdk"`, archive, modules, typeScriptTools(t, sdk))
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
