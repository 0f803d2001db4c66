package bridge

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	v2 "github.com/go-json-experiment/json"
)

// Bounds of one request from code.
const (
	maxBatch    = 64       // calls
	maxInput    = 1 << 20  // bytes of one input
	maxRequest  = 16 << 20 // bytes
	maxClientID = 64       // bytes of the caller's own identifier of a call
	aroundInput = 4 << 10  // bytes of a request without its calls, or of a call without its input
)

// An ask is a call as the code requests it.
type ask struct {
	ID    string          `json:"id"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`

	size  int64 // of the input, in bytes
	wrong error // an error of this call alone; its input was not read. nil: none
}

// A requestReader reads a request's body and reserves memory for what it reads.
type requestReader struct {
	r    io.Reader
	desk *dispatcher
	left int64 // bytes that the current part may still have
	took int64
}

var (
	errTooLarge   = errors.New("too large")
	errLargeInput = errors.New("an input that is too large")
	errNoRoom     = errors.New("no room")
	errBadBatch   = errors.New("not a batch")
)

// Read implements io.Reader. It fails when no memory is left.
func (t *requestReader) Read(p []byte) (int, error) {
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

// lenient accepts what is wrong within a call, so that the error stays that call's alone.
var lenient = v2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// read reads {"calls": […]}, one call after another. Memory for the inputs belongs to the calls; the rest is
// released. A wrong call is refused by itself. If it is the only one, its error is the request's.
func (d *dispatcher) read(body io.Reader) (asks []ask, err error) {
	t := &requestReader{r: body, desk: d, left: aroundInput}
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
	t.left = maxRequest // an input that is too large is read to its end, so that the calls behind it can be read
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

// opens reads what precedes the calls.
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

// worse returns err if it says anything, else otherwise.
func worse(err, otherwise error) error {
	if err == nil || err == io.EOF {
		return otherwise
	}
	return err
}

// readAsk reads one call. It returns an error if the fault cannot be assigned to a call.
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
		a.Tool, a.Input = cut(a.Tool, maxName), nil // otherwise they would stay in memory without a reservation
	}
	return a, nil
}

// fault says what is wrong with a call that was read from raw.
func (a ask) fault(raw jsontext.Value) error {
	switch {
	case len(a.Tool) > maxName: // only inputs have memory reserved
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

// refusal is fault in the form that code gets; nil if there is none.
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
