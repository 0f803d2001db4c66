package bridge

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	v2 "github.com/go-json-experiment/json"
)

// Bounds of one request of the code's.
const (
	maxBatch    = 64       // calls
	maxInput    = 1 << 20  // bytes of one input
	maxRequest  = 16 << 20 // bytes
	maxClientID = 64       // bytes of the identifier that the code's side gives a call
	aroundInput = 4 << 10  // bytes of a request beside its calls, or of a call beside its input
)

// An ask is a call as the code's side asks for it.
type ask struct {
	ID    string          `json:"id"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`

	size  int64 // of the input, in bytes
	wrong error // with it alone, so that nobody looks at it and its input is not here; nil: nothing
}

// A taker reads a request's body and takes room for what it reads.
type taker struct {
	r    io.Reader
	desk *desk
	left int64 // that the part which is being read may still have
	took int64
}

var (
	errTooLarge   = errors.New("too large")
	errLargeInput = errors.New("an input that is too large")
	errNoRoom     = errors.New("no room")
	errBadBatch   = errors.New("not a batch")
)

// Read is io.Reader's. It ends where there is no room.
func (t *taker) Read(p []byte) (int, error) {
	if t.left <= 0 || t.took >= maxRequest {
		return 0, errTooLarge
	}
	n, err := t.r.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	if !t.desk.reserve(int64(n)) {
		return 0, errNoRoom
	}
	t.took += int64(n)
	return n, err
}

// lenient reads past what is wrong within a call, so that it is that call's affair alone.
var lenient = v2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// read reads {"calls": […]}, one call after another. Room for their inputs is the calls'; that of the rest is given
// back. A call that is wrong is refused by itself, unless there is no other: then that is its request's error.
func (d *desk) read(body io.Reader) (asks []ask, err error) {
	t := &taker{r: body, desk: d, left: aroundInput}
	kept := int64(0)
	defer func() {
		if err != nil {
			kept = 0
		}
		d.release(t.took - kept)
	}()
	dec := jsontext.NewDecoder(t, lenient)
	if err := opens(dec); err != nil {
		return nil, err
	}
	t.left = maxRequest // one that is too large is read to its end, so that those behind it can be read
	for dec.PeekKind() != ']' {
		if len(asks) == maxBatch {
			return nil, fail(ValueError, "a request has at most %d calls", maxBatch).error()
		}
		a, err := readAsk(dec)
		if err != nil {
			return nil, err
		}
		kept += int64(len(a.Input))
		asks = append(asks, a)
	}
	t.left = aroundInput
	if err := expect(dec, ']', '}'); err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, worse(err, errBadBatch)
	}
	if len(asks) == 1 && asks[0].wrong != nil {
		return nil, asks[0].wrong
	}
	return asks, nil
}

// opens reads what stands before the calls.
func opens(dec *jsontext.Decoder) error {
	if err := expect(dec, '{'); err != nil {
		return err
	}
	if name, err := dec.ReadToken(); err != nil || name.Kind() != '"' || name.String() != "calls" {
		return worse(err, errBadBatch)
	}
	return expect(dec, '[')
}

func expect(dec *jsontext.Decoder, kinds ...jsontext.Kind) error {
	for _, kind := range kinds {
		if token, err := dec.ReadToken(); err != nil || token.Kind() != kind {
			return worse(err, errBadBatch)
		}
	}
	return nil
}

// worse is err, where there is one that says something.
func worse(err, otherwise error) error {
	if err == nil || err == io.EOF {
		return otherwise
	}
	return err
}

// readAsk reads one call. Its error says that no call can be told what is wrong.
func readAsk(dec *jsontext.Decoder) (a ask, err error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return a, worse(err, errBadBatch)
	}
	if err := v2.Unmarshal(raw, &a, v2.RejectUnknownMembers(true), lenient); err != nil {
		return a, fail(ValueError, "a call has the fields id, tool and input, and no other").error()
	}
	if !validClientID(a.ID) {
		return a, fail(ValueError, "the id of a call must be 1 to %d letters, digits and '-'", maxClientID).error()
	}
	a.size = int64(len(a.Input))
	if a.wrong = a.fault(raw); a.wrong != nil {
		a.Tool, a.Input = cut(a.Tool, maxName), nil // or they would be here without having room
	}
	return a, nil
}

// fault is what is wrong with a call that was read from raw.
func (a ask) fault(raw jsontext.Value) error {
	switch {
	case len(a.Tool) > maxName: // only inputs have room of their own
		return fail(ValueError, "the name of a tool has at most %d bytes", maxName).error()
	case len(a.Input) > maxInput:
		return errLargeInput
	case tooDeep(a.Input):
		return fail(ValueError, "the input of a call is nested more than %d levels deep", maxDepth).error()
	case !raw.IsValid():
		return fail(ValueError, "a call must be valid Unicode, and no object in it may have a name twice").error()
	}
	return nil
}

// refusal is fault as the code gets it; nil: there is none.
func (a ask) refusal() *Failure {
	if a.wrong == nil {
		return nil
	}
	_, f := badBatch(a.wrong)
	return f
}

func validClientID(id string) bool {
	for _, c := range []byte(id) {
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= maxClientID
}
