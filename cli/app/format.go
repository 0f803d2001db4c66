package app

import (
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/term"
)

// AddFormatFlags adds the flags that say how a command prints values: --json, --output and --format. They are no flags
// of the root command, so that commands that print no values refuse them. A command that has an --output of its own,
// for a file, keeps it.
func (a *App) AddFormatFlags(cmd *cobra.Command) *cobra.Command {
	fs := cmd.Flags()
	fs.BoolVar(&a.JSON, "json", false, "print JSON")
	fs.Func("format", "print each value by this `TEMPLATE`, such as '{{.id}}'; fields as in --json", a.SetTemplate)
	if fs.Lookup("output") == nil {
		fs.FuncP("output", "o", "print in this `FORMAT`: "+strings.Join(term.Formats, ", "), a.SetFormat)
		CompleteFlag(cmd, "output", term.Formats...)
		cmd.MarkFlagsMutuallyExclusive("json", "output", "format")
	} else {
		cmd.MarkFlagsMutuallyExclusive("json", "format")
	}
	return cmd
}

// AddListFlags adds the flags of a command that lists items: those of AddFormatFlags, --filter and --wide.
func (a *App) AddListFlags(cmd *cobra.Command) *cobra.Command {
	fs := cmd.Flags()
	fs.Func("filter", "only items with this field, `FIELD=PATTERN` or FIELD!=PATTERN; fields as in --json "+
		"(may be repeated)", a.Filters.Add)
	fs.BoolVar(&a.Wide, "wide", false, "print all columns, with whole IDs and texts")
	return a.AddFormatFlags(cmd)
}
