package app

import (
	"io"
	"os"
)

// ReadInput reads a file, or standard input if name is "-". Of one with more than most bytes it returns one byte more
// than that, so that the caller can tell it from one that just fits.
func ReadInput(name string, most int64) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, most+1))
}
