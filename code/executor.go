package code

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/proto"
	"berth/session"
	"berth/session/fleeting"
)

// The time and output of the code_executor tool. No request can change them.
const (
	executorTime   = 15 * time.Second
	executorOutput = 64 << 10 // bytes of each stream
)

// A Script is the input of the code_executor tool: a program that runs as a file.
type Script struct {
	Language string `json:"language" schema:"enum=python|node"` // python or node.
	Code     string `json:"code" schema:"maxLength=1048576 source"`
	proto.Confinement
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

// A Report is the outcome of a script.
type Report struct {
	Text   string // Markdown, in the form that clients of the tool know
	Failed bool   // the script did not end with exit code 0
	Note   string // why the script was ended, if the text cannot say it; "" otherwise
}

// An executed is a script that has ended.
type executed struct {
	language string
	out      [2][]byte // the beginning of each stream
	exec     proto.Exec
}

// Execute is the code_executor tool. It runs a script in a container of its own, and gives answer the report. The
// container is deleted once answer has returned.
func (r *Runner) Execute(ctx context.Context, owner string, req Script, answer func(Report) error) error {
	p, ok := scriptPrograms[req.Language]
	if !ok {
		return proto.Invalid("language", "language %.40q is not one of %s", req.Language,
			strings.Join(ScriptLanguages, " and "))
	}
	if err := checkCode(req.Code); err != nil {
		return err
	}
	s, err := r.findContainer(ctx, owner, proto.Program{Confinement: req.Confinement})
	if err != nil {
		return err
	}
	defer fleeting.Delete(ctx, r.sessions, s, r.log)
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
	return answer(Report{Text: done.markdown(), Failed: done.failed(), Note: done.note()})
}

// execute runs a command until it ends. It kills a command that writes too much to standard output. Of standard error,
// it only drops what is too much: the command goes on.
func execute(ctx context.Context, s *session.Session, cmd proto.Cmd) (done executed, err error) {
	e, err := s.Exec(ctx, cmd)
	if err != nil {
		return done, err
	}
	full := false
	err = e.FollowRaw(ctx, session.Cursor{}, func(proto.Event) error { return nil },
		func(p session.Piece, _ []byte) error {
			kept := &done.out[p.Stream-1]
			*kept = append(*kept, p.Data[:min(len(p.Data), executorOutput+1-len(*kept))]...)
			if p.Stream == proto.Stdout && len(*kept) > executorOutput && !full {
				full = true
				e.Cancel(proto.EndOutputLimit, "it wrote more than 64 KiB")
			}
			return nil
		})
	if err != nil {
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

// note explains an end that has no place in the text of the tool.
func (d executed) note() string {
	switch end := d.exec.End; end.Reason {
	case proto.EndExit, proto.EndOutputLimit, proto.EndSignal, proto.EndTimeout:
		return ""
	default:
		return fmt.Sprintf("the script was ended (%s): %s", end.Reason, end.Message)
	}
}

// markdown returns the text of the tool. Clients parse it, so each character counts.
func (d executed) markdown() string {
	end, exitCode := d.exec.End, "N/A" // of a script that was killed
	if end.Reason == proto.EndExit {
		exitCode = strconv.Itoa(end.ReturnCode)
	}
	lines := []string{"## Code Execution Result", fmt.Sprintf("**Language:** %s  |  **Exit Code:** %s  |  **Time:** "+
		"%dms", d.language, exitCode, d.exec.Duration(time.Time{}).Milliseconds())}
	if end.Reason == proto.EndTimeout {
		lines = append(lines, "", fmt.Sprintf("⚠️ **TIMED OUT** after %d seconds.", int(executorTime.Seconds())))
	}
	lines = append(lines, "", "### stdout")
	if stdout := shownOutput(d.out[0], "[OUTPUT TRUNCATED]"); stdout != "" {
		lines = append(lines, fenced(stdout))
	} else {
		lines = append(lines, "*(empty)*")
	}
	if stderr := shownOutput(d.out[1], "[STDERR TRUNCATED]"); stderr != "" {
		lines = append(lines, "", "### stderr", fenced(stderr))
	}
	return strings.Join(lines, "\n")
}

// shownOutput returns a stream without white space at its end. A stream that was cut ends with the mark, and does not
// end within a character.
func shownOutput(out []byte, mark string) string {
	if len(out) > executorOutput {
		out = out[:executorOutput]
		for i := 1; i < utf8.UTFMax; i++ {
			if last := out[len(out)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					out = out[:len(out)-i]
				}
				break
			}
		}
		return decoded(out) + "\n" + mark
	}
	return strings.TrimRightFunc(decoded(out), isBlank)
}

// decoded returns output as text. What is not UTF-8 is replaced as by JavaScript: the beginning of a character as a
// whole, and each other byte by itself.
func decoded(out []byte) string {
	var text strings.Builder
	for len(out) > 0 {
		r, n := utf8.DecodeRune(out)
		text.WriteRune(r)
		if r == utf8.RuneError && n == 1 {
			for most := min(len(out), utf8.UTFMax-1); n < most && !utf8.FullRune(out[:n+1]); {
				n++
			}
		}
		out = out[n:]
	}
	return text.String()
}

// isBlank reports whether a character is white space as the original tool has it, which is JavaScript's.
func isBlank(r rune) bool { return unicode.IsSpace(r) && r != '\u0085' || r == '\uFEFF' }

// fenced puts text between fences that are longer than any fence in it.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + text + "\n" + fence
}
