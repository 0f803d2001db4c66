package code

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"berth/cli/app"
	"berth/cli/term"
	"berth/proto"
)

// TestFiguresThatCannotBeWritten checks that unwritable figures hide neither other output nor the status of failed
// code.
func TestFiguresThatCannotBeWritten(t *testing.T) {
	for _, failed := range []bool{false, true} {
		var out, said bytes.Buffer
		a := &app.App{Output: term.Output{Stdout: &out, Stderr: &said}}
		res := proto.Outcome{Results: []string{"42"}, Rich: []proto.Bundle{
			{"image/svg+xml": json.RawMessage(`"<svg/>"`)}}}
		if failed {
			res.Error, res.ErrorDetail = "ZeroDivisionError", &proto.ErrorDetail{}
		}
		err := reportOutcome(a, res, &codeFlags{figures: filepath.Join(t.TempDir(), "gone"), draw: "none"}, nil)
		if status := a.ReportError(err); status != map[bool]int{false: 125, true: 1}[failed] ||
			out.String() != "42\n" ||
			!strings.Contains(said.String(), "figure-1.svg: no such file") {
			t.Errorf("%v: status %d, %q, %q", failed, status, out.String(), said.String())
		}
	}
}
