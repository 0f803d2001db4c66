package inprocess

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

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

// logShims sends the output of shims to our log, at debug level. containerd copies it to os.Stderr unchanged. A shim
// that is shut down says so hundreds of times. Among our lines that looks like an error of ours, and programs that
// read our log fail on lines of another form. What the Go runtime prints when the process dies does not go through
// os.Stderr and still appears.
var logShims = func() func(*slog.Logger) error {
	var once sync.Once
	return func(log *slog.Logger) (err error) {
		once.Do(func() {
			r, w, perr := os.Pipe()
			if perr != nil {
				err = fmt.Errorf("making a pipe for what shims say: %w", perr)
				return
			}
			os.Stderr = w
			go repeatLines(r, log)
		})
		return err
	}
}()

// repeatLines logs each line of r, cut at 64 KiB, until the process ends. Shims of several runtimes write to r.
func repeatLines(r io.Reader, log *slog.Logger) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, _, err := in.ReadLine()
		if err != nil {
			return
		}
		if len(line) > 0 {
			log.Debug("a shim says", "part", "shim", "line", string(line))
		}
	}
}
