package daemon_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// mapped are the files of a process's memory, but for those that have no name any more.
func mapped(maps string) []string {
	files := regexp.MustCompile(`(?m)/\S+$`).FindAllString(maps, -1)
	slices.Sort(files)
	return slices.Compact(files)
}

// waiting returns the memory maps of the bashes that wait in a sandbox to be a command's.
func waiting(sandbox string) (maps []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		cgroup, _ := os.ReadFile(p + "/cgroup")
		cmdline, _ := os.ReadFile(p + "/cmdline")
		if !strings.Contains(string(cgroup), sandbox) || !strings.HasPrefix(string(cmdline), "bash\x00-c\x00# waits") {
			continue
		}
		if m, err := os.ReadFile(p + "/maps"); err == nil && len(m) > 0 {
			maps = append(maps, string(m))
		}
	}
	return maps
}

// Whatever file a bash of the base image that was executed has mapped by the time that it runs a command, what waits to be a command's has mapped before: its libraries, its
// locale, and what it converts characters with.
func TestWhatWaitsHasMappedItsFiles(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("nothing is started ahead on " + runtime.GOARCH)
	}
	c := create(t, base)
	const show = "cat /proc/$$/maps && :" // it would become the last command
	executed := bash(t, base, c.ID, show).Result.Result.Stdout
	if strings.Contains(executed, "memfd:ahead") || len(mapped(executed)) < 3 {
		t.Fatalf("a bash that was executed has mapped %s", executed)
	}
	for range 3 {
		bash(t, base, c.ID, "true")
	}
	sandbox := base.sandbox(t, c.ID)
	eventually(t, "two bashes wait", func() bool { return len(waiting(sandbox)) == 2 }) // the second one is made after an answer
	for _, maps := range waiting(sandbox) {
		for _, f := range mapped(executed) {
			if !slices.Contains(mapped(maps), f) {
				t.Errorf("%s was not mapped ahead", f)
			}
		}
	}
}
