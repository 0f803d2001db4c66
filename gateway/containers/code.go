package containers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"berth/code"
	"berth/gateway"
	"berth/proto"
)

// contextName is the interpreter context of Python calls. cellTime is the time limit of one call.
const (
	contextName = "repl"
	cellTime    = 90 * time.Second
)

// runCode runs Python in one of three ways: a separate program, code in the interpreter that keeps its variables, or
// code in that interpreter that calls client tools.
func (c container) runCode(ctx context.Context, r gateway.Run) (*gateway.Result, error) {
	var in struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(r.Input, &in) != nil || in.Code == "" {
		return &gateway.Result{Err: proto.Errorf(proto.InvalidArgument, "", "code", "there is no code to run")}, nil
	}
	var progress func(code.Progress) error
	if r.Output != nil {
		progress = func(p code.Progress) error {
			if p.Data == "" && p.DataBase64 == nil {
				return nil
			}
			return r.Output(gateway.Output{Stream: p.Type, Text: p.Data, Bytes: p.DataBase64})
		}
	}
	switch {
	case r.Tool == gateway.Program:
		return c.runProgram(ctx, in.Code, progress), nil
	case r.Tools != nil:
		return c.runClientCode(ctx, r, in.Code, progress)
	}
	if err := c.h.runs.makeRoom(c.s.ID(), r.ID, nil); err != nil {
		return &gateway.Result{Err: err}, nil
	}
	return c.runCell(ctx, code.Cell{Code: in.Code, TimeoutSeconds: cellTime.Seconds()}, progress), nil
}

// runProgram runs code in a new interpreter.
func (c container) runProgram(ctx context.Context, text string, progress func(code.Progress) error) *gateway.Result {
	var res *gateway.Result
	err := c.h.cfg.Code.Once(ctx, c.s.Owner(), proto.Program{Code: text, Container: c.s.ID()}, progress,
		func(out code.Outcome) error {
			res = codeResult(out)
			return nil
		})
	if err != nil {
		return &gateway.Result{Err: err}
	}
	return res
}

// runCell runs code in the interpreter that keeps its variables. The code may outlive the turn.
func (c container) runCell(ctx context.Context, cell code.Cell, progress func(code.Progress) error) *gateway.Result {
	began := time.Now()
	cell.Language = "python"
	out, err := c.h.cfg.Code.Cell(ctx, c.s.Owner(), c.s.ID(), contextName, cell, progress)
	if err != nil {
		return &gateway.Result{Err: err}
	}
	c.collectFiles(ctx, &out, began)
	return codeResult(out)
}

// collectFiles sets the files of an outcome to those that its call has written to the interpreter's $OUTPUT_DIR. The
// interpreter and its directory outlive a call. So files that changed since began belong to this call.
func (c container) collectFiles(ctx context.Context, out *code.Outcome, began time.Time) {
	e, err := c.s.FindExec(out.ExecID)
	// when the interpreter ended, all files were stored and listed
	if err != nil || e.Info().State != proto.ExecRunning {
		out.Files = slices.DeleteFunc(out.Files, func(f proto.BashOutput) bool {
			stored, err := c.h.cfg.Files.Get(ctx, c.s.Owner(), f.FileID)
			return err == nil && stored.CreatedAt.Before(began) // an earlier call has listed it
		})
		return
	}
	made := c.h.cfg.Jobs.Made(ctx, c.s, e.Info(), began)
	for _, id := range made.FileIDs {
		out.Files = append(out.Files, proto.BashOutput{FileID: id})
	}
	out.Notes = append(out.Notes, made.Notes...)
}

// codeResult converts an outcome to the result of a call. As in an interactive session, the value of the last
// expression follows the output. The error and the notes follow the text on standard error.
func codeResult(out code.Outcome) *gateway.Result {
	var stdout, stderr strings.Builder
	stdout.WriteString(strings.Join(out.Logs.Stdout, ""))
	for _, value := range out.Results {
		writeLine(&stdout, value)
	}
	stderr.WriteString(strings.Join(out.Logs.Stderr, ""))
	writeLine(&stderr, out.Error)
	for _, note := range out.Notes {
		writeLine(&stderr, "["+note+"]")
	}
	res := &gateway.CodeResult{Stdout: stdout.String(), Stderr: stderr.String()}
	switch d := out.ErrorDetail; {
	case d == nil:
	case d.ReturnCode != nil && *d.ReturnCode != 0:
		res.ReturnCode = *d.ReturnCode
	default:
		res.ReturnCode = 1
	}
	for _, f := range out.Files {
		res.Files = append(res.Files, f.FileID)
	}
	return &gateway.Result{Code: res}
}

// writeLine writes text on a separate line.
func writeLine(b *strings.Builder, text string) {
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(text)
}
