package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// Exit statuses of berth itself.
const (
	statusSignaled  = 128 // plus the number of the signal that ended berth, as in shells
	StatusFailed    = 125 // berth itself failed, as in docker
	StatusUnhealthy = 1   // doctor found a problem that must be fixed
	StatusBroken    = 1   // the audit log was modified
	StatusThrough   = 1   // an attack succeeded
	StatusUntried   = 2   // no attack succeeded, but some could not be tried
	StatusWorse     = 1   // a benchmark failed or got worse
)

// An ExitError ends the program with a status and no message. It carries a command's own status through cobra, which
// passes only errors.
type ExitError struct{ Status int }

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// A UsageError is an invalid command line. It keeps the command, so that the hint can name its help.
type UsageError struct {
	cmd *cobra.Command
	error
}

// NewUsageError returns an error about the command line of cmd.
func NewUsageError(cmd *cobra.Command, err error) error { return &UsageError{cmd, err} }

// Unwrap returns the error without the command.
func (e *UsageError) Unwrap() error { return e.error }

// ErrInterrupted means that the user interrupted the command.
var ErrInterrupted = errors.New("interrupted")

// An Interruption is ErrInterrupted by a signal.
type Interruption struct{ Signal syscall.Signal }

func (i Interruption) Error() string {
	if i.Signal == syscall.SIGINT {
		return ErrInterrupted.Error()
	}
	return i.Signal.String() // "terminated", "hangup"
}

func (i Interruption) Is(target error) bool { return target == ErrInterrupted }

// UntilSignal returns a context that SIGINT, SIGTERM or one of the others cancels. Its cause is the Interruption.
func UntilSignal(ctx context.Context, others ...os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, append(others, os.Interrupt, syscall.SIGTERM)...)
	go func() {
		select {
		case sig := <-caught:
			cancel(Interruption{Signal: sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(caught)
		cancel(nil)
	}
}

// WithSignal adds the signal that cancelled ctx to err, if err is an interruption.
func WithSignal(ctx context.Context, err error) error {
	var by Interruption
	if IsInterrupted(err) && errors.As(context.Cause(ctx), &by) {
		return fmt.Errorf("%w: %w", by, err)
	}
	return err
}

// A HintError is an error with a hint about what to do.
type HintError struct {
	Err  error
	Hint string
}

// WithHint adds a hint to an error.
func WithHint(err error, hint string) error { return &HintError{err, hint} }

func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the hint.
func (e *HintError) Unwrap() error { return e.Err }

// ReportError prints an error and returns the exit status.
func (a *App) ReportError(err error) int {
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Status
	// First: an interruption breaks connections, and their error messages would only distract.
	case IsInterrupted(err):
		by := Interruption{syscall.SIGINT}
		errors.As(err, &by)
		fmt.Fprintln(a.Stderr, "berth: "+by.Error())
		var own *HintError
		if errors.As(err, &own) { // other hints belong to the broken connection
			fmt.Fprintln(a.Stderr, "hint: "+term.Printable(own.Hint))
		}
		return statusSignaled + int(by.Signal)
	}
	for _, e := range split(err) {
		fmt.Fprintln(a.Stderr, a.Failure("berth:")+" "+term.PrintableLines(words(e)))
	}
	if hint := a.HintFor(err); hint != "" {
		fmt.Fprintln(a.Stderr, "hint: "+term.Printable(hint))
	}
	return StatusFailed
}

// IsInterrupted reports whether the user interrupted the command.
func IsInterrupted(err error) bool {
	return errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled)
}

