package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// KeyCommand returns `berth key`.
func KeyCommand(a *app.App) *cobra.Command {
	return app.NewGroup(&cobra.Command{Use: "key", Aliases: []string{"keys"},
		Short: "API keys: who may use the daemon, and how much",
		Long: `API keys: who may use the daemon, and how much.

Everything that is created with a key belongs to the key's owner. All keys of this owner can use it; keys of other
owners cannot see it. Only an admin's key can create, change and revoke keys. The daemon creates one at its first
start.`},
		keyCreateCommand(a), keyListCommand(a), keyInspectCommand(a), keySetCommand(a), keyRevokeCommand(a))
}

// quotaFlags are the limits of a key.
type quotaFlags struct {
	sessions, burst int64
	cpu             time.Duration
	storage         string
	rate            float64
}

// register adds the flags to a command.
func (f *quotaFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Int64Var(&f.sessions, "max-containers", 0, "containers at once")
	fs.DurationVar(&f.cpu, "cpu-per-day", 0, "CPU time of its commands from midnight UTC, such as 2h")
	fs.StringVar(&f.storage, "storage", "", "bytes of its stored files, such as 10g")
	fs.Float64Var(&f.rate, "rate", 0, "requests per second, on average")
	fs.Int64Var(&f.burst, "burst", 0, "requests at once after a pause (default: the number for one second)")
}

// change returns the change that the given flags request. A nil pointer is a flag that was not given, which changes
// nothing. 0 removes a limit.
func (f *quotaFlags) change(cmd *cobra.Command) (c proto.QuotaChange, err error) {
	given := cmd.Flags().Changed
	if given("max-containers") {
		c.Sessions = &f.sessions
	}
	if given("cpu-per-day") {
		seconds := f.cpu.Seconds()
		c.CPUSecondsPerDay = &seconds
	}
	if given("storage") {
		n := int64(0)
		if f.storage != "0" { // ParseSize refuses 0; here it removes the limit
			n, err = term.ParseSize("storage", f.storage)
		}
		c.StorageBytes = &n
	}
	if given("rate") {
		c.RequestsPerSecond = &f.rate
	}
	if given("burst") {
		c.Burst = &f.burst
	}
	return c, err
}

// keyCreateCommand returns `berth key create`. Only the secret goes to standard output, so that it can be piped to
// its storage.
func keyCreateCommand(a *app.App) *cobra.Command {
	var req proto.CreateKey
	var quota quotaFlags
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create [flags] [NAME]", Short: "Create an API key and print its secret; it is not shown again",
		Args: app.ArgCount(0, 1),
		Example: `  berth key create --owner team-a laptop > team-a.key
  berth key create --owner team-b --max-containers 20 --cpu-per-day 5h --storage 10g --rate 50 ci
  berth --api-key-file team-a.key run -it bash`,
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := quota.change(cmd)
			if err != nil {
				return err
			}
			// A new key has no limits that a flag could keep.
			req.Quota = change.On(proto.Quota{})
			if len(args) > 0 {
				req.Name = args[0]
			}
			if req.ExpiresInSeconds, err = term.ParseSeconds("expires", expires); err != nil {
				return err
			}
			return a.WithClient(func(ctx context.Context, c *client.Client, _ []string) error {
				k, err := c.CreateKey(ctx, req)
				if err == nil && !a.JSON {
					// People need the ID to revoke the key. It is printed even if the secret is redirected.
					fmt.Fprintf(a.Stderr, "%s, of owner %s; the secret is not shown again\n", k.ID,
						term.Printable(k.Owner))
				}
				return a.PrintResult(k, k.Secret, err)
			})(cmd, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&req.Owner, "owner", "", "owner of the key and of everything created with it (default: the owner of "+
		"the key in use)")
	fs.BoolVar(&req.Admin, "admin", false, "allow the key to create and revoke keys, and to change images")
	fs.DurationVar(&expires, "expires", 0, "lifetime of the key, such as 720h (default: until it is revoked)")
	quota.register(cmd)
	return a.AddFormatFlags(cmd)
}

