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

// AuditCommand is `berth audit`.
func AuditCommand(a *app.App) *cobra.Command {
	cmd := app.NewGroup(&cobra.Command{Use: "audit", Short: "The log of who did what to which container",
		Long: `The log of who did what to which container.

Each entry holds the hash of the one before, so that cut, changed, moved and added entries are found. The daemon's ledger knows the
newest one. Who notes what 'berth audit head' prints somewhere else can tell later even if both were rewritten.`},
		auditTailCommand(a), auditExportCommand(a), auditHeadCommand(a), auditVerifyCommand(a))
	cmd.PersistentFlags().StringVar(&a.Dir, "data", a.Dir, "data directory: 'verify' reads the log there; the "+
		"others find the daemon's address, API key and certificate there")
	return cmd
}

// auditFlags choose entries.
// Both times are kept as text until read, which names the flag in its errors.
type auditFlags struct {
	filter       client.AuditFilter
	since, until string
}

func (f *auditFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.filter.Container, "container", "", "only what was done to this container; one that is gone by "+
		"its whole ID")
	fs.StringVar(&f.filter.Actor, "actor", "", "only what this API key (its ID), or a part of the daemon, did")
	fs.StringVar(&f.filter.Owner, "owner", "", "only what concerns this owner")
	fs.StringVar(&f.filter.Act, "act", "", "only this act, such as exec.end; \"exec.\" is all that begin so")
	fs.StringVar(&f.since, "since", "",
		"only from then on: a time such as 2006-01-02T15:04:05Z, or how long ago, such as 2h")
	fs.StringVar(&f.until, "until", "", "only before then")
}

// read reads the times.
func (f *auditFlags) read() (err error) {
	if f.filter.Since, err = parseMoment("since", f.since); err == nil {
		f.filter.Until, err = parseMoment("until", f.until)
	}
	return err
}

// auditFilter reads the flags. A container is looked for as everywhere: the log knows IDs alone, and nothing that was
// done to a name.
func auditFilter(ctx context.Context, a *app.App, c *client.Client, f *auditFlags) error {
	if err := f.read(); err != nil || f.filter.Container == "" {
		return err
	}
	id, err := a.FindContainer(ctx, c, f.filter.Container)
	f.filter.Container = id
	return err
}

// auditFollow prints what is added to the log, and goes on where it was when a daemon that went away is back.
func auditFollow(ctx context.Context, a *app.App, c *client.Client, f client.AuditFilter) error {
	at, full := "", error(nil) // what cannot be printed must not look like a daemon that went away
	err := a.RetryWhileDown(ctx, func() (on bool, err error) {
		was := at
		at, err = c.FollowAudit(ctx, f, at, func(line []byte) error {
			full = printEntry(a, line)
			return full
		})
		if full != nil {
			return false, nil
		}
		return at != was, err
	})
	if full != nil {
		return full
	}
	return err
}

// parseMoment reads a time, or how long ago it was.
// Both forms are needed: a time from a report, and "the last two hours" of somebody in a hurry.
func parseMoment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	// A negative duration would be a time to come, in which there are no entries; it is refused
	// with the rest.
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, proto.Errorf(proto.InvalidArgument, "", flag, "--%s %q is no time; write it as "+
			"2006-01-02T15:04:05Z, or as 2h for two hours ago", flag, text)
	}
	return t, nil
}

// auditTailCommand is `berth audit tail`. It shows 20 entries unless told otherwise: a log of
// months would run through the terminal for minutes.
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
			if err := auditFilter(ctx, a, c, &f); err != nil {
				return err
			}
			if follow {
				return auditFollow(ctx, a, c, f.filter)
			}
			// Entries are printed as they come, and none are kept: the log may be larger than
			// memory.
			return c.Audit(ctx, f.filter, func(line []byte) error { return printEntry(a, line) })
		}),
	}
	f.register(cmd)
	cmd.Flags().IntVarP(&f.filter.Last, "lines", "n", 20, "how many; 0 is all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is added")
	return a.AddJSONFlag(cmd)
}

// auditExportCommand is `berth audit export`. The lines stay as they are, since a line that was
// written anew would no longer fit its hash.
func auditExportCommand(a *app.App) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "export [flags]", Short: "Print entries as JSON lines, byte for byte as they are in the log",
		Args:    app.ArgCount(0, 0),
		Example: "  berth audit export --since 24h >yesterday.jsonl",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := auditFilter(ctx, a, c, &f); err != nil {
				return err
			}
			return c.Audit(ctx, f.filter, func(line []byte) error { return printRaw(a, line) })
		}),
	}
	f.register(cmd)
	return cmd
}

// printRaw prints a line as it is. It is ASCII without control characters, unless somebody wrote it who was not the
// daemon.
func printRaw(a *app.App, line []byte) error {
	// A line that printable changes is no entry of the daemon's, and its hash is wrong anyway.
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
	// Fixed widths for what nearly every entry has, so that columns line up although lines come
	// one by one. Empty words are left out below.
	words := []string{e.Time.Format(time.RFC3339), fmt.Sprintf("%-17s", e.Act), fmt.Sprintf("%-4s", e.Outcome), e.Actor,
		e.ContainerID, e.ExecID, e.Item, auditDetail(e)}
	_, err := fmt.Fprintln(a.Stdout, term.Printable(strings.Join(strings.FieldsFunc(strings.Join(words, "\x00"),
		func(r rune) bool { return r == 0 }), "  ")))
	return err
}

