package containerd

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// logContext makes containerd's log lines come out of ours, as details: an error that matters comes back
// from the call that failed and is logged by us, and containerd calls errors what is usual for us, such
// as a shim that has gone.
func logContext(ctx context.Context, l *slog.Logger) context.Context {
	inner := logrus.New()
	inner.SetOutput(io.Discard)
	inner.ExitFunc = func(int) {} // a fatal error of containerd's is no reason for the daemon to end
	inner.SetLevel(logrus.InfoLevel)
	inner.AddHook(slogHook{l.With("part", "containerd")})
	entry := logrus.NewEntry(inner)
	// Some of containerd's code has no context at hand and uses the global logger.
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