// keyListCommand returns `berth key ls`. Lists have no secrets, because the daemon does not store them.
func keyListCommand(a *app.App) *cobra.Command {
	var all bool
	cmd := app.Noun[proto.Key]{
		ListShort: "List API keys, newest first", Quiet: "print IDs only",
		List: func(c *client.Client, ctx context.Context) ([]proto.Key, error) {
			list, err := c.Keys(ctx)
			if !all { // revoked keys stay in the daemon's list and would soon be most of it
				list = slices.DeleteFunc(list, func(k proto.Key) bool { return keyState(k, time.Now()) != "active" })
			}
			return list, err
		},
		Columns: term.Columns[proto.Key]{
			Head: []string{"ID", "NAME", "OWNER", "ROLE", "STATE", "LAST USED", "QUOTA"},
			Row: func(k proto.Key) []string {
				return []string{k.ID, k.Name, k.Owner, keyRole(k), keyState(k, time.Now()), used(k), quotaText(k.Quota)}
			},
		},
	}.ListCommand(a)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include revoked and expired keys")
	return cmd
}

// keyState returns a key's state in one word. The daemon decides by its own clock, so the word may be wrong for a
// moment if the clocks differ.
func keyState(k proto.Key, now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !now.Before(k.ExpiresAt.Time):
		return "expired"
	}
	return "active"
}

// keyRole returns a key's role as a word, which reads better in a table than true or false.
func keyRole(k proto.Key) string {
	if k.Admin {
		return "admin"
	}
	return "user"
}

// used returns the time of a key's last use, or "never": such a key may be one to revoke.
func used(k proto.Key) string {
	if k.LastUsedAt == nil {
		return "never"
	}
	return term.Ago(k.LastUsedAt.Time)
}

// quotaText returns a quota on one line. It omits limits that are not set. Without any limit it returns a dash.
func quotaText(q proto.Quota) string {
	var parts []string
	add := func(set bool, text string) {
		if set {
			parts = append(parts, text)
		}
	}
	add(q.Sessions > 0, fmt.Sprintf("%d containers", q.Sessions))
	add(q.CPUSecondsPerDay > 0, "CPU "+cpuTime(q.CPUSecondsPerDay)+" a day")
	add(q.StorageBytes > 0, term.Size(q.StorageBytes))
	add(q.RequestsPerSecond > 0, fmt.Sprintf("%g/s", q.RequestsPerSecond))
	add(q.Burst > 0, fmt.Sprintf("burst %d", q.Burst))
	if parts == nil {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// cpuTime formats seconds for people.
func cpuTime(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

func keyInspectCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect [KEY]", Short: "Show a key and its usage; without an ID, the key in use",
		Args: app.ArgCount(0, 1), ValidArgsFunction: completeKeys(a),
		Example: "  berth key inspect\n  berth key inspect --json key_…",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			// The API's ID for the requesting key. It lets a user who is no admin see the rest of a quota.
			id := "self"
			if len(args) > 0 {
				id = args[0]
			}
			k, err := c.KeyStatus(ctx, id)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(k)
			}
			return a.Table([]string{"KEY", k.ID}, keyRows(k))
		}),
	}
	return a.AddFormatFlags(cmd)
}

