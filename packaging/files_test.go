package packaging_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReleaseFiles checks what the release consists of: checksums, rules of Debian, materials, manuals, completions.
func TestReleaseFiles(t *testing.T) {
	dist := needsDist(t)
	t.Run("checksums", func(t *testing.T) { checkSums(t, dist) })
	t.Run("lintian", func(t *testing.T) {
		for _, deb := range []string{"berth_*_amd64.deb", "berth-image-base_*_amd64.deb"} {
			run(t, "lintian", "--allow-root", "--fail-on", "error,warning", distFile(t, deb))
		}
	})
	tree := t.TempDir()
	run(t, "tar", "-xf", distFile(t, "berth-*-linux-amd64.tar.gz"), "-C", tree, "--strip-components=1")
	t.Run("materials", func(t *testing.T) { checkMaterials(t, tree) })
	t.Run("manuals", func(t *testing.T) { checkManuals(t, tree) })
	t.Run("completions", func(t *testing.T) {
		run(t, "bash", "-n", filepath.Join(tree, "share/completions/berth.bash"))
		run(t, "zsh", "-n", filepath.Join(tree, "share/completions/_berth"))
		run(t, "fish", "--no-execute", filepath.Join(tree, "share/completions/berth.fish"))
	})
	t.Run("programs", func(t *testing.T) {
		for _, name := range []string{"berth", "berth-guest", "berth-builder", "containerd-shim-runc-v2", "runc",
			"runsc"} {
			if out := run(t, "file", filepath.Join(tree, "bin", name)); !strings.Contains(out, "statically linked") {
				t.Errorf("%s is not a static program: %s", name, out)
			}
		}
	})
	t.Run("alerts", func(t *testing.T) { run(t, "promtool", "check", "rules", "alerts.yaml") })
	t.Run("unit", func(t *testing.T) {
		// systemd-analyze complains of programs that are not installed here, and of nothing else
		out, _ := exec.Command("systemd-analyze", "verify", "--man=no", "./berth.service").CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "is not executable") && strings.Contains(line, "berth.service") {
				t.Error(strings.TrimSpace(line))
			}
		}
	})
}

// checkSums checks that each file has its checksum, and no other.
func checkSums(t *testing.T, dist string) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	cmd.Dir = dist
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	listed := []string{"SHA256SUMS"}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		listed = append(listed, s.Text()[strings.LastIndex(s.Text(), " ")+1:])
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(listed, e.Name()) {
			t.Errorf("%s has no checksum", e.Name())
		}
	}
}

// checkMaterials checks that the bill of materials names what is known to be in the programs.
func checkMaterials(t *testing.T, tree string) {
	text, err := os.ReadFile(filepath.Join(tree, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Format     string `json:"bomFormat"`
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	notices, err := os.ReadFile(filepath.Join(tree, "THIRD-PARTY-NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"github.com/opencontainers/runc", "github.com/containerd/containerd/v2",
		"gvisor.dev/gvisor",
		"github.com/moby/buildkit", "go.etcd.io/bbolt", "libseccomp"} {
		found := false
		for _, c := range bill.Components {
			found = found || strings.Contains(c.Name, want) && c.Version != ""
		}
		if !found {
			t.Errorf("the bill of materials does not name %s with a version", want)
		}
		if !bytes.Contains(notices, []byte(want)) {
			t.Errorf("THIRD-PARTY-NOTICES does not name %s", want)
		}
	}
	if bill.Format != "CycloneDX" {
		t.Errorf("the bill of materials is of format %q", bill.Format)
	}
}

// checkManuals checks that the manuals are what man takes without a complaint.
func checkManuals(t *testing.T, tree string) {
	pages, err := filepath.Glob(filepath.Join(tree, "share/man/man?/*.gz"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("there are %d manual pages: %v", len(pages), err)
	}
	for _, page := range pages {
		cmd := exec.Command("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page)
		cmd.Env = append(os.Environ(), "MANROFFSEQ=", "MANWIDTH=80", "LC_ALL=C.UTF-8")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if out, err := cmd.Output(); err != nil || stderr.Len() > 0 || len(out) < 100 {
			t.Errorf("man %s: %v, %d bytes\n%s", filepath.Base(page), err, len(out), stderr.Bytes())
		}
	}
}
