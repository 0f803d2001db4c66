package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
	"berth/state/audit"
	"berth/state/ledger"
)

// AuditCommand returns `berth audit`.
func AuditCommand(a *app.App) *cobra.Command {
	cmd := app.NewGroup(&cobra.Command{Use: "audit", Short: "The log of who did what to which container",
		Long: `The log of who did what to which container.

Each entry has the hash of the entry before it. That shows if entries were removed, changed, moved or added. The
daemon's ledger has the number and hash of the newest entry. Note the output of 'berth audit head' on another machine:
it shows later whether both the log and the ledger were rewritten.`},
		auditTailCommand(a), auditExportCommand(a), auditHeadCommand(a), auditVerifyCommand(a))
	cmd.PersistentFlags().StringVar(&a.Dir, "data", a.Dir, "data directory: 'verify' reads the log there; the "+
		"others find the daemon's address, API key and certificate there")
	return cmd
}

// auditFlags select entries. Both times stay text until parse, which names the flag in its errors.
type auditFlags struct {
	filter       client.AuditFilter
	since, until string
}

func (f *auditFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.filter.Container, "container", "",
		"only actions on this container; a deleted one needs its whole ID")
	fs.StringVar(&f.filter.Actor, "actor", "", "only actions of this API key (its ID) or part of the daemon")
	fs.StringVar(&f.filter.Owner, "owner", "", "only actions that concern this owner")
	fs.StringVar(&f.filter.Act, "act", "", "only this action, such as exec.end; \"exec.\" means all that begin with it")
	fs.StringVar(&f.since, "since", "",
		"only from this time on: a time such as 2006-01-02T15:04:05Z, or how long ago, such as 2h")
	fs.StringVar(&f.until, "until", "", "only before this time")
}

// parse parses the times and resolves the container's name. The log contains only IDs.
func (f *auditFlags) parse(ctx context.Context, a *app.App, c *client.Client) (err error) {
	if f.filter.Since, err = app.ParseMoment("since", f.since); err == nil {
		f.filter.Until, err = app.ParseMoment("until", f.until)
	}
	if err == nil && f.filter.Container != "" {
		f.filter.Container, err = a.FindContainer(ctx, c, f.filter.Container)
	}
	return err
}

// auditFollow prints new entries of the log. After a restart of the daemon it continues where it stopped.
func auditFollow(ctx context.Context, a *app.App, c *client.Client, f client.AuditFilter) error {
	at := ""
	return a.Follow(ctx, func(printed func(error) error) (on bool, err error) {
		was := at
		at, err = c.FollowAudit(ctx, f, at, func(line []byte) error { return printed(printEntry(a, line)) })
		return at != was, err
	})
}

// auditTailCommand returns `berth audit tail`. It shows 20 entries by default, since a log of months would scroll for
// minutes.
func auditTailCommand(a *app.App) *cobra.Command {
	var f auditFlags
	var follow bool
	cmd := &cobra.Command{
		Use: "tail [flags]", Short: "Show the newest entries", Args: app.ArgCount(0, 0),
		Example: "  berth audit tail -n 50 --act exec.\n  berth audit tail --follow --container CONTAINER",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			if f.filter.Last < 0 {
				return proto.Errorf(proto.InvalidArgument, "", "lines", "--lines must not be negative, and is %d; "+
					"0 shows all entries", f.filter.Last)
			}
			if err := f.parse(ctx, a, c); err != nil {
				return err
			}
			if follow {
				return auditFollow(ctx, a, c, f.filter)
			}
			// Entries are printed as they arrive and not kept: the log may be larger than memory.
			return c.Audit(ctx, f.filter, func(line []byte) error { return printEntry(a, line) })
		}),
	}
	f.register(cmd)
	cmd.Flags().IntVarP(&f.filter.Last, "lines", "n", 20, "number of entries; 0 means all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new entries")
	return a.AddFormatFlags(cmd)
}

// auditExportCommand returns `berth audit export`. It prints the lines unchanged, because a re-encoded line would not
// match its hash.
func auditExportCommand(a *app.App) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Print entries as JSON lines, byte for byte as they are in the log",
		Args:    app.ArgCount(0, 0),
		Example: "  berth audit export --since 24h >yesterday.jsonl",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := f.parse(ctx, a, c); err != nil {
				return err
			}
			return c.Audit(ctx, f.filter, func(line []byte) error { return printRaw(a, line) })
		}),
	}
	f.register(cmd)
	return cmd
}

