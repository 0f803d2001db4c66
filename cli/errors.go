package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
)

// Exit statuses that are not a command's.
const (
	statusSignaled  = 128 // and the number of the signal that ended berth, as shells have it
	statusFailed    = 125 // berth itself failed, as docker has it
	statusUnhealthy = 1   // doctor found something that must be mended
	statusBroken    = 1   // the audit log is not what it was
	statusThrough   = 1   // an attack succeeded
	statusUntried   = 2   // none did, but some could not be tried
	statusWorse     = 1   // a benchmark failed, or is worse than it was
)

// An exitError ends the program with a status and no further words.
// It is how a command's own status gets through cobra, which knows only errors.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// A usageError is a command line that makes no sense.
// It keeps the command, so that the hint can name whose help to read.
type usageError struct {
	cmd *cobra.Command
	error
}

func (e *usageError) Unwrap() error { return e.error }

// errInterrupted ends what the user no longer wants.
var errInterrupted = errors.New("interrupted")

// An interruption is errInterrupted by a signal.
type interruption struct{ sig syscall.Signal }

func (i interruption) Error() string {
	if i.sig == syscall.SIGINT {
		return errInterrupted.Error()
	}
	return i.sig.String() // "terminated", "hangup"
}

func (i interruption) Is(target error) bool { return target == errInterrupted }

// untilSignal is ctx until SIGINT or SIGTERM. Its cause says which.
func untilSignal(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-caught:
			cancel(interruption{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(caught)
		cancel(nil)
	}
}

// signaled is err with the signal that ended ctx, where that is what it came of.
func signaled(ctx context.Context, err error) error {
	var by interruption
	if interrupted(err) && errors.As(context.Cause(ctx), &by) {
		return fmt.Errorf("%w: %w", by, err)
	}
	return err
}

// A hintError is an error that knows what to do about it.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

// report tells the user of an error and returns the exit status.
func (a *app) report(err error) int {
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.status
	// Before the words: an interruption breaks connections, and what they say of it is noise.
	case interrupted(err):
		by := interruption{syscall.SIGINT}
		errors.As(err, &by)
		fmt.Fprintln(a.Stderr, "berth: "+by.Error())
		var own *hintError
		if errors.As(err, &own) { // any other was for what broke
			fmt.Fprintln(a.Stderr, "hint: "+term.Printable(own.hint))
		}
		return statusSignaled + int(by.sig)
	}
	for _, e := range split(err) {
		fmt.Fprintln(a.Stderr, "berth: "+term.PrintableLines(words(e)))
	}
	if hint := a.hint(err); hint != "" {
		fmt.Fprintln(a.Stderr, "hint: "+term.Printable(hint))
	}
	return statusFailed
}

// interrupted reports whether err is that the user no longer wants it.
func interrupted(err error) bool {
	return errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled)
}

// split takes joined errors apart, so that each has its line.
func split(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// hint says what to do about an error, where its message does not.
// Certificates come first: what is wrong with one says more than the error that it is wrapped in.
func (a *app) hint(err error) string {
	var dial *client.DialError
	var usage *usageError
	var missing *client.MissingError
	var own *hintError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return "a daemon that made its own certificate is trusted by the file tls/ca.pem of its data directory; " +
			"copy that here and name it with --ca or BERTH_CA"
	case errors.As(err, &name):
		return "use a host that the certificate is for"
	case errors.As(err, &own):
		return own.hint
	case errors.As(err, &dial):
		return "start it with `berth serve`, or name a running one with --host or BERTH_HOST"
	case errors.As(err, &usage):
		return "see `" + usage.cmd.CommandPath() + " --help`"
	case errors.As(err, &missing):
		return lister(missing)
	case proto.CodeOf(err) == proto.Unauthenticated && a.keyErr != nil:
		return fmt.Sprintf("%v; run this as a user who may read it, or give the key with BERTH_API_KEY or "+
			"--api-key-file", a.keyErr)
	case proto.CodeOf(err) == proto.Unauthenticated:
		return fmt.Sprintf("the daemon keeps its key in the file api-key of its data directory (%s here); give it "+
			"with BERTH_API_KEY or --api-key-file", a.dir)
	case proto.CodeOf(err) == proto.TooMany && proto.AsError(err).RetryAfter > 1:
		return fmt.Sprintf("try again in %v; `berth key inspect` shows what your key uses of its quota",
			time.Duration(proto.AsError(err).RetryAfter)*time.Second)
	case proto.CodeOf(err) == proto.Expired:
		return "its time is over and its files are gone; make a new one with `berth run` or `berth create`"
	}
	return ""
}
