package containerd

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// hearShims makes what shims say a detail of our log. containerd copies it to os.Stderr as it is, and one that is
// shut down says hundreds of times that it was; among our lines that looks like an error of ours, and anything that
// reads our log stumbles over lines of another form. What the Go runtime says when the process dies does not go
// through os.Stderr and is seen as ever.
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

// repeatLines logs each line of r, cut at 64 KiB, as long as the process lives: shims of several runtimes write to it.
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