// printRaw prints a line unchanged. Lines of the daemon are ASCII without control characters. A line with others was
// written by another program.
func printRaw(a *app.App, line []byte) error {
	// If Printable changes a line, the daemon did not write it, and its hash is wrong anyway.
	_, err := fmt.Fprintln(a.Stdout, term.Printable(string(line)))
	return err
}

// printEntry prints one entry on a line.
func printEntry(a *app.App, line []byte) error {
	if a.JSON {
		return printRaw(a, line)
	}
	var e proto.AuditEntry
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("the daemon sent a line that is no entry: %w", err)
	}
	// Fields that nearly every entry has get a fixed width, so that columns line up although lines come one by one.
	// Empty fields are dropped below.
	words := []string{e.Time.Format(time.RFC3339), fmt.Sprintf("%-17s", e.Act), fmt.Sprintf("%-4s", e.Outcome), e.Actor,
		e.ContainerID, e.ExecID, e.Item, auditDetail(e)}
	_, err := fmt.Fprintln(a.Stdout, term.Printable(strings.Join(strings.FieldsFunc(strings.Join(words, "\x00"),
		func(r rune) bool { return r == 0 }), "  ")))
	return err
}

// auditDetail returns the remaining details of an entry.
func auditDetail(e proto.AuditEntry) string {
	if e.Egress != nil {
		return egressDetail(*e.Egress, e.Note)
	}
	if e.Exec == nil {
		return e.Note
	}
	// --json has the whole command; here an entry is one line.
	command := term.Short(strings.Join(strings.Fields(e.Exec.Command), " "), 120)
	// A start entry. The end has an entry of its own.
	if e.Exec.Reason == "" {
		return command
	}
	return fmt.Sprintf("%s %d after %.1fs  %s", e.Exec.Reason, e.Exec.ReturnCode, e.Exec.Seconds, command)
}

// egressDetail returns the destination of a request and its result.
func egressDetail(x proto.AuditEgress, note string) string {
	words := []string{x.Method}
	if x.Host != "" {
		words = append(words, fmt.Sprintf("%s port %d", x.Host, x.Port))
	}
	switch {
	case x.Seconds > 0:
		words = append(words, fmt.Sprintf("%s out, %s in, %.1fs", term.Size(x.Sent), term.Size(x.Received), x.Seconds))
	case x.Address != "" && x.Address != x.Host:
		words = append(words, "at "+x.Address)
	}
	return strings.TrimSpace(strings.Join(append(words, note), "  "))
}

// auditHeadCommand returns `berth audit head`. Its line is only useful if it is kept where an attacker on the log
// cannot change it.
func auditHeadCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "head", Short: "Print number and hash of the newest entry, to note elsewhere", Args: app.ArgCount(0, 0),
		Long: "Print number and hash of the newest entry. Note the line somewhere else; " +
			"`berth audit verify --head` takes it.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			head, err := c.AuditHead(ctx)
			return a.PrintResult(head, fmt.Sprintf("%d:%s", head.Seq, head.Hash), err)
		}),
	}
	return a.AddFormatFlags(cmd)
}

// auditReport is the output of `berth audit verify --json`.
type auditReport struct {
	audit.Report
	Against []string `json:"against"` // what the log was compared with, in addition to itself
}

// auditVerifyCommand returns `berth audit verify`. It reads the log's files, because a compromised daemon could send
// a clean log.
func auditVerifyCommand(a *app.App) *cobra.Command {
	var heads []string
	cmd := &cobra.Command{
		Use: "verify [flags]", Short: "Check the whole log in a data directory", Args: app.ArgCount(0, 0),
		Long: `Check the whole log in a data directory. That needs the right to read the directory, but no daemon.

The command checks every entry, and that each follows the entry before it. It also checks that the log has the newest
entry that the ledger knows. If a daemon runs, it asks the daemon for that entry. For a wrong log it prints the first
wrong entry, and the exit status is 1.`,
		Example: "  sudo berth audit verify\n  sudo berth audit verify --data /srv/berth --head 4711:9f86d081884c7d65…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return auditVerify(cmd.Context(), a, heads)
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil,
		"head that was noted: NUMBER:HASH, or the hash alone (may be repeated)")
	return a.AddFormatFlags(cmd)
}

