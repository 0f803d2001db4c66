package templates

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"berth/proto"
)

// Steps that clients know besides the numbers of their own, from 1.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

// Where a template from a plain image begins.
const (
	usualUser = proto.UserDefault
	usualDir  = "/home/user"
)

// A base is what a template is built on.
type base struct {
	ref       string
	user, dir string // where its steps begin
	plain     bool   // an image that may lack the user
	facts     Facts
}

// A plan is a template as a Dockerfile. Each instruction is one line.
type plan struct {
	lines   []line
	counted []int // indices of the lines that the builder counts
	user    string
}

// A line is one instruction.
type line struct {
	text string
	step string // of the template
	said string // for the log; "" is nothing
}

// makePlan translates a template. names has the names in the upload of each COPY step.
func makePlan(r Recipe, from base, names [][]string) (*plan, error) {
	p := &plan{user: from.user}
	p.add(line{"FROM " + from.ref, stepBase, "FROM " + from.ref}, true)
	if from.plain {
		p.add(line{text: "USER root", step: stepBase}, false)
		p.run(line{step: stepBase, said: "make the user " + usualUser}, provision)
	}
	p.add(line{text: "USER " + p.user, step: stepBase}, false)
	p.add(line{text: "WORKDIR " + quote(from.dir), step: stepBase}, true)
	copies := 0
	for i, s := range r.Steps {
		at := line{step: strconv.Itoa(i + 1), said: s.Type + " " + strings.Join(s.Args, " ")}
		switch s.Type {
		case "RUN":
			p.asUser(at, s.arg(1), func() { p.run(at, inShell, s.Args[0]) })
		case "COPY":
			copies++
			if err := p.copy(at, s, copies, names[copies-1]); err != nil {
				return nil, err
			}
		case "ENV":
			for j := 0; j < len(s.Args); j += 2 {
				at.text = "ENV " + s.Args[j] + "=" + quote(s.Args[j+1])
				p.add(at, false)
			}
		case "USER":
			p.user = s.Args[0]
			at.text = "USER " + p.user
			p.add(at, false)
		case "WORKDIR":
			at.text = "WORKDIR " + quote(s.Args[0])
			p.add(at, true)
			p.own(at)
		}
	}
	return p, p.fits()
}

// Shell returns the arguments that run a command as clients expect it: in bash, or in sh where there is no bash.
func Shell(command string) []string { return []string{"/bin/sh", "-c", inShell, command} }

// inShell runs its argument in bash, or in sh where there is no bash.
const inShell = `if [ -x /bin/bash ]; then exec /bin/bash -c "$0"; fi; exec /bin/sh -c "$0"`

// shellShown is how the builder's messages show inShell before its argument, which alone is the author's own.
var shellShown = "/bin/sh -c " + strings.ReplaceAll(inShell, `"`, `\"`) + " "

// provision gives an image the user that clients expect. It has the number that containers give this user.
const provision = `set -e
if ! grep -q '^user:' /etc/passwd; then
	grep -q '^[^:]*:[^:]*:1000:' /etc/group || echo 'user:x:1000:' >>/etc/group
	if [ -x /bin/bash ]; then shell=/bin/bash; else shell=/bin/sh; fi
	echo "user:x:1000:1000::/home/user:$shell" >>/etc/passwd
	if [ -f /etc/shadow ]; then echo 'user:!:20000:0:99999:7:::' >>/etc/shadow; fi
fi
if [ ! -d /home/user ]; then
	mkdir -p /home/user
	if [ -d /etc/skel ]; then cp -R /etc/skel/. /home/user; fi
	chown -R 1000:1000 /home/user
fi`

func (p *plan) add(l line, counted bool) {
	if counted {
		p.counted = append(p.counted, len(p.lines))
	}
	p.lines = append(p.lines, l)
}

// run adds a command. What JSON writes for <, > and & keeps the builder from seeing here-documents.
func (p *plan) run(at line, script string, args ...string) {
	at.text = "RUN " + asJSON(append([]string{"/bin/sh", "-c", script}, args...))
	p.add(at, true)
}

// asUser adds what do adds, for another user.
func (p *plan) asUser(at line, user string, do func()) {
	if user == "" || user == p.user {
		do()
		return
	}
	p.add(line{text: "USER " + user, step: at.step}, false)
	do()
	p.add(line{text: "USER " + p.user, step: at.step}, false)
}