// auditDetail is what is left to say of an entry.
func auditDetail(e proto.AuditEntry) string {
	if e.Egress != nil {
		return egressDetail(*e.Egress, e.Note)
	}
	if e.Exec == nil {
		return e.Note
	}
	// The whole command is in --json; here an entry is one line.
	command := term.Short(strings.Join(strings.Fields(e.Exec.Command), " "), 120)
	// It has only begun: how it ended is in an entry of its own.
	if e.Exec.Reason == "" {
		return command
	}
	return fmt.Sprintf("%s %d after %.1fs  %s", e.Exec.Reason, e.Exec.ReturnCode, e.Exec.Seconds, command)
}

// egressDetail is where a request went, and what came of it.
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

// auditHeadCommand is `berth audit head`. Its line is worth something only where whoever can
// change the log cannot change it.
func auditHeadCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "head", Short: "Print number and hash of the newest entry, to note elsewhere", Args: app.ArgCount(0, 0),
		Long: "Print number and hash of the newest entry. Note the line somewhere else; `berth audit verify --head` takes it.",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
			head, err := c.AuditHead(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(head)
			}
			return a.PrintIDs(fmt.Sprintf("%d:%s", head.Seq, head.Hash))
		}),
	}
	return a.AddJSONFlag(cmd)
}

// auditReport is what `berth audit verify --json` prints.
type auditReport struct {
	audit.Report
	Against []string `json:"against"` // what it was compared with, beside itself
}

// auditVerifyCommand is `berth audit verify`. It does not ask the daemon for the log: a daemon
// that was tampered with would say that all is well.
func auditVerifyCommand(a *app.App) *cobra.Command {
	var heads []string
	cmd := &cobra.Command{
		Use: "verify [flags]", Short: "Check the whole log in a data directory", Args: app.ArgCount(0, 0),
		Long: `Check the whole log in a data directory, which needs no daemon, and the rights to read it.

Every entry is checked, that each follows on the one before, and that the log reaches as far as the ledger knows; beside a daemon that runs, as
far as the daemon says. The first entry that is not right is named, and the exit status is 1.`,
		Example: "  sudo berth audit verify\n  sudo berth audit verify --data /srv/berth --head 4711:9f86d081884c7d65…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return auditVerify(cmd.Context(), a, heads)
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil,
		"head that was noted: NUMBER:HASH, or the hash alone (may be repeated)")
	return a.AddJSONFlag(cmd)
}

// auditVerify compares the log with itself, with the ledger or the daemon, and with every head
// that somebody noted. Each of them finds what the one before cannot.
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
	// A log that is wrong is in the report; the error means that it could not be read.
	r, err := audit.Verify(a.Dir, known...)
	if err != nil {
		return fmt.Errorf("the log cannot be read: %w", err)
	}
	if a.JSON {
		err = a.PrintJSON(auditReport{r, term.NotNil(against)})
	} else {
		err = printReport(a, r, against)
	}
	// A status of its own, apart from that of a check which did not take place.
	if err == nil && r.Bad != nil {
		err = app.ExitError{Status: app.StatusBroken}
	}
	return err
}

// knownHeads is how far the ledger knows the log to reach, or the daemon that has it open.
// What cannot be compared is said on standard error, so that nobody takes a check that knew less
// for a full one.
func knownHeads(ctx context.Context, a *app.App) (known []audit.Head, against []string, err error) {
	anchor, ok, err := audit.PeekAnchor(filepath.Join(a.Dir, "ledger.db"))
	switch {
	// The ledger can be open once only, and a daemon that runs has it. What it says is then the
	// best there is.
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
		// Said and not failed: a log that was copied elsewhere can be checked too, but not for a
		// missing end.
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

// parseHead reads what `berth audit head` printed.
func parseHead(text string) (audit.Head, error) {
	h := audit.Head{Hash: text, Origin: "the head that was noted"}
	number, hash, ok := strings.Cut(text, ":")
	if ok {
		h.Hash = hash
		// What is no number becomes 0, which is refused below: entries count from 1.
		h.Seq, _ = strconv.ParseInt(number, 10, 64)
	}
	// It may have been noted by hand.
	h.Hash = strings.ToLower(h.Hash)
	if len(h.Hash) != 64 || strings.Trim(h.Hash, "0123456789abcdef") != "" || ok && h.Seq < 1 {
		return h, proto.Errorf(proto.InvalidArgument, "", "head", "--head %q is no head; `berth audit head` prints "+
			"one as NUMBER:HASH", text)
	}
	return h, nil
}

// printReport says it in words.
// Messages are cleaned: they may repeat bytes of a log that somebody wrote into.
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
