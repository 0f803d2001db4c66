package images

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
)

// Whoever reads an image's archive keeps the name of each entry in memory, and of an archive of Docker's a list of
// what is in it. GiBs of those are MiBs in an archive too.

const (
	// MaxEntries is what an archive may hold: three for each layer, as Docker has them, of more images than one.
	MaxEntries = 16 << 10
	// MaxEntryName is that of the kernel for paths, in bytes.
	MaxEntryName = 4096
)

// judged is in, read as a tar archive besides. It fails where that has more than is kept of one. The returned
// function is called when nobody reads it any more.
func judged(in io.Reader) (io.Reader, func()) {
	ours, theirs := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := judgeArchive(ours)
		if err == nil {
			_, err = io.Copy(io.Discard, ours)
		}
		ours.CloseWithError(err)
	}()
	return io.TeeReader(in, theirs), func() { theirs.Close(); <-done }
}

// judgeArchive reads an archive and returns what is too much in it. What else is wrong is for its reader to say.
func judgeArchive(in io.Reader) error {
	tr := tar.NewReader(in)
	for entries := 1; ; entries++ {
		hdr, err := tr.Next()
		switch {
		case err != nil:
			return nil
		case entries > MaxEntries:
			return unreadable("more than %d files in its archive", MaxEntries)
		case len(hdr.Name)+len(hdr.Linkname) > MaxEntryName:
			return unreadable("a file in its archive with a name of more than %d bytes", MaxEntryName)
		case path.Clean(hdr.Name) == "manifest.json":
			if err := judgeValues(tr); err != nil {
				return err
			}
		}
	}
}

// judgeValues counts the values of a document that is not in memory yet.
func judgeValues(in io.Reader) error {
	values, buf := 0, make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if values += bytes.Count(buf[:n], []byte(",")); values > MaxValues {
			return unreadable("a description of more than %d values", MaxValues)
		}
		if err != nil {
			return nil
		}
	}
}
