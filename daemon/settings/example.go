package settings

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// A Group is a part of the example file.
type Group struct {
	Title string
	Keys  []string
}

// exampleColumns is the width of comments in the example. An operator may read it in a narrow window.
const exampleColumns = 88

// Example returns a commented file with every setting: its help, and its default as a comment. note returns a further
// sentence about a setting, or "".
func Example(flags *pflag.FlagSet, groups []Group, head string, note func(key string) string) string {
	var b strings.Builder
	comment(&b, head)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n### %s\n", g.Title)
		for _, key := range g.Keys {
			f := flags.Lookup(key)
			b.WriteByte('\n')
			help := strings.ToUpper(f.Usage[:1]) + f.Usage[1:] + "."
			if why := refused[key]; why != "" {
				comment(&b, key+": "+help+" It cannot stand in this file: "+why+".")
				continue
			}
			if n := note(key); n != "" {
				help += " " + n
			}
			comment(&b, help)
			fmt.Fprintf(&b, "#%s = %s\n", key, Literal(f.Value.Type(), isList(f), exampleValue(f)))
		}
	}
	return b.String()
}

// comment writes a text as lines of comment. Empty lines of the text stay.
func comment(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := "#"
		for word := range strings.FieldsSeq(paragraph) {
			if len(line)+1+len(word) > exampleColumns {
				b.WriteString(line + "\n")
				line = "#"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
}

// inHelp matches the default in a flag's help, where 0 means the default of the part that uses the value.
var inHelp = regexp.MustCompile(`\(default ([0-9][0-9a-zA-Z ]*|runc,gvisor)\)$`)

var binaryUnits = map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30}

// exampleValue returns the true default of a flag, as texts.
func exampleValue(f *pflag.Flag) []string {
	if m := inHelp.FindStringSubmatch(f.Usage); m != nil {
		if isList(f) {
			return strings.Split(m[1], ",")
		}
		number, unit, ok := strings.Cut(m[1], " ")
		if n, err := strconv.ParseInt(number, 10, 64); ok && err == nil && binaryUnits[unit] > 0 {
			return []string{strconv.FormatInt(n*binaryUnits[unit], 10)}
		}
		if checkText(f.Value.Type(), m[1]) == nil {
			return []string{m[1]}
		}
	}
	if isList(f) {
		return nil
	}
	return []string{f.DefValue}
}

// Literal returns a value as TOML has it. kind is the type of its flag.
func Literal(kind string, list bool, texts []string) string {
	if list {
		quoted := make([]string, len(texts))
		for i, t := range texts {
			quoted[i] = quote(t)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	switch kind {
	case "bool", "int", "int64":
		return texts[0]
	case "float64":
		return strings.ToLower(texts[0]) // nan and inf
	}
	return quote(texts[0])
}

// quote writes a basic string of TOML. Its escapes differ from those of Go.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// LiteralOf returns the value of a flag as TOML has it.
func LiteralOf(f *pflag.Flag) string { return Literal(f.Value.Type(), isList(f), Text(f.Value)) }

// DefaultOf returns the true default of a flag as TOML has it. Of a flag whose default is 0, that is what the help
// names.
func DefaultOf(f *pflag.Flag) string { return Literal(f.Value.Type(), isList(f), exampleValue(f)) }
