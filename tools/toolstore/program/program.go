// Package program holds the Python program that runs a stored tool: it surrounds the tool's code, calls run(input), and
// reports what run returned or how it failed.
//
//	Source      the program for one run, or for a check of the code
//	Checked     what a check found
//	SetOutcome  copies the report of a run into its record
//
// tool.py is the part in Python. tools/toolstore is the caller; it has the interpreters run the program.
package program

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"berth/proto"
	"berth/sandbox-image/contents"
	"berth/tools/toolstore/field"
)

// driver runs a tool's code and reports the outcome; see the file.
//
//go:embed tool.py
var driver string

// reportType is the media type of the driver's report.
const reportType = "application/vnd.berth.tool"

// Bounds of the parts of a run that are stored, in bytes.
const (
	maxOutput    = 256 << 10 // of the value that run returned, as JSON
	maxMessage   = 8 << 10   // of an error's
	maxTraceback = 16 << 10
)

// Types of errors, beyond the reasons for which a command ends and the daemon's error codes. The driver also reports
// syntax_error, not_serializable and output_too_large.
const (
	errorException     = "exception"
	errorNoRun         = "no_run"
	errorExit          = "exit"
	errorInvalidOutput = "invalid_output"
)

// A report is the driver's report: output as JSON text, or an error.
type report struct {
	Output *string      `json:"output"`
	Error  *reportError `json:"error"`
}

// A reportError is a ToolRunError, and what the image lacks.
type reportError struct {
	proto.ToolRunError
	Program string `json:"program"`
	Module  string `json:"module"`
}

// Source returns Python that runs a tool's code on an input, or with check only checks the code.
func Source(name, code string, input []byte, check bool) string {
	flag := "False"
	if check {
		flag = "True"
	}
	// Python reads what Go quotes in ASCII as the same text.
	return fmt.Sprintf("%s\n\nberth_tool(%q, %s, %s, %d, %s)\n", driver, name, strconv.QuoteToASCII(code),
		strconv.QuoteToASCII(string(input)), maxOutput, flag)
}

// Checked returns the error that a check of the code found. note says that the code could not be checked.
func Checked(out proto.Outcome) (note string, err error) {
	t, ok := reportIn(out)
	switch {
	case !ok:
		return "the code was not checked: " + proto.Shorten(out.Error, maxMessage), nil
	case t.Error == nil:
		return "", nil
	case t.Error.Type == errorNoRun:
		return "", proto.Errorf(proto.InvalidArgument, "", "configuration.code", "configuration.code: the code "+
			"defines no function run; write def run(input): …")
	}
	return "", proto.Errorf(proto.InvalidArgument, "", "configuration.code", "configuration.code: %s: %s",
		proto.Shorten(t.Error.Name, 80), proto.Shorten(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, t.Error.Message), 500))
}

// reportIn finds the driver's report, which is the last of its kind: the tool's code may have printed a similar one
// before.
func reportIn(out proto.Outcome) (t report, ok bool) {
	for _, b := range slices.Backward(out.Rich) {
		var text string
		if raw, is := b[reportType]; is && json.Unmarshal(raw, &text) == nil &&
			json.Unmarshal([]byte(text), &t) == nil && (t.Error != nil || t.Output != nil) {
			return t, true
		}
	}
	return report{}, false
}

// SetOutcome copies the code's outcome into the record of a run, and checks the output against the field list.
func SetOutcome(r *proto.ToolRun, out proto.Outcome, schema []proto.ToolField) {
	r.Logs, r.Files, r.ExecID, r.Truncated = out.Logs, out.Files, out.ExecID, out.Truncated
	r.Notes = append(r.Notes, out.Notes...)
	t, ok := reportIn(out)
	switch {
	case ok && t.Error != nil:
		r.Error = t.Error.bounded()
	case out.ErrorDetail != nil:
		d := out.ErrorDetail
		r.Error = &proto.ToolRunError{Type: d.Name, Message: proto.Shorten(d.Message, maxMessage),
			Traceback: proto.Shorten(d.Traceback, maxTraceback), ReturnCode: d.ReturnCode}
	case !ok || len(*t.Output) > maxOutput:
		r.Error = &proto.ToolRunError{Type: errorExit,
			Message: "the code ended without a result; return it from run instead"}
	default:
		output := []byte(*t.Output)
		if err := field.Output(schema, output); err != nil {
			e := proto.AsError(err)
			r.Error = &proto.ToolRunError{Type: errorInvalidOutput, Message: e.Message, Field: e.Item}
			return
		}
		r.Output = output
	}
}

// bounded is the error as it is recorded. It names the image that has what was missing.
func (e *reportError) bounded() *proto.ToolRunError {
	out, cut := e.ToolRunError, proto.Shorten
	out.Type, out.Name, out.Field = cmp.Or(cut(e.Type, 64), errorException), cut(e.Name, 200), cut(e.Field, 200)
	out.Message, out.Traceback = cut(e.Message, maxMessage), cut(e.Traceback, maxTraceback)
	advice := "run the tool in an image that has it"
	if image := cmp.Or(contents.Program(e.Program), contents.Module(e.Module)); image != "" {
		advice = "the image " + image + " has it"
	}
	switch {
	case e.Program != "":
		out.Message = fmt.Sprintf("%s: the image has no program %s; %s", out.Message, cut(e.Program, 80), advice)
	case e.Module != "":
		out.Message = fmt.Sprintf("%s: the image has no such Python module; %s", out.Message, advice)
	}
	return &out
}
