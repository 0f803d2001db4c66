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

// driver runs a tool's code and tells what came of it; see there.
//
//go:embed driver/tool.py
var driver string

// tellType is the media type under which the driver tells.
const tellType = "application/vnd.berth.tool"

// Bounds of what is kept of a run, in bytes.
const (
	maxOutput    = 256 << 10 // of what run gave back, as JSON
	maxLogs      = 64 << 10  // of each stream
	maxMessage   = 8 << 10   // of an error's
	maxTraceback = 16 << 10
)

// compileTimeout is how long looking at code may take, in seconds.
const compileTimeout = 20

// A told is what the driver tells: output as JSON text, or an error.
type told struct {
	Output *string    `json:"output"`
	Error  *toldError `json:"error"`
}

// A toldError is a RunError, and what was missing in the image.
type toldError struct {
	RunError
	Program string `json:"program"`
	Module  string `json:"module"`
}

// program is Python that runs, or looks at, a tool's code.
func program(name, text string, input []byte, check bool) string {
	flag := "False"
	if check {
		flag = "True"
	}
	// What Go quotes in ASCII, Python reads as the same text.
	return fmt.Sprintf("%s\n\nberth_tool(%q, %s, %s, %d, %s)\n", driver, name, strconv.QuoteToASCII(text),
		strconv.QuoteToASCII(string(input)), maxOutput, flag)
}

// compile has an interpreter look at a tool's code, without running it. Where none can be had the tool is stored all
// the same, with a note.
func (c *Catalog) compile(ctx context.Context, owner string, t NewTool) (note string, err error) {
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
	t0, ok := toldIn(out)
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

// toldIn finds what the driver told, which is the last of its kind: the tool's code may have told something like it
// before, and then told it of itself.
func toldIn(out code.Outcome) (t told, ok bool) {
	for _, b := range slices.Backward(out.Rich) {
		var text string
		if raw, is := b[tellType]; is && json.Unmarshal(raw, &text) == nil && json.Unmarshal([]byte(text), &t) == nil &&
			(t.Error != nil || t.Output != nil) {
			return t, true
		}
	}
	return told{}, false
}

// setOutcome takes what came of the code into a run, which fails or has succeeded by that.
func setOutcome(r *Run, out code.Outcome, schema []Field) {
	r.Logs, r.Files, r.ExecID, r.Truncated = out.Logs, out.Files, out.ExecID, out.Truncated
	r.Notes = append(r.Notes, out.Notes...)
	t, ok := toldIn(out)
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

// bounded is an error as it is kept, and says which image has what was missing.
func (e *toldError) bounded() *RunError {
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

// What the image full has beyond base, as far as tools are known to ask for it.
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
