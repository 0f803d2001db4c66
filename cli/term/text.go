package term

import (
	"bufio"
	"encoding/json"
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
	"github.com/rivo/uniseg"
)

// An Output is where a command prints, and in which form.
type Output struct {
	Stdout, Stderr io.Writer
	JSON           bool // print JSON
	Quiet          bool // print IDs only, and no progress
}

// Printable replaces what could steer a terminal: control characters, and those that turn text around.
// Names, labels and messages may be chosen in a container or by another user. Bytes that are no
// UTF-8 are replaced too: some terminals read them as C1 controls.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Short cuts s at n characters.
// It counts characters and not bytes, and the ellipsis is one of the n.
func Short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// gap is the least space between two columns.
const gap = 3

// Table prints rows under a head. Cells may hold anything. Their widths are those on a screen: names have characters
// that take two columns, or none.
func (o *Output) Table(head []string, rows [][]string) error {
	rows = append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for i, row := range rows {
		cells := make([]string, len(row))
		for j, c := range row {
			cells[j] = Printable(c)
			widths[j] = max(widths[j], uniseg.StringWidth(cells[j]))
		}
		rows[i] = cells
	}
	w := bufio.NewWriter(o.Stdout)
	for _, row := range rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(c + strings.Repeat(" ", widths[i]-uniseg.StringWidth(c)+gap))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	return w.Flush()
}

// PrintList prints a list in the form that was asked for: as JSON, its first column alone, or as a table.
func (o *Output) PrintList(list any, head []string, rows [][]string) error {
	switch {
	case o.JSON:
		return o.PrintJSON(list)
	case !o.Quiet:
		return o.Table(head, rows)
	}
	for _, row := range rows {
		if err := o.PrintIDs(row[0]); err != nil {
			return err
		}
	}
	return nil
}

// PrintJSON prints v, indented.
func (o *Output) PrintJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(o.Stdout, EscapeControls(string(data))+"\n")
	return err
}

// EscapeControls writes DEL, the C1 controls and marks that turn text around, which JSON leaves as they are, as
// escapes.
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

// PrintIDs prints one per line.
// Nothing else is printed on standard output then, so that $(…) has just the ID.
func (o *Output) PrintIDs(list ...string) error {
	for _, id := range list {
		if _, err := fmt.Fprintln(o.Stdout, Printable(id)); err != nil {
			return err
		}
	}
	return nil
}

// Ago is how long t is past. Clocks may differ, so a time that is still to come counts as now.
func Ago(t time.Time) string { return units.HumanDuration(max(0, time.Since(t))) + " ago" }

// Left is how much time there is until t.
func Left(t time.Time) string {
	d := time.Until(t)
	if d <= 0 {
		return "over"
	}
	return units.HumanDuration(d)
}

// Size is a number of bytes for people, with 1000 to the step.
func Size(n int64) string { return units.HumanSizeWithPrecision(float64(n), 3) }

// LabelText writes labels as key=value, sorted.
func LabelText(labels map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, ",")
}

// CommandText is an exec's command on one line.
func CommandText(e proto.Exec) string {
	if e.Command != "" {
		return strings.Join(strings.Fields(e.Command), " ")
	}
	return Quote(e.Argv)
}

// Quote writes arguments so that a shell reads them back as they are.
func Quote(args []string) string {
	list := make([]string, len(args))
	for i, arg := range args {
		if list[i] = arg; arg == "" || strings.ContainsFunc(arg, special) {
			list[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}

// special reports whether a shell may see more in r than the character.
// It says yes to more than a shell does: quotes too many harm nobody.
func special(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=@%+,", r)
}

// ParseSize reads "512m" or "5g" as bytes, with 1024 to the step, as docker does.
// An empty text is 0, the daemon's default. A 0 that was typed is refused: it would mean the
// default as well, which is not what it says.
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

// ParseSeconds reads a duration flag; the API counts in seconds.
func ParseSeconds(flag string, d time.Duration) (int64, error) {
	if d != 0 && d < time.Second {
		return 0, proto.Errorf(proto.InvalidArgument, "", flag, "--%s %v is too short; write it as 90s, 5m or 24h",
			flag, d)
	}
	return int64(d / time.Second), nil
}

// OneLine makes text of several lines one.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// PrintableLines is printable for a text of several lines.
// Each line is cleaned by itself, for printable takes line feeds for control characters.
func PrintableLines(s string) string {
	parts := strings.Split(strings.ReplaceAll(strings.TrimSpace(s), "\t", "  "), "\n")
	for i, p := range parts {
		parts[i] = Printable(p)
	}
	return strings.Join(parts, "\n")
}

// NotNil is list, or an empty one, which JSON writes as [].
func NotNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// EndText is an exec's state for people: "running", "exit 1", "timeout".
// The reasons are the API's words, which its documentation explains.
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