// keyRows returns a key's description line by line. Each use is beside its limit, because one says little without the
// other.
func keyRows(k proto.KeyStatus) [][]string {
	// Without a limit only the use is shown: "of 0" would look as if none were left.
	of := func(now, most string, bounded bool) string {
		if bounded {
			return now + " of " + most
		}
		return now
	}
	q, u := k.Quota, k.Usage
	rows := [][]string{
		{"name", k.Name}, {"owner", k.Owner}, {"role", keyRole(k.Key)}, {"state", keyState(k.Key, time.Now())},
		{"created", term.Ago(k.CreatedAt.Time)}, {"last used", used(k.Key)},
	}
	if k.ExpiresAt != nil {
		rows = append(rows, []string{"expires", k.ExpiresAt.Local().Format(time.DateTime)})
	}
	rows = append(rows,
		[]string{"containers", of(strconv.FormatInt(u.Sessions, 10), strconv.FormatInt(q.Sessions, 10),
			q.Sessions > 0)},
		[]string{"CPU today", of(cpuTime(u.CPUSecondsToday), cpuTime(q.CPUSecondsPerDay), q.CPUSecondsPerDay > 0)},
		[]string{"stored files", of(term.Size(u.StorageBytes), term.Size(q.StorageBytes), q.StorageBytes > 0)})
	if u.OwnerDiskBytes != nil {
		rows = append(rows, []string{"owner's disk", of(term.Size(*u.OwnerDiskBytes), term.Size(u.OwnerDiskLimit),
			u.OwnerDiskLimit > 0)})
	}
	if q.RequestsPerSecond > 0 {
		rows = append(rows, []string{"requests", quotaText(proto.Quota{RequestsPerSecond: q.RequestsPerSecond,
			Burst: q.Burst})})
	}
	return rows
}

func keySetCommand(a *app.App) *cobra.Command {
	var name string
	var quota quotaFlags
	cmd := &cobra.Command{
		Use: "set [flags] KEY", Short: "Change a key's name or quota, at once", Args: app.ArgCount(1, 1),
		ValidArgsFunction: completeKeys(a),
		Long: "Change a key's name or quota. The change takes effect at once. Values without a flag " +
			"stay as they are; 0 removes a bound.",
		Example: `  berth key set --rate 100 --burst 200 key_…
  berth key set --max-containers 0 key_…`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var req proto.ChangeKey
			change, err := quota.change(cmd)
			if err != nil {
				return err
			}
			if change != (proto.QuotaChange{}) {
				req.Quota = &change
			}
			if cmd.Flags().Changed("name") {
				req.Name = &name
			}
			if req == (proto.ChangeKey{}) {
				return app.NewUsageError(cmd, errors.New("there is nothing to change; give --name or a bound"))
			}
			return a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
				k, err := c.ChangeKey(ctx, args[0], req)
				return a.PrintResult(k, k.ID, err)
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "new name")
	quota.register(cmd)
	return a.AddFormatFlags(cmd)
}

// keyRevokeCommand returns `berth key revoke`. It revokes keys one by one. An error for one does not stop the others.
func keyRevokeCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke KEY…", Aliases: []string{"rm", "delete"}, Short: "Revoke keys for good, at once",
		Args: app.ArgCount(1, -1), ValidArgsFunction: completeKeys(a),
		Long: `Revoke keys for good, at once. Their running requests and connections end. Everything created with them stays
with their owner.

To revoke the key in the daemon's key file, replace the file and restart the daemon.`,
		Example: "  berth key revoke key_…\n  berth key ls --all",
		RunE: a.WithClient(func(ctx context.Context, c *client.Client, args []string) error {
			var errs []error
			for _, id := range args {
				// Only whole IDs are accepted: a revocation is final, and a part of an ID could match the wrong key.
				_, err := c.RevokeKey(ctx, id)
				if err == nil {
					err = a.PrintIDs(id)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}),
	}
	return cmd
}

// completeKeys suggests valid API keys. Names are shown beside the IDs and not suggested, since key commands accept
// only IDs.
func completeKeys(a *app.App) cobra.CompletionFunc {
	return a.Suggest(func(ctx context.Context, c *client.Client, _ []string) (all []cobra.Completion) {
		list, _ := c.Keys(ctx)
		for _, k := range list {
			if keyState(k, time.Now()) == "active" {
				all = append(all, app.Suggestion(k.ID, k.Name))
			}
		}
		return all
	})
}
