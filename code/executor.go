package code

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/proto"
	"berth/session"
)

// The limits of the code_executor tool. No request can change them.
const (
	executorTime   = 15 * time.Second
	executorOutput = 64 << 10 // bytes of each stream
)

// A Script is the input of the code_executor tool: a program that runs as a file.
type Script struct {
	Language string `json:"language" schema:"enum=python|node"` // python or node.
	Code     string `json:"code" schema:"maxLength=1048576 source"`
}

// ScriptLanguages are the languages of the code_executor tool.
var ScriptLanguages = []string{"python", "node"}

// scriptPrograms are the programs that run scripts: program, file, and what to install where the program is missing.
var scriptPrograms = map[string]struct{ program, file, install string }{
	"python": {"python3", "main.py", "python3"},
	"node":   {"node", "main.js", "nodejs"},
}

// scriptDir is the directory of a script's file. It is not in the workspace, whose manifest would list the file.
const scriptDir = "/tmp/code_executor/"

// An executed is the outcome of a script.
type executed struct {
	language string
	out      [2][]byte // the beginning of each stream
	cut      bool      // it wrote more than out has
	exec     proto.Exec
}

// Execute is the code_executor tool. It runs a script in a container of its own, and gives answer a Markdown text and
// whether the script failed. The container is deleted once answer has returned.
func (r *Runner) Execute(ctx context.Context, owner string, req Script,
	answer func(text string, failed bool) error) error {
	p, ok := scriptPrograms[req.Language]
	if !ok {
		return proto.Invalid("language", "language %.40q is not one of %s", req.Language,
			strings.Join(ScriptLanguages, " and "))
	}
	if err := checkCode(req.Code); err != nil {
		return err
	}
	s, err := r.findContainer(ctx, owner, proto.Program{})
	if err != nil {
		return err
	}
	defer r.deleteContainer(ctx, owner, s)
	if _, err := s.WriteFile(ctx, proto.UserDefault, scriptDir+p.file, session.WriteOptions{}, strings.NewReader(
		req.Code)); err != nil {
		return err
	}
	cmd := proto.Cmd{Argv: []string{p.program, scriptDir + p.file}, TimeoutSeconds: executorTime.Seconds(),
		MaxOutputBytes: window, OnOutputLimit: proto.OutputWait}
	cmd.Shown = shownAs(req.Language, req.Code)
	done, err := execute(ctx, s, cmd)
	if err != nil {
		return err
	}
	if end := done.exec.End; end.Reason == proto.EndNotStarted && end.ReturnCode == 127 {
		return proto.Errorf(proto.Unsupported, "", "language", "image %s has no %s; install %s in it, or have the "+
			"daemon use image base", s.Info().Image, p.program, p.install)
	}
	done.language = req.Language
	return answer(done.markdown(), done.failed())
}

// errFull ends a listener that has received the maximum.
var errFull = errors.New("full")

// execute runs a command until it ends. It ends a command that writes too much.
func execute(ctx context.Context, s *session.Session, cmd proto.Cmd) (done executed, err error) {
	e, err := s.Exec(ctx, cmd)
	if err != nil {
		return done, err
	}
	err = e.FollowRaw(ctx, session.Cursor{}, func(proto.Event) error { return nil },
		func(p session.Piece, _ []byte) error {
			kept := &done.out[p.Stream-1]
			*kept = append(*kept, p.Data[:min(len(p.Data), executorOutput+1-len(*kept))]...)
			if done.cut = len(*kept) > executorOutput; done.cut {
				return errFull
			}
			return nil
		})
	switch {
	case errors.Is(err, errFull):
		e.Cancel(proto.EndOutputLimit, "it wrote more than 64 KiB")
	case err != nil:
		e.Abandon(ctx)
		return done, err
	}
	res, err := e.Wait(ctx)
	done.exec = res.Exec
	return done, err
}

// failed reports whether the script failed.
func (d executed) failed() bool {
	return d.exec.End.Reason != proto.EndExit || d.exec.End.ReturnCode != 0
}

// markdown returns the text of the tool.
func (d executed) markdown() string {
	var b strings.Builder
	took := d.exec.Duration(time.Time{}).Milliseconds()
	fmt.Fprintf(&b, "## Code Execution Result\n\n**Language:** %s | **Exit code:** %d | **Time:** %d ms\n", d.language,
		d.exec.End.ReturnCode, took)
	switch end := d.exec.End; end.Reason {
	case proto.EndExit, proto.EndOutputLimit, proto.EndSignal:
	case proto.EndTimeout:
		fmt.Fprintf(&b, "\n**Timed out** after %d s\n", int(executorTime.Seconds()))
	default:
		fmt.Fprintf(&b, "\n**Ended early** (%s): %s\n", end.Reason, end.Message)
	}
	b.WriteString("\n### stdout\n\n" + fenced(d.out[0]))
	if len(d.out[1]) > 0 {
		b.WriteString("\n### stderr\n\n" + fenced(d.out[1]))
	}
	return b.String()
}

// fenced puts output between fences that are longer than any fence in it.
func fenced(out []byte) string {
	if len(out) == 0 {
		return "*(empty)*\n"
	}
	mark := ""
	if len(out) > executorOutput {
		out, mark = out[:executorOutput], "[OUTPUT TRUNCATED]\n"
	}
	text := strings.ToValidUTF8(string(out), "\uFFFD")
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + text + mark + fence + "\n"
}
