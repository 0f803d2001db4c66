package templates

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"berth/proto"
)

// Bounds of a template.
const (
	maxSteps   = 1000
	maxArg     = 32 << 10 // bytes of an argument; the builder takes lines of 64 KiB
	maxCommand = 16 << 10 // bytes of a start or ready command
)

// A Recipe is a template as clients send it.
type Recipe struct {
	FromImage    string          `json:"fromImage"`
	FromTemplate string          `json:"fromTemplate"`
	Registry     json.RawMessage `json:"fromImageRegistry"`
	Force        bool            `json:"force"` // run every step
	Steps        []Step          `json:"steps"`
	StartCmd     string          `json:"startCmd"`
	ReadyCmd     string          `json:"readyCmd"`
}

// A Step is one step of a template.
type Step struct {
	Type      string   `json:"type"`
	Args      []string `json:"args"`
	FilesHash string   `json:"filesHash"`
	Force     bool     `json:"force"`
}

// forced reports whether steps must run although the cache has them. BuildKit has no switch for the later steps alone.
func (r Recipe) forced() bool {
	for _, s := range r.Steps {
		if s.Force {
			return true
		}
	}
	return r.Force
}

// hashes returns the hashes of the files of the COPY steps, in order.
func (r Recipe) hashes() (list []string) {
	for _, s := range r.Steps {
		if s.Type == "COPY" {
			list = append(list, s.FilesHash)
		}
	}
	return list
}

// check refuses what cannot be honored, and names the field.
func (r Recipe) check() error {
	registry := strings.Join(strings.Fields(string(r.Registry)), "")
	switch {
	case (r.FromImage == "") == (r.FromTemplate == ""):
		return proto.Invalid("fromImage", "exactly one of fromImage and fromTemplate must name what to build on")
	case registry != "" && registry != "null" && registry != "{}":
		return proto.Invalid("fromImageRegistry", "fromImageRegistry: the daemon logs in to registries; give it the "+
			"login with berth image login, and leave out the credentials")
	case len(r.Steps) > maxSteps:
		return proto.Invalid("steps", "a template has %d steps at the most", maxSteps)
	case len(r.StartCmd) > maxCommand || strings.ContainsRune(r.StartCmd, 0):
		return proto.Invalid("startCmd", "startCmd must have at most %d KiB, and no NUL", maxCommand>>10)
	case len(r.ReadyCmd) > maxCommand || strings.ContainsRune(r.ReadyCmd, 0):
		return proto.Invalid("readyCmd", "readyCmd must have at most %d KiB, and no NUL", maxCommand>>10)
	}
	if ref := r.FromImage; ref != "" && !image.MatchString(ref) {
		return proto.Invalid("fromImage", "fromImage %.80q is not the name of an image, such as debian:12", ref)
	}
	for i, s := range r.Steps {
		if field, why := s.check(); why != "" {
			item := fmt.Sprintf("steps[%d].%s", i, field)
			return proto.Invalid(item, "%s: %s", item, why)
		}
	}
	return nil
}

var (
	image     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./_:@-]{0,255}$`)
	hashForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	userForm  = regexp.MustCompile(`^[A-Za-z0-9_.${}-]{1,64}(:[A-Za-z0-9_.${}-]{1,64})?$`)
	modeForm  = regexp.MustCompile(`^[0-7]{3,5}$`)
	variables = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,255}$`)
)

// check returns the field that is wrong and what is wrong with it, or "".
func (s Step) check() (field, why string) {
	for i, a := range s.Args {
		if len(a) > maxArg || strings.ContainsRune(a, 0) {
			return fmt.Sprintf("args[%d]", i), fmt.Sprintf("it must have at most %d KiB, and no NUL", maxArg>>10)
		}
	}
	switch s.Type {
	case "RUN":
		return s.checkRun()
	case "COPY":
		return s.checkCopy()
	case "ENV":
		return s.checkEnv()
	case "WORKDIR":
		if len(s.Args) != 1 || s.Args[0] == "" || strings.ContainsAny(s.Args[0], "\r\n") {
			return "args", "WORKDIR has one argument, a path without line breaks"
		}
	case "USER":
		if len(s.Args) != 1 || !userForm.MatchString(s.Args[0]) {
			return "args", "USER has one argument, the name of a user"
		}
	default:
		return "type", fmt.Sprintf("there is no step %.40q; steps are RUN, COPY, ENV, WORKDIR and USER", s.Type)
	}
	return "", ""
}

func (s Step) checkRun() (field, why string) {
	switch {
	case len(s.Args) < 1 || len(s.Args) > 2 || s.Args[0] == "":
		return "args", "RUN has a command, and after it the user who runs it or nothing"
	case s.arg(1) != "" && !userForm.MatchString(s.arg(1)):
		return "args[1]", "it must be the name of a user"
	}
	return "", ""
}

func (s Step) checkCopy() (field, why string) {
	switch {
	case len(s.Args) < 2 || len(s.Args) > 4 || s.Args[0] == "" || s.Args[1] == "":
		return "args", "COPY has a source and a destination, and after them the owner and the mode or nothing"
	case strings.ContainsAny(s.Args[1], "\r\n"):
		return "args[1]", "the destination must have no line breaks"
	case s.arg(2) != "" && !userForm.MatchString(s.arg(2)):
		return "args[2]", "it must be the name of a user"
	case s.arg(3) != "" && !modeForm.MatchString(s.arg(3)):
		return "args[3]", "it must be a mode in octal, such as 0755"
	case !hashForm.MatchString(s.FilesHash):
		return "filesHash", "it must be a SHA-256 in lower-case hexadecimal digits"
	}
	return "", ""
}

func (s Step) checkEnv() (field, why string) {
	if len(s.Args) == 0 || len(s.Args)%2 != 0 {
		return "args", "ENV has names and values in turns"
	}
	for i := 0; i < len(s.Args); i += 2 {
		if !variables.MatchString(s.Args[i]) {
			return fmt.Sprintf("args[%d]", i), "it must be the name of a variable"
		}
		if strings.ContainsAny(s.Args[i+1], "\r\n") {
			return fmt.Sprintf("args[%d]", i+1), "a value must have no line breaks; write it to a file with a RUN step"
		}
	}
	return "", ""
}

// arg returns an argument, or "" if it is not there.
func (s Step) arg(i int) string {
	if i < len(s.Args) {
		return s.Args[i]
	}
	return ""
}
