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

// Exit statuses that are not a command's.
const (
	statusSignaled  = 128 // and the number of the signal that ended berth, as shells have it
	StatusFailed    = 125 // berth itself failed, as docker has it
	StatusUnhealthy = 1   // doctor found something that must be mended
	StatusBroken    = 1   // the audit log is not what it was
	StatusThrough   = 1   // an attack succeeded
	StatusUntried   = 2   // none did, but some could not be tried
	StatusWorse     = 1   // a benchmark failed, or is worse than it was
)

// An exitError ends the program with a status and no further words.
// It is how a command's own status gets through cobra, which knows only errors.
type ExitError struct{ Status int }

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// A usageError is a command line that makes no sense.
// It keeps the command, so that the hint can name whose help to read.
type UsageError struct {
	cmd *cobra.Command
	error
}

// NewUsageError says what is wrong with the command line of cmd.
func NewUsageError(cmd *cobra.Command, err error) error { return &UsageError{cmd, err} }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.error }

// ErrInterrupted ends what the user no longer wants.
var ErrInterrupted = errors.New("interrupted")

// An interruption is errInterrupted by a signal.
type Interruption struct{ Signal syscall.Signal }

func (i Interruption) Error() string {
	if i.Signal == syscall.SIGINT {
		return ErrInterrupted.Error()
	}
	return i.Signal.String() // "terminated", "hangup"
}

func (i Interruption) Is(target error) bool { return target == ErrInterrupted }

// UntilSignal is ctx until SIGINT or SIGTERM. Its cause says which.
func UntilSignal(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
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

// WithSignal is err with the signal that ended ctx, where that is what it came of.
func WithSignal(ctx context.Context, err error) error {
	var by Interruption
	if IsInterrupted(err) && errors.As(context.Cause(ctx), &by) {
		return fmt.Errorf("%w: %w", by, err)
	}
	return err
}

// A hintError is an error that knows what to do about it.
type HintError struct {
	Err  error
	Hint string
}

// WithHint adds to an error what to do about it.
func WithHint(err error, hint string) error { return &HintError{err, hint} }

func (e *HintError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the hint.
func (e *HintError) Unwrap() error { return e.Err }

// ReportError tells the user of an error and returns the exit status.
func (a *App) ReportError(err error) int {
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Status
	// Before the words: an interruption breaks connections, and what they say of it is noise.
	case IsInterrupted(err):
		by := Interruption{syscall.SIGINT}
		errors.As(err, &by)
		fmt.Fprintln(a.Stderr, "berth: "+by.Error())
		var own *HintError
		if errors.As(err, &own) { // any other was for what broke
			fmt.Fprintln(a.Stderr, "hint: "+term.Printable(own.Hint))
		}
		return statusSignaled + int(by.Signal)
	}
	for _, e := range split(err) {
		fmt.Fprintln(a.Stderr, "berth: "+term.PrintableLines(words(e)))
	}
	if hint := a.HintFor(err); hint != "" {
		fmt.Fprintln(a.Stderr, "hint: "+term.Printable(hint))
	}
	return StatusFailed
}

// IsInterrupted reports whether err is that the user no longer wants it.
func IsInterrupted(err error) bool {
	return errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled)
}

// split takes joined errors apart, so that each has its line.
func split(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// HintFor says what to do about an error, where its message does not.
// Certificates come first: what is wrong with one says more than the error that it is wrapped in.
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
		return fmt.Sprintf("%v; run this as a user who may read it, or give the key with BERTH_API_KEY or "+
			"--api-key-file", a.keyErr)
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

// AddImageHint says where images come from, where that is what is missing.
func AddImageHint(a *App, err error) error {
	var e *proto.Error
	// A container or file that is not found comes with the same code; the message tells them
	// apart.
	if errors.As(err, &e) && e.Code == proto.NotFound && strings.Contains(e.Message, "image") {
		return WithHint(err, "`berth image ls` lists what there is; `berth image build base` makes the default one")
	}
	return err
}
