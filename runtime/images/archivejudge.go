package images

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
)

// The reader of an image's archive keeps the name of each entry in memory. Of a Docker archive it also keeps a list
// of the content. An archive of a few MiB can hold GiBs of those.

const (
	// MaxEntries is the maximum number of entries of an archive. Docker writes three for each layer, and an archive
	// may hold several images.
	MaxEntries = 16 << 10
	// MaxEntryName is the kernel's limit for paths, in bytes.
	MaxEntryName = 4096
)

// judged returns a reader that passes in on and also reads it as a tar archive. The reader fails if the archive has
// more entries or longer names than the limits allow. The caller calls the returned function when the reading is
// over.
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

// judgeArchive reads an archive and returns an error if it exceeds a limit. Other errors are left to the archive's
// reader.
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
