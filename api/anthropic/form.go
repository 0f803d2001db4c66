package anthropic

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"berth/proto"
)

// bodyBuffer is how many bytes of a form are read at a time.
const bodyBuffer = 256 << 10

// formReader reads the body part by part. net/http's own form parsing is no good here: it holds a form
// in memory or a second temporary file, and takes a file without a name for a text field.
func formReader(r *http.Request) (*multipart.Reader, error) {
	// A form without a boundary has no parts that could be found.
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, invalid("Content-Type", "The request body must be multipart/form-data with a boundary.")
	}
	// It reads by 4 KiB, each of them with a system call and two deadlines.
	return multipart.NewReader(bufio.NewReaderSize(r.Body, bodyBuffer), params["boundary"]), nil
}

// A partError is a failure to read the form, told apart from a failure to store it.
// The first is the client's mistake and a 400, the second ours.
type partError struct{ error }

func (e partError) Unwrap() error { return e.error }

// formError calls a body that is not a whole form what it is. What the body itself failed with, too large
// or cut off, is already an error of ours.
func formError(err error) error {
	var own *proto.Error
	var part partError
	if errors.As(err, &own) || !errors.As(err, &part) {
		return err
	}
	return invalid("", "The request body is not a complete multipart form.")
}

// A partReader marks errors of its part.
type partReader struct{ *multipart.Part }

func (p partReader) Read(b []byte) (int, error) {
	n, err := p.Part.Read(b)
	// io.EOF stays bare: it ends the part, and io.Copy looks for the very value.
	if err != nil && err != io.EOF {
		err = partError{err}
	}
	return n, err
}

// eachPart has parts taken until the closing boundary. A body that ends before it is an error, and so are more than
// most: each costs a header to parse, and those that are skipped count against no other limit but the body's. What
// take leaves of a part is skipped: SDKs may learn new fields before we do.
func eachPart(parts *multipart.Reader, most int, take func(d map[string]string, part partReader) error) error {
	for n := 0; ; n++ {
		// Raw: NextPart would undo quoted-printable by itself, and a file is stored as it came.
		part, err := parts.NextRawPart()
		if err == io.EOF { // itself; wrapped it means that the body ended before the closing boundary
			return nil
		}
		var d map[string]string
		switch {
		case err != nil:
			err = partError{err}
		case n == most:
			err = invalid("", "The form has more than %d parts.", most)
		default:
			if d, err = parseDisposition(part.Header.Get("Content-Disposition")); err == nil {
				err = take(d, partReader{part})
			}
		}
		if err != nil {
			return formError(err)
		}
	}
}
