package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
)

// replName is the context that code_execution works in, and cellTime how long one call may take.
const (
	replName = "repl"
	cellTime = 90 * time.Second
)

// Types of the results of code_execution.
const (
	typeCodeResult = "code_execution_result"
	typeCodeOutput = "code_execution_output"
)

// codeResult is what became of Python as the content of its result. The value of the last expression stands behind
// what was printed, as at a prompt; why it failed behind what it wrote to standard error.
func codeResult(res code.Outcome) json.RawMessage {
	var out, errs strings.Builder
	out.WriteString(strings.Join(res.Logs.Stdout, ""))
	for _, value := range res.Results {
		line(&out, value)
	}
	errs.WriteString(strings.Join(res.Logs.Stderr, ""))
	line(&errs, res.Error)
	for _, note := range res.Notes {
		line(&errs, "["+note+"]")
	}
	files := []json.RawMessage{}
	for _, f := range res.Files {
		files = append(files, object{}.with("type", typeCodeOutput).with("file_id", f.FileID).raw())
	}
	return object{}.with("type", typeCodeResult).with("stdout", out.String()).with("stderr", errs.String()).
		with("return_code", returnCode(res)).with("content", joined(files)).raw()
}

// returnCode is 0 for code that did not fail.
func returnCode(res code.Outcome) int {
	switch d := res.ErrorDetail; {
	case d == nil:
		return 0
	case d.ReturnCode != nil && *d.ReturnCode != 0:
		return *d.ReturnCode
	}
	return 1
}

// made has the files of a result be what its call has put into the interpreter's $OUTPUT_DIR. The interpreter goes
// on, so the directory is not new for each call: what was changed since the call began is the call's.
func (t *turn) made(ctx context.Context, s *session.Session, res *code.Outcome, began time.Time) {
	e, err := s.FindExec(res.ExecID)
	if err != nil || e.Info().State != proto.ExecRunning { // its end has stored and named all of them
		res.Files = slices.DeleteFunc(res.Files, func(f proto.BashOutput) bool {
			stored, err := t.g.cfg.Files.Get(ctx, s.Owner(), f.FileID)
			return err == nil && stored.CreatedAt.Before(began) // an earlier call's, which has named it
		})
		return
	}
	made := t.g.cfg.Jobs.Made(ctx, s, e.Info(), began)
	for _, id := range made.FileIDs {
		res.Files = append(res.Files, proto.BashOutput{FileID: id})
	}
	res.Notes = append(res.Notes, made.Notes...)
}
