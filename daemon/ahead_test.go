package daemon_test

import (
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mapped returns the files mapped into a process, except deleted ones.
func mapped(maps string) []string {
	files := regexp.MustCompile(`(?m)/\S+$`).FindAllString(maps, -1)
	slices.Sort(files)
	return slices.Compact(files)
}

// waiting returns the bashes that wait in a sandbox: the zygote and its prestarted processes.
func (s *server) waiting(sandbox string) []int {
	return s.processes(sandbox, func(cmd string) bool { return strings.HasPrefix(cmd, "bash\x00-c\x00# waits") })
}

// TestWhatWaitsHasMappedItsFiles checks that a prestarted bash has mapped all files that an executed bash of the base
// image maps before it runs a command: its libraries, its locale and its character conversion.
func TestWhatWaitsHasMappedItsFiles(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("nothing is started ahead on " + runtime.GOARCH)
	}
	c := create(t, base)
	const show = "cat /proc/$$/maps && :" // without ":", cat would be executed in place of bash
	maps := bash(t, base, c.ID, show).Result.Result.Stdout
	executed := mapped(maps)
	if strings.Contains(maps, "memfd:ahead") || len(executed) < 3 {
		t.Fatalf("a bash that was executed has mapped %s", maps)
	}
	for range 3 {
		bash(t, base, c.ID, "true")
	}
	sandbox := base.sandbox(t, c.ID)
	// A zygote and one prestarted process, which starts after an answer, or two if a command has found none.
	eventually(t, "two bashes wait", func() bool { return len(base.waiting(sandbox)) >= 2 })
	for _, pid := range base.waiting(sandbox) {
		maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
		if err != nil {
			t.Fatal(err)
		}
		ahead := mapped(string(maps))
		for _, f := range executed {
			if !slices.Contains(ahead, f) {
				t.Errorf("%s was not mapped ahead", f)
			}
		}
	}
}
