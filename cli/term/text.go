package term

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"berth/proto"

	"github.com/docker/go-units"
)

// An Output says where a command prints and in which format.
type Output struct {
	Stdout, Stderr io.Writer
	JSON           bool   // print values, as Format says, and nothing for people
	Format         Format // how values are printed with JSON
	Quiet          bool   // print IDs only, and no progress
	Names          bool   // print IDs only
	Wide           bool   // print all columns of tables, and whole texts in them
	Filters        Filters
}

// Printable replaces characters that could control a terminal: control characters and those that change the direction
// of text. Names, labels and messages may come from a container or another user. It also replaces invalid UTF-8,
// because some terminals read such bytes as C1 controls.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Short cuts s to n characters, including the ellipsis.
func Short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// PrintResult prints what a request returned: as JSON, or only its ID. It returns err if the request failed.
func (o *Output) PrintResult(result any, id string, err error) error {
	switch {
	case err != nil:
		return err
	case o.JSON:
		return o.PrintJSON(result)
	}
	return o.PrintIDs(id)
}

// PrintDetails prints what a request returned as JSON. It returns err if the request failed.
func (o *Output) PrintDetails(result any, err error) error {
	if err != nil {
		return err
	}
	return o.PrintJSON(result)
}

// EscapeControls escapes DEL, the C1 controls and characters that change the direction of text. JSON leaves them
// unescaped.
func EscapeControls(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 0x7f && r <= 0x9f || unicode.Is(unicode.Bidi_Control, r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// PrintIDs prints one ID per line. Nothing else is printed on standard output then, so $(…) yields just the ID.
func (o *Output) PrintIDs(list ...string) error {
	for _, id := range list {
		if _, err := fmt.Fprintln(o.Stdout, Printable(id)); err != nil {
			return err
		}
	}
	return nil
}

// Ago returns the time since t. A future time counts as now, because clocks may differ.
func Ago(t time.Time) string { return units.HumanDuration(max(0, time.Since(t))) + " ago" }

// Left returns the time until t.
func Left(t time.Time) string {
	d := time.Until(t)
	if d <= 0 {
		return "over"
	}
	return units.HumanDuration(d)
}

// Brief formats a duration in few characters, in the largest unit of which there are two or more: 45s, 90m, 30h, 29d.
// One that is over is "now".
func Brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < 2*time.Minute:
		return strconv.FormatInt(int64(d.Seconds()), 10) + "s"
	case d < 2*time.Hour:
		return strconv.FormatInt(int64(d.Minutes()), 10) + "m"
	case d < 48*time.Hour:
		return strconv.FormatInt(int64(d.Hours()), 10) + "h"
	}
	return strconv.FormatInt(int64(d.Hours()/24), 10) + "d"
}

// Took formats how long something took: in milliseconds where it took less than a second, and in hundredths of a
// second below ten. Longer times are as those of Ago.
func Took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	}
	return units.HumanDuration(d)
}

// Size formats a number of bytes for people, in units of 1000.
func Size(n int64) string { return units.HumanSizeWithPrecision(float64(n), 3) }

// LabelText formats labels as key=value, sorted.
func LabelText(labels map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, ",")
}

// CommandText returns an exec's command on one line.
func CommandText(e proto.Exec) string {
	if e.Command != "" {
		return strings.Join(strings.Fields(e.Command), " ")
	}
	return Quote(e.Argv)
}

// Quote quotes arguments for a shell.
func Quote(args []string) string {
	list := make([]string, len(args))
	for i, arg := range args {
		if list[i] = arg; arg == "" || strings.ContainsFunc(arg, special) {
			list[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// special reports whether r may have a meaning for a shell. It returns true for some harmless characters too, because
// unneeded quotes do no harm.
func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=@%+,", r)
}

// ParseSize parses "512m" or "5g" into bytes, in units of 1024 as docker does. An empty text is 0, the daemon's
// default. It refuses an explicit 0, which would also mean the default.
func ParseSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := units.RAMInBytes(text)
	if err != nil || n <= 0 {
		return 0, proto.Errorf(proto.InvalidArgument, "", flag, "--%s %q is no size; write it as 512m or 5g", flag,
			text)
	}
	return n, nil
}

// ParseSeconds parses a duration flag into seconds, the unit of the API.
func ParseSeconds(flag string, d time.Duration) (int64, error) {
	if d != 0 && d < time.Second {
		return 0, proto.Errorf(proto.InvalidArgument, "", flag, "--%s %v is too short; write it as 90s, 5m or 24h",
			flag, d)
	}
	return int64(d / time.Second), nil
}

// OneLine joins the lines of a text into one.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// PrintableLines is Printable for a text of several lines. It handles each line separately, because Printable
// replaces line feeds.
func PrintableLines(s string) string {
	parts := strings.Split(strings.ReplaceAll(strings.TrimSpace(s), "\t", "  "), "\n")
	for i, p := range parts {
		parts[i] = Printable(p)
	}
	return strings.Join(parts, "\n")
}

// NotNil returns list, or an empty list instead of nil, so that JSON has [].
func NotNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// EndText returns an exec's state for people: "running", "exit 1", "timeout". The reasons are the API's names, which
// its documentation explains.
func EndText(e proto.Exec) string {
	switch {
	case e.End == nil:
		return string(e.State)
	case e.End.Reason == proto.EndExit:
		return "exit " + strconv.Itoa(e.End.ReturnCode)
	case e.End.Reason == proto.EndSignal:
		return e.End.Signal
	}
	return string(e.End.Reason)
}
