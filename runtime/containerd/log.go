package containerd

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// logContext sends containerd's log lines to our log: fatal errors as errors, all others at debug level. An error
// that matters also comes back from the call that failed, and we log it there. containerd logs events as errors that
// are usual for us, such as a shim that is gone.
func logContext(ctx context.Context, l *slog.Logger) context.Context {
	inner := logrus.New()
	inner.SetOutput(io.Discard)
	inner.ExitFunc = func(int) {} // a fatal error of containerd must not end the daemon
	inner.SetLevel(logrus.InfoLevel)
	inner.AddHook(slogHook{l.With("part", "containerd")})
	entry := logrus.NewEntry(inner)
	// Some code of containerd has no context and uses the global logger.
	log.L = entry
	return log.WithLogger(ctx, entry)
}

type slogHook struct{ log *slog.Logger }

func (h slogHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h slogHook) Fire(e *logrus.Entry) error {
	level := slog.LevelDebug
	if e.Level <= logrus.FatalLevel {
		level = slog.LevelError
	}
	attrs := make([]slog.Attr, 0, len(e.Data))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	h.log.LogAttrs(context.Background(), level, e.Message, attrs...)
	return nil
}
