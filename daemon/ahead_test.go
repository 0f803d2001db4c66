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

// mapped are the files of a process's memory, but for those that have no name any more.
func mapped(maps string) []string {
	files := regexp.MustCompile(`(?m)/\S+$`).FindAllString(maps, -1)
	slices.Sort(files)
	return slices.Compact(files)
}

// waiting are the bashes that wait in a sandbox to be a command's.
func (s *server) waiting(sandbox string) []int {
	return s.processes(sandbox, func(cmd string) bool { return strings.HasPrefix(cmd, "bash\x00-c\x00# waits") })
}

// Whatever file a bash of the base image that was executed has mapped by the time that it runs a command, what waits
// to be a command's has mapped before: its libraries, its locale, and what it converts characters with.
func TestWhatWaitsHasMappedItsFiles(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("nothing is started ahead on " + runtime.GOARCH)
	}
	c := create(t, base)
	const show = "cat /proc/$$/maps && :" // it would become the last command
	maps := bash(t, base, c.ID, show).Result.Result.Stdout
	executed := mapped(maps)
	if strings.Contains(maps, "memfd:ahead") || len(executed) < 3 {
		t.Fatalf("a bash that was executed has mapped %s", maps)
	}
	for range 3 {
		bash(t, base, c.ID, "true")
	}
	sandbox := base.sandbox(t, c.ID)
	// the second one is made after an answer
	eventually(t, "two bashes wait", func() bool { return len(base.waiting(sandbox)) == 2 })
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
