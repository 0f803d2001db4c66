package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/proto"

	"github.com/docker/go-units"
	"github.com/rivo/uniseg"
)

// printable replaces what could steer a terminal: control characters, and those that turn text around.
// Names, labels and messages may be chosen in a container or by another user. Bytes that are no
// UTF-8 are replaced too: some terminals read them as C1 controls.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// short cuts s at n characters.
// It counts characters and not bytes, and the ellipsis is one of the n.
func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// gap is the least space between two columns.
const gap = 3

// table prints rows under a head. Cells may hold anything. Their widths are those on a screen: names have characters
// that take two columns, or none.
func (a *app) table(head []string, rows [][]string) error {
	rows = append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for i, row := range rows {
		cells := make([]string, len(row))
		for j, c := range row {
			cells[j] = printable(c)
			widths[j] = max(widths[j], uniseg.StringWidth(cells[j]))
		}
		rows[i] = cells
	}
	w := bufio.NewWriter(a.stdout)
	for _, row := range rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(c + strings.Repeat(" ", widths[i]-uniseg.StringWidth(c)+gap))
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	return w.Flush()
}

// listed prints a list in the form that was asked for: as JSON, its first column alone, or as a table.
func (a *app) listed(list any, head []string, rows [][]string) error {
	switch {
	case a.json:
		return a.printJSON(list)
	case !a.quiet:
		return a.table(head, rows)
	}
	for _, row := range rows {
		if err := a.ids(row[0]); err != nil {
			return err
		}
	}
	return nil
}

// printJSON prints v, indented.
func (a *app) printJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, escapeControls(string(data))+"\n")
	return err
}

// escapeControls writes DEL, the C1 controls and marks that turn text around, which JSON leaves as they are, as
// escapes.
func escapeControls(s string) string {
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

// ids prints one per line.
// Nothing else is printed on standard output then, so that $(…) has just the ID.
func (a *app) ids(list ...string) error {
	for _, id := range list {
		if _, err := fmt.Fprintln(a.stdout, printable(id)); err != nil {
			return err
		}
	}
	return nil
}

// ago is how long t is past. Clocks may differ, so a time that is still to come counts as now.
func ago(t time.Time) string { return units.HumanDuration(max(0, time.Since(t))) + " ago" }

// left is how much time there is until t.
func left(t time.Time) string {
	d := time.Until(t)
	if d <= 0 {
		return "over"
	}
	return units.HumanDuration(d)
}

// size is a number of bytes for people, with 1000 to the step.
func size(n int64) string { return units.HumanSizeWithPrecision(float64(n), 3) }

// labelText writes labels as key=value, sorted.
func labelText(labels map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, ",")
}

// commandText is an exec's command on one line.
func commandText(e proto.Exec) string {
	if e.Command != "" {
		return strings.Join(strings.Fields(e.Command), " ")
	}
	return quote(e.Argv)
}

// quote writes arguments so that a shell reads them back as they are.
func quote(args []string) string {
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

// parseSize reads "512m" or "5g" as bytes, with 1024 to the step, as docker does.
// An empty text is 0, the daemon's default. A 0 that was typed is refused: it would mean the
// default as well, which is not what it says.
func parseSize(flag, text string) (int64, error) {
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

// parseSeconds reads a duration flag; the API counts in seconds.
func parseSeconds(flag string, d time.Duration) (int64, error) {
	if d != 0 && d < time.Second {
		return 0, proto.Errorf(proto.InvalidArgument, "", flag, "--%s %v is too short; write it as 90s, 5m or 24h",
			flag, d)
	}
	return int64(d / time.Second), nil
}