// auditVerify checks the log's hash chain. It then compares the log with the ledger or the daemon, and with each
// noted head. Each step finds changes that the previous one cannot.
func auditVerify(ctx context.Context, a *app.App, noted []string) error {
	known, against, err := knownHeads(ctx, a)
	if err != nil {
		return err
	}
	for _, text := range noted {
		h, err := parseHead(text)
		if err != nil {
			return err
		}
		known, against = append(known, h), append(against, "the head noted as "+text)
	}
	// A wrong log is in the report. An error means that the log could not be read.
	r, err := audit.Verify(a.Dir, known...)
	if err != nil {
		return fmt.Errorf("the log cannot be read: %w", err)
	}
	if a.JSON {
		err = a.PrintJSON(auditReport{r, term.NotNil(against)})
	} else {
		err = printReport(a, r, against)
	}
	// A modified log has its own status, distinct from that of a failed check.
	if err == nil && r.Bad != nil {
		err = app.ExitError{Status: app.StatusBroken}
	}
	return err
}

// knownHeads returns the end of the log according to the ledger, or to the daemon that has the ledger open. It prints
// a missing comparison on standard error, so that an incomplete check is not taken for a full one.
func knownHeads(ctx context.Context, a *app.App) (known []audit.Head, against []string, err error) {
	anchor, ok, err := audit.PeekAnchor(filepath.Join(a.Dir, "ledger.db"))
	switch {
	// Only one process can open the ledger, and a running daemon has it. The daemon's answer is then the best
	// available.
	case errors.Is(err, ledger.ErrInUse):
		c, err := a.NewClient()
		if err != nil {
			return nil, nil, err
		}
		head, err := c.AuditHead(ctx)
		if err != nil {
			fmt.Fprintf(a.Stderr, "berth: a daemon has the ledger open and does not tell how far the log reaches: %s\n",
				term.Printable(err.Error()))
			return nil, nil, nil
		}
		return []audit.Head{{Seq: head.Seq, Hash: head.Hash, Origin: "the daemon"}}, []string{"the running daemon"}, nil
	case errors.Is(err, os.ErrNotExist):
		// A message and no error: a log that was copied elsewhere can be checked, but not for a missing end.
		fmt.Fprintln(a.Stderr, "berth: there is no ledger here to compare the log's end with")
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("the ledger cannot be read: %w", err)
	case !ok:
		fmt.Fprintln(a.Stderr, "berth: the ledger does not know any log")
		return nil, nil, nil
	}
	return []audit.Head{anchor.Head()}, []string{"the ledger"}, nil
}

// parseHead parses the output of `berth audit head`.
func parseHead(text string) (audit.Head, error) {
	h := audit.Head{Hash: text, Origin: "the head that was noted"}
	number, hash, ok := strings.Cut(text, ":")
	if ok {
		h.Hash = hash
		// Text that is no number becomes 0, which is refused below: entries count from 1.
		h.Seq, _ = strconv.ParseInt(number, 10, 64)
	}
	// The hash may have been copied by hand.
	h.Hash = strings.ToLower(h.Hash)
	if len(h.Hash) != 64 || strings.Trim(h.Hash, "0123456789abcdef") != "" || ok && h.Seq < 1 {
		return h, proto.Errorf(proto.InvalidArgument, "", "head", "--head %q is no head; `berth audit head` prints "+
			"one as NUMBER:HASH", text)
	}
	return h, nil
}

// printReport prints a report as text. It removes control characters, because messages may repeat bytes of a modified
// log.
func printReport(a *app.App, r audit.Report, against []string) error {
	if b := r.Bad; b != nil {
		where := ""
		if b.Segment != "" {
			where = fmt.Sprintf(" (%s, line %d)", b.Segment, b.Line)
		}
		_, err := fmt.Fprintf(a.Stdout, "BAD: %s: %s%s\n", b.Kind, term.Printable(b.Message), term.Printable(where))
		return err
	}
	text := fmt.Sprintf("good: %d entries, the last is %d:%s", r.Entries, r.Seq, r.Hash)
	if len(against) > 0 {
		text += "; checked against " + strings.Join(against, " and ")
	}
	if r.Beyond > 0 {
		text += fmt.Sprintf("; %d entries are newer than that", r.Beyond)
	}
	_, err := fmt.Fprintln(a.Stdout, term.Printable(text))
	return err
}
