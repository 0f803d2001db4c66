package buildtest

import (
	"slices"
	"strings"
	"testing"

	"berth/proto"
)

// TestNamesAndPlatform checks that an image gets each name that a build asks for, and that a build for another platform
// than the host's is refused by name.
func TestNamesAndPlatform(t *testing.T) {
	c := connect(t, daemon)
	files := map[string]string{"Dockerfile": "FROM base\nENV NAMED=1\n"}
	img, _, err := build(t.Context(), c, proto.BuildOptions{Name: "named", MoreNames: []string{"named:2", "other:3"}},
		contextOf(t, files), nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		if i.Digest == img.Digest {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "named named:2 other:3" {
		t.Errorf("the image has the names %q", got)
	}
	_, _, err = build(t.Context(), c, proto.BuildOptions{Name: "named", Platform: "plan9/mips"},
		contextOf(t, files), nil)
	if e := proto.AsError(err); e.Code != proto.Unsupported || e.Item != "platform" ||
		!strings.Contains(e.Message, "linux/") {
		t.Errorf("another platform: %v", err)
	}
}

// TestFailureHasStepAndLastLines checks that the error of a build that failed has the step and the end of its output,
// without the output of other steps.
func TestFailureHasStepAndLastLines(t *testing.T) {
	c := connect(t, daemon)
	var failed *proto.BuildError
	_, _, err := build(t.Context(), c, proto.BuildOptions{Name: "broken"}, contextOf(t, map[string]string{
		"Dockerfile": "FROM base\nRUN echo earlier\nRUN seq 2000; echo the-reason >&2; exit 3\n"}),
		func(ev proto.BuildEvent) {
			if ev.Error != nil {
				failed = ev.Error
			}
		})
	if err == nil || failed == nil {
		t.Fatalf("%v, %+v", err, failed)
	}
	// stdout and stderr come in any order, but each line is whole
	if !strings.Contains(failed.Step, "RUN seq 2000") || failed.ExitCode != 3 || failed.Line != 3 ||
		!strings.Contains(failed.Log, "\n1999\n") || !strings.Contains(failed.Log, "\n2000\n") ||
		!strings.Contains(failed.Log, "\nthe-reason\n") || strings.Contains(failed.Log, "earlier") ||
		len(failed.Log) > 4<<10 {
		t.Errorf("step %q, status %d, line %d, %q", failed.Step, failed.ExitCode, failed.Line, failed.Log)
	}
}
