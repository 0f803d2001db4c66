package containerd

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// hearShims sends the output of shims to our log, at debug level. containerd copies it to os.Stderr unchanged. A shim
// that is shut down says so hundreds of times. Among our lines that looks like an error of ours, and programs that
// read our log fail on lines of another form. What the Go runtime prints when the process dies does not go through
// os.Stderr and still appears.
var hearShims = func() func(*slog.Logger) error {
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