// own gives the present directory to the user if the builder has just made it.
func (p *plan) own(at line) {
	if p.user == "root" || p.user == "0" {
		return
	}
	at.said = ""
	owner, _, _ := strings.Cut(p.user, ":")
	p.asUser(at, "root", func() { // a variable in the name is expanded by the shell: ENV has set it
		p.run(at, `if [ -z "$(ls -A)" ] && [ -O . ]; then chown "`+owner+`" .; fi`)
	})
}

// copy adds a COPY step.
func (p *plan) copy(at line, s Step, number int, names []string) error {
	from, err := sources(s.Args[0], names)
	if err != nil {
		return proto.Invalid("steps", "step %s: %v", at.step, err)
	}
	dest := s.Args[1]
	if len(from) > 1 && !strings.HasSuffix(dest, "/") {
		dest += "/"
	}
	words := make([]string, 0, len(from)+1)
	for _, name := range from {
		words = append(words, copyDir(number)+"/"+escape(name))
	}
	owner := s.arg(2)
	if owner == "" {
		owner = p.user
	}
	at.text = "COPY --chown=" + owner
	if mode := s.arg(3); mode != "" {
		at.text += " --chmod=" + mode
	}
	at.said = fmt.Sprintf("COPY %s %s", s.Args[0], s.Args[1])
	at.text += " " + asJSON(append(words, strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(dest)))
	p.add(at, true)
	return nil
}

// copyDir returns the directory in the build context with the files of a COPY step.
func copyDir(number int) string { return "copy-" + strconv.Itoa(number) }

// fits refuses lines that the builder cannot read.
func (p *plan) fits() error {
	const longest = 64_000 // the builder reads lines of up to 65,535 bytes
	for _, l := range p.lines {
		if len(l.text) > longest {
			return proto.Invalid("steps", "step %s is too long for the image builder; put the text into a file and "+
				"COPY it", l.step)
		}
	}
	return nil
}

// text returns the Dockerfile.
func (p *plan) text() string {
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// stepOf returns the step of a line of the Dockerfile, from 1, or "".
func (p *plan) stepOf(number int) string {
	if number < 1 || number > len(p.lines) {
		return ""
	}
	return p.lines[number-1].step
}

// lineOf returns the line that the builder calls by a name such as "[2/5] RUN make".
func (p *plan) lineOf(name string) (l line, ok bool) {
	inside, ok := strings.CutPrefix(name, "[")
	if !ok {
		return l, false
	}
	inside, _, _ = strings.Cut(inside, "/")
	n, err := strconv.Atoi(strings.TrimSpace(inside[strings.LastIndexByte(inside, ' ')+1:]))
	if err != nil || n < 1 || n > len(p.counted) {
		return l, false
	}
	return p.lines[p.counted[n-1]], true
}

// sources returns what of an upload a COPY step copies. Clients have matched patterns already: an upload has what they
// found, and nothing else.
func sources(pattern string, names []string) ([]string, error) {
	clean := path.Clean(strings.ReplaceAll(pattern, `\`, "/"))
	if clean == "." {
		return []string{"."}, nil
	}
	if slices.ContainsFunc(names, func(n string) bool { return n == clean || strings.HasPrefix(n, clean+"/") }) {
		return []string{clean}, nil
	}
	if found := tops(names); len(found) > 0 {
		return found, nil
	}
	return nil, fmt.Errorf("the upload for COPY %.80q is empty", pattern)
}

// tops returns the names that are below no other of them.
func tops(names []string) (list []string) {
	have := map[string]bool{}
	for _, n := range names {
		have[n] = true
	}
	if have["."] {
		return []string{"."}
	}
names:
	for n := range have {
		for up := path.Dir(n); up != "."; up = path.Dir(up) {
			if have[up] {
				continue names
			}
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// quote writes a value that may have variables as the builder reads it between double quotes.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"', c == '\\' && (i+1 == len(text) || text[i+1] != '$'):
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// escape writes a name of a file so that the builder reads it as it is: first as a word of a shell, then as a pattern.
func escape(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case r == '*' || r == '?' || r == '[':
			b.WriteString("[" + string(r) + "]")
		case r == '\\':
			b.WriteString(`\\\\`)
		case r == '$' || r == '"' || r == '\'':
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func asJSON(list []string) string {
	text, _ := json.Marshal(list) // strings always have a JSON form
	return string(text)
}
