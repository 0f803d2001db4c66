package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/runtime/containerd"
	"berth/runtime/launch"
	"berth/test/needs"
)

func doctorConfig(dir string) containerd.Config {
	bin := os.Getenv("BERTH_BIN")
	return containerd.Config{Dir: dir, BinDir: bin, Guest: filepath.Join(bin, "berth-guest"), PoolBytes: 1 << 30}
}

func countMounts(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func TestDoctor(t *testing.T) {
	needs.Containers(t)
	dir := t.TempDir()
	before := countMounts(t)
	for _, f := range Doctor(t.Context(), doctorConfig(filepath.Join(dir, "not", "there"))) {
		t.Logf("%-5s %-30s %s", f.Grade, f.Name, f.Found)
		if f.Name == "" || f.Found == "" || f.Grade != OK && (f.Why == "" || f.Fix == "") {
			t.Errorf("an unfinished finding: %+v", f)
		}
		if f.Grade == Fail {
			t.Errorf("this machine fails: %+v", f)
		}
	}
	if got, err := os.ReadDir(dir); len(got) > 0 || err != nil {
		t.Errorf("it made %v, %v", got, err)
	}
	if after := countMounts(t); after != before {
		t.Errorf("%d mounts became %d", before, after)
	}
}

// TestDoctorOldRunc checks that neither Doctor nor Open accepts a runc that containers can overwrite.
func TestDoctorOldRunc(t *testing.T) {
	cfg := doctorConfig(t.TempDir())
	cfg.BinDir = t.TempDir()
	for name, says := range map[string]string{"runc": "runc version 1.1.15", "containerd-shim-runc-v2": "x"} {
		script := "#!/bin/sh\necho " + says + "\n"
		if err := os.WriteFile(filepath.Join(cfg.BinDir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if f := checkRunc(cfg.BinDir); f.Grade != Fail {
		t.Errorf("doctor: %+v", f)
	}
	if f := checkRunsc(cfg.BinDir); f.Grade != Warn {
		t.Errorf("doctor on a missing runsc: %+v", f)
	}
	if r, err := containerd.Open(t.Context(), cfg); err == nil {
		r.Close()
		t.Error("a runtime opened with runc 1.1")
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"1.2.0": true, "1.2": true, "1.10.1": true, "2.0.0": true, "1.1.15": false, "0.9": false, "": false,
		"x.y":        false,
		"1.2.0-rc.1": true, "1.2-rc.1": false,
	} {
		if launch.AtLeast(version, 1, 2) != want {
			t.Errorf("%q", version)
		}
	}
}
