package gateway

import (
	"context"
	"encoding/json"
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

// codeResult is what became of Python as the content of its result. The value of the last expression stands behind what was printed, as at a prompt; why it
// failed behind what it wrote to standard error.
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

// made stores what a call has put into its interpreter's $OUTPUT_DIR. The interpreter goes on, so the directory is not new for each call: what was changed
// since the call began is the call's.
func (t *turn) made(ctx context.Context, s *session.Session, exec string, began time.Time) session.Produced {
	e, err := s.FindExec(exec)
	if err != nil || e.Info().State != proto.ExecRunning { // one that ended has its files stored
		return session.Produced{}
	}
	return t.g.cfg.Jobs.Made(ctx, s, e.Info(), began)
}