// split returns the parts of a joined error, one for each line.
func split(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// HintFor returns a hint for an error whose message has none. It checks certificate errors first, because they say
// more than the error that wraps them.
func (a *App) HintFor(err error) string {
	var dial *client.DialError
	var usage *UsageError
	var missing *client.MissingError
	var own *HintError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return "a daemon that made its own certificate is trusted by the file tls/ca.pem of its data directory; " +
			"copy that here and name it with --ca or BERTH_CA"
	case errors.As(err, &name):
		return "use a host that the certificate is for"
	case errors.As(err, &own):
		return own.Hint
	case errors.As(err, &dial):
		return "start it with `berth serve`, or name a running one with --host or BERTH_HOST"
	case errors.As(err, &usage):
		return "see `" + usage.cmd.CommandPath() + " --help`"
	case errors.As(err, &missing):
		return lister(missing)
	case proto.CodeOf(err) == proto.Unauthenticated && a.keyErr != nil:
		return fmt.Sprintf("%v; run this as root or as a member of the group that may read it (berth, if there is "+
			"one), or give the key with BERTH_API_KEY or --api-key-file", a.keyErr)
	case proto.CodeOf(err) == proto.Unauthenticated:
		return fmt.Sprintf("the daemon keeps its key in the file api-key of its data directory (%s here); give it "+
			"with BERTH_API_KEY or --api-key-file", a.Dir)
	case proto.CodeOf(err) == proto.TooMany && proto.AsError(err).RetryAfter > 1:
		return fmt.Sprintf("try again in %v; `berth key inspect` shows what your key uses of its quota",
			time.Duration(proto.AsError(err).RetryAfter)*time.Second)
	case proto.CodeOf(err) == proto.Expired:
		return "its time is over and its files are gone; make a new one with `berth run` or `berth create`"
	}
	return ""
}

// AddImageHint adds a hint about where to get images if an image is missing.
func AddImageHint(a *App, err error) error {
	var e *proto.Error
	// A missing container or file has the same code, so the message decides.
	if errors.As(err, &e) && e.Code == proto.NotFound && strings.Contains(e.Message, "image") {
		return WithHint(err, "`berth image ls` lists what there is; `berth image build base` makes the default one")
	}
	return err
}

// WarnIncomplete reports missing output, even if quiet, because it is a failure. err is the command's other result.
func (a *App) WarnIncomplete(what string, err error) error {
	fmt.Fprintln(a.Stderr, "berth: "+what)
	if err == nil && !term.IsTerminal(os.Stdout) {
		return ExitError{Status: StatusFailed} // a reader of our output must not take it as complete
	}
	return err
}

// kinds maps collections of the API to the words for a missing item. what names the kind, where the daemon's message
// continues with advice for HTTP or repeats the hint; "" keeps the daemon's message. list is the command that lists
// the items; the ID of what they belong to is appended.
var kinds = map[string]struct{ what, list string }{
	"containers": {"container", "berth ls"},
	"workspaces": {"", "berth workspaces ls"},
	"execs":      {"", "berth ps"},
	"jobs":       {"", "berth jobs ls"},
	"contexts":   {"", "berth contexts ls"},
	"tool_calls": {"call", "berth calls ls"},
	"files":      {"", "berth files ls"},
	"skills":     {"skill", "berth skills ls"},
	"versions":   {"version", "berth skills show"},
	"tools":      {"tool", "berth tools ls"},
	"tool_runs":  {"run", "berth tools runs"},
	"keys":       {"", "berth key ls --all"},
}

// words returns the message of an error. A MissingError may get a message of its own, unless other errors wrap it.
func words(err error) string {
	var m *client.MissingError
	if !errors.As(err, &m) || kinds[m.Kind].what == "" || err.Error() != m.Error() {
		return err.Error()
	}
	text := fmt.Sprintf("%s %q does not exist", kinds[m.Kind].what, m.Name)
	if m.In != "" {
		text += " in " + m.In
	}
	return text
}

// lister returns the hint for a missing item, or "".
func lister(m *client.MissingError) string {
	k, ok := kinds[m.Kind]
	if !ok {
		return ""
	}
	command := k.list
	if m.In != "" {
		command += " " + term.Quote([]string{m.In})
	}
	return "`" + command + "` lists those that there are"
}
