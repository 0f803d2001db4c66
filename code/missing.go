package code

import (
	"fmt"
	"regexp"
	"strings"

	"berth/code/cell"
	"berth/proto"
	"berth/sandbox-image/contents"
	"berth/session"
)

// missingThings find, in the error of a cell, what the image lacks. The last group of each is its name.
var missingThings = []struct {
	pattern *regexp.Regexp
	what    string
	known   func(name string) string // the image that has it
}{
	{regexp.MustCompile(`No module named '([\w.]+)'`), "Python module", contents.Module},
	{regexp.MustCompile(`Cannot find (?:module|package) '([^'\n]+)'`), "Node module", contents.NodeModule},
	{regexp.MustCompile(`(?s)subprocess\.py.*FileNotFoundError: \[Errno 2\] No such file or directory: '([^'\n]+)'`),
		"program", contents.Program},
	{regexp.MustCompile(`(?:spawn|spawnSync) (\S+) ENOENT`), "program", contents.Program},
	{regexp.MustCompile(`: (?:line \d+: )?(\S+): (?:command )?not found\n?$`), "program", contents.Program},
}

// nameMissing adds to the error of an outcome the image that has what the code missed. The error of a shell is what it
// printed last.
func nameMissing(res *proto.Outcome, s *session.Session) {
	d := res.ErrorDetail
	if d == nil {
		return
	}
	text := res.Error
	if strings.HasSuffix(strings.TrimSuffix(d.Message, "."), " status 127") && len(res.Logs.Stderr) > 0 {
		text += "\n" + res.Logs.Stderr[len(res.Logs.Stderr)-1]
	}
	for _, m := range missingThings {
		found := m.pattern.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		image := m.known(found[1])
		if image == "" || strings.HasSuffix(s.Info().Image, image) {
			continue
		}
		hint := fmt.Sprintf("the image has no %s %s; the image %s has it", m.what, found[1], image)
		said := *d
		between := ": "
		if strings.Contains(said.Message, "\n") {
			between = "\n"
		}
		said.Message = strings.TrimPrefix(said.Message+between+hint, between)
		if said.Traceback != "" {
			said.Traceback = strings.TrimRight(said.Traceback, "\n") + "\n" + hint + "\n"
		}
		cell.SetError(res, said)
		return
	}
}
