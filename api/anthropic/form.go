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

// formReader reads the body part by part. The form parser of net/http is not suitable: it buffers a form in memory or
// in a second temporary file, and takes a file without a name for a text field.
func formReader(r *http.Request) (*multipart.Reader, error) {
	// A form without a boundary has no parts.
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, invalid("Content-Type", "The request body must be multipart/form-data with a boundary.")
	}
	// The reader reads 4 KiB at a time, each with a system call and two deadlines.
	return multipart.NewReader(bufio.NewReaderSize(r.Body, bodyBuffer), params["boundary"]), nil
}

// A partError is a failure to read the form, which is a 400, as opposed to a failure to store it.
type partError struct{ error }

func (e partError) Unwrap() error { return e.error }

// formError reports an incomplete form. Errors of the body itself, such as one that is too large, are kept.
func formError(err error) error {
	var own *proto.Error
	var part partError
	if errors.As(err, &own) || !errors.As(err, &part) {
		return err
	}
	return invalid("", "The request body is not a complete multipart form.")
}

// A partReader marks the read errors of its part.
type partReader struct{ *multipart.Part }

func (p partReader) Read(b []byte) (int, error) {
	n, err := p.Part.Read(b)
	// io.EOF must stay unwrapped: it ends the part, and io.Copy compares it.
	if err != nil && err != io.EOF {
		err = partError{err}
	}
	return n, err
}

// eachPart calls take for each part until the closing boundary. A body that ends earlier is an error. So are more
// than most parts: each costs a header to parse, and skipped parts count against no limit except that of the body.
// What take leaves of a part is skipped, since SDKs may send new fields.
func eachPart(parts *multipart.Reader, most int, take func(d map[string]string, part partReader) error) error {
	for n := 0; ; n++ {
		// NextPart would decode quoted-printable, and files are stored as they came.
		part, err := parts.NextRawPart()
		if err == io.EOF { // unwrapped; a wrapped EOF means that the body ended before the closing boundary
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
