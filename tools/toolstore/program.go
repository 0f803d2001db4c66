package toolstore

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"berth/code"
	"berth/proto"
)

// driver runs a tool's code and reports the outcome; see the file.
//
//go:embed driver/tool.py
var driver string

// reportType is the media type of the driver's report.
const reportType = "application/vnd.berth.tool"

// Bounds of what is kept of a run, in bytes.
const (
	maxOutput    = 256 << 10 // of what run gave back, as JSON
	maxLogs      = 64 << 10  // of each stream
	maxMessage   = 8 << 10   // of an error's
	maxTraceback = 16 << 10
)

// compileTimeout bounds the check of a tool's code, in seconds.
const compileTimeout = 20

// A report is the driver's report: output as JSON text, or an error.
type report struct {
	Output *string      `json:"output"`
	Error  *reportError `json:"error"`
}

// A reportError is a RunError, and what the image lacks.
type reportError struct {
	RunError
	Program string `json:"program"`
	Module  string `json:"module"`
}

// program returns Python that runs or checks a tool's code.
func program(name, text string, input []byte, check bool) string {
	flag := "False"
	if check {
		flag = "True"
	}
	// Python reads what Go quotes in ASCII as the same text.
	return fmt.Sprintf("%s\n\nberth_tool(%q, %s, %s, %d, %s)\n", driver, name, strconv.QuoteToASCII(text),
		strconv.QuoteToASCII(string(input)), maxOutput, flag)
}

// compile has an interpreter check a tool's code without running it. If no interpreter is available, the tool is
// stored all the same, with a note.
func (c *Store) compile(ctx context.Context, owner string, t NewTool) (note string, err error) {
	var out code.Outcome
	req := code.Program{Shown: "checking tool " + t.Name, Program: proto.Program{
		Code: program(t.Name, t.Configuration.Code, nil, true), TimeoutSeconds: compileTimeout}}
	err = c.cfg.Code.Once(ctx, owner, req, func(o code.Outcome) error { out = o; return nil })
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "the code was not checked, since no container could be had for that: " + proto.AsError(err).Message, nil
	}
	t0, ok := reportIn(out)
	switch {
	case !ok:
		return "the code was not checked: " + cut(out.Error, maxMessage), nil
	case t0.Error == nil:
		return "", nil
	case t0.Error.Type == ErrorNoRun:
		return "", invalid("configuration.code", "configuration.code: the code defines no function run; write def "+
			"run(input): …")
	}
	return "", invalid("configuration.code", "configuration.code: %s: %s", cut(t0.Error.Name, 80),
		cut(printable(t0.Error.Message), 500))
}

// reportIn finds the driver's report, which is the last of its kind: the tool's code may have printed a similar one
// before.
func reportIn(out code.Outcome) (t report, ok bool) {
	for _, b := range slices.Backward(out.Rich) {
		var text string
		if raw, is := b[reportType]; is && json.Unmarshal(raw, &text) == nil &&
			json.Unmarshal([]byte(text), &t) == nil &&
			(t.Error != nil || t.Output != nil) {
			return t, true
		}
	}
	return report{}, false
}

// setOutcome copies the code's outcome into a run and sets its state.
func setOutcome(r *Run, out code.Outcome, schema []Field) {
	r.Logs, r.Files, r.ExecID, r.Truncated = out.Logs, out.Files, out.ExecID, out.Truncated
	r.Notes = append(r.Notes, out.Notes...)
	t, ok := reportIn(out)
	switch {
	case ok && t.Error != nil:
		r.Error = t.Error.bounded()
	case out.ErrorDetail != nil:
		d := out.ErrorDetail
		r.Error = &RunError{Type: d.Name, Message: cut(d.Message, maxMessage), Traceback: cut(d.Traceback,
			maxTraceback), ReturnCode: d.ReturnCode}
	case !ok || len(*t.Output) > maxOutput:
		r.Error = &RunError{Type: ErrorExit,
			Message: "the code ended without giving anything back; return from run instead"}
	default:
		r.Error = setOutput(r, []byte(*t.Output), schema)
	}
}

// setOutput checks an output.
func setOutput(r *Run, output []byte, schema []Field) *RunError {
	if err := checkOutput(schema, output); err != nil {
		e := proto.AsError(err)
		return &RunError{Type: ErrorInvalidOutput, Message: e.Message, Field: e.Item}
	}
	r.Output = output
	return nil
}

// bounded is the error as it is recorded. It names the image that has what was missing.
func (e *reportError) bounded() *RunError {
	out := e.RunError
	out.Type, out.Name, out.Field = cmp.Or(cut(e.Type, 64), ErrorException), cut(e.Name, 200), cut(e.Field, 200)
	out.Message, out.Traceback = cut(e.Message, maxMessage), cut(e.Traceback, maxTraceback)
	switch {
	case e.Program != "":
		out.Message = fmt.Sprintf("%s: the image has no program %s; %s", out.Message, cut(e.Program, 80),
			whoHas(programsOfFull, e.Program))
	case e.Module != "":
		out.Message = fmt.Sprintf("%s: the image has no such Python module; %s", out.Message,
			whoHas(modulesOfFull, e.Module))
	}
	return &out
}

// What the image full has beyond base, as far as tools are known to need it.
var (
	programsOfFull = []string{"ffmpeg", "ffprobe", "convert", "identify", "magick", "gs", "pdftotext", "pdftoppm",
		"pdfinfo", "tesseract", "pandoc", "soffice", "libreoffice", "dot",
		"node", "npm", "npx", "tsc", "Rscript", "R", "java", "javac", "jshell"}
	modulesOfFull = []string{"openai", "anthropic", "google", "groq", "cohere", "mistralai", "together", "boto3",
		"botocore", "requests", "httpx", "tenacity", "pydantic", "jsonschema",
		"numpy", "pandas", "PIL", "docx", "docxtpl", "pptx", "reportlab", "scipy", "sklearn", "matplotlib", "aiohttp",
		"bs4", "yaml", "lxml", "openpyxl"}
)

func whoHas(list []string, name string) string {
	if slices.Contains(list, name) {
		return "the image full has it"
	}
	return "run the tool in an image that has it"
}
