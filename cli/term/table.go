package term

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/rivo/uniseg"
)

// The space between two columns, that of a table which is too wide for the terminal, and the smallest width to which a
// column is shortened.
const (
	wideGap     = 3
	narrowGap   = 2
	leastColumn = 8
)

// Table prints rows under a head. It removes control characters from cells. Widths are counted in terminal columns,
// since characters may take two columns or none. On a terminal that is too narrow, the widest texts are shortened,
// unless the user asked for wide tables. The first column names the item, so it stays whole.
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
	gap := fit(widths, head, o.columns())
	paint := o.painter(head)
	w := bufio.NewWriter(o.Stdout)
	for n, row := range rows {
		var line strings.Builder
		for i, c := range row {
			c = cut(c, widths[i])
			pad := strings.Repeat(" ", widths[i]-uniseg.StringWidth(c)+gap)
			if n > 0 {
				c = paint(i, c)
			}
			line.WriteString(c + pad)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	return w.Flush()
}

// columns returns the width that a table may take, or 0 for any.
func (o *Output) columns() int {
	f, ok := o.Stdout.(*os.File)
	if !ok || o.Wide {
		return 0
	}
	return Width(f)
}

// fit narrows the widest columns until a table fits into total columns. It leaves the first column, and no column
// becomes narrower than its head. It returns the space between two columns.
func fit(widths []int, head []string, total int) (gap int) {
	taken := wideGap * (len(widths) - 1)
	for _, w := range widths {
		taken += w
	}
	if total == 0 || taken <= total {
		return wideGap
	}
	taken -= (wideGap - narrowGap) * (len(widths) - 1)
	for ; taken > total; taken-- {
		widest := 0
		for i := 1; i < len(widths); i++ {
			if widths[i] > max(leastColumn, uniseg.StringWidth(head[i])) &&
				(widest == 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest == 0 {
			break
		}
		widths[widest]--
	}
	return narrowGap
}

// cut shortens a text to a width in columns, with an ellipsis.
func cut(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	var b strings.Builder
	for g := uniseg.NewGraphemes(s); g.Next(); {
		if uniseg.StringWidth(b.String())+g.Width() > width-1 {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}

// A Columns describes the tables of items of one kind.
type Columns[T any] struct {
	Head []string         // first the ID
	Row  func(T) []string // the row of one item
	// Narrow tables: what they show in place of Head and Row, unless the user asks for wide ones. nil: the same.
	NarrowHead []string
	NarrowRow  func(T) []string
}

// PrintList prints the items of a list that the user's filters keep: as values, as IDs only, or as a table.
func PrintList[T any](o *Output, list []T, columns Columns[T]) error {
	list, err := filtered(o.Filters, list)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.PrintJSON(NotNil(list))
	}
	if o.Quiet || o.Names {
		ids := make([]string, len(list))
		for i, item := range list {
			ids[i] = columns.Row(item)[0]
		}
		return o.PrintIDs(ids...)
	}
	head, row := columns.Head, columns.Row
	if columns.NarrowRow != nil && !o.Wide {
		head, row = columns.NarrowHead, columns.NarrowRow
	}
	rows := make([][]string, len(list))
	for i, item := range list {
		rows[i] = row(item)
	}
	return o.Table(head, rows)
}
