package recipe

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// A wheel is one Python package, in one version, in the files that its hashes allow.
type Wheel struct {
	Name   string
	pin    string   // NAME==VERSION
	Hashes []string // SHA-256, hexadecimal; one for each architecture
	only   string   // the only architecture, in uname's words, that has it; empty: all
}

// requirement matches a line of wheels.txt after joining continuations.
var requirement = regexp.MustCompile(
	`^(([a-z0-9][a-z0-9.-]*)==[a-zA-Z0-9.+!]+)(?: ; platform_machine == "([a-z0-9_]+)")?((?: --hash=sha256:[0-9a-f]{64})+)$`)

// ParseWheels reads wheels.txt, a strict subset of pip's requirement files.
func ParseWheels(text string) ([]Wheel, error) {
	var list []Wheel
	for _, line := range lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.Join(strings.Fields(line), " ")
		m := requirement.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not NAME==VERSION with hashes", WheelsFile, cut(line, 60))
		}
		w := Wheel{Name: m[2], pin: m[1], only: m[3]}
		for _, hash := range strings.Fields(m[4]) {
			w.Hashes = append(w.Hashes, strings.TrimPrefix(hash, "--hash=sha256:"))
		}
		if slices.ContainsFunc(list, func(o Wheel) bool { return o.Name == w.Name }) {
			return nil, fmt.Errorf("%s: %s is listed twice", WheelsFile, w.Name)
		}
		list = append(list, w)
	}
	return list, nil
}

// cut shortens s for messages.
func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// Machine is this architecture in the words of wheels and uname.
func Machine() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// Line returns the wheel in pip's form.
func (w Wheel) Line() string {
	only := ""
	if w.only != "" {
		only = fmt.Sprintf(" ; platform_machine == %q", w.only)
	}
	return w.pin + only + " --hash=sha256:" + strings.Join(w.Hashes, " --hash=sha256:") + "\n"
}

// ForHost returns the wheels of the list for this architecture.
func ForHost(list []Wheel) []Wheel {
	return slices.DeleteFunc(slices.Clone(list), func(w Wheel) bool { return w.only != "" && w.only != Machine() })
}
