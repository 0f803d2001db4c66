package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"berth/cli/app"
)

// manualCommand is `berth manual`, which packages call when they are made.
func manualCommand() *cobra.Command {
	return &cobra.Command{
		Use: "manual DIRECTORY", Short: "Write the man pages of all commands", Hidden: true, Args: app.ArgCount(1, 1),
		Long: "Write the man pages of all commands into DIRECTORY/man1, and that of the configuration file into " +
			"DIRECTORY/man5. " +
			"SOURCE_DATE_EPOCH sets their date.",
		RunE: func(cmd *cobra.Command, args []string) error {
			pages := filepath.Join(args[0], "man1")
			for _, dir := range []string{pages, filepath.Join(args[0], "man5")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{Source: "berth", Manual: "berth"}, pages); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(args[0], "man5", "berth.toml.5"), []byte(configPage()), 0o644)
		},
	}
}

// configPage returns the man page of the configuration file: the example, which has every key with its help.
func configPage() string {
	var page strings.Builder
	page.WriteString(".TH BERTH.TOML 5 \"\" berth berth\n.SH NAME\nberth.toml \\- configuration of the berth daemon\n" +
		".SH SYNOPSIS\n/etc/berth/berth.toml\n.SH DESCRIPTION\n" +
		"This is what \\fBberth config example\\fP prints.\n.nf\n")
	for line := range strings.Lines(configExample()) {
		page.WriteString(`\&` + strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line))
	}
	page.WriteString(".fi\n.SH SEE ALSO\n\\fBberth-serve\\fP(1), \\fBberth-config\\fP(1)\n")
	return page.String()
}
