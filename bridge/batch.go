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
	aroundInput = 4 << 10  // bytes of a call beside its input
)

// An ask is a call as the code's side asks for it.
type ask struct {
	ID    string          `json:"id"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// A taker reads a request's body and takes room for what it reads.
type taker struct {
	r    io.Reader
	desk *desk
	left int64 // that the call which is being read may still have
	took int64
}

var (
	errTooLarge = errors.New("too large")
	errNoRoom   = errors.New("no room")
	errBadBatch = errors.New("not a batch")
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

// read reads {"calls": […]}, one call after another. Room for their inputs is the calls'; that of the rest is given back.
func (d *desk) read(body io.Reader) (asks []ask, err error) {
	t := &taker{r: body, desk: d, left: aroundInput}
	kept := int64(0)
	defer func() {
		if err != nil {
			kept = 0
		}
		d.release(t.took - kept)
	}()
	dec := jsontext.NewDecoder(t)
	if err := opens(dec); err != nil {
		return nil, err
	}
	for dec.PeekKind() != ']' {
		if len(asks) == maxBatch {
			return nil, fail(ValueError, "a request has at most %d calls", maxBatch).error()
		}
		t.left = maxInput + aroundInput
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

// readAsk reads one call.
func readAsk(dec *jsontext.Decoder) (a ask, err error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return a, worse(err, errBadBatch)
	}
	if err := v2.Unmarshal(raw, &a, v2.RejectUnknownMembers(true)); err != nil {
		return a, fail(ValueError, "a call has the fields id, tool and input, and no other").error()
	}
	switch {
	case !validClientID(a.ID):
		return a, fail(ValueError, "the id of a call must be 1 to %d letters, digits and '-'", maxClientID).error()
	case len(a.Tool) > maxName: // only inputs have room of their own
		return a, fail(ValueError, "the name of a tool has at most %d bytes", maxName).error()
	case len(a.Input) > maxInput:
		return a, errTooLarge
	case tooDeep(a.Input):
		return a, fail(ValueError, "the input of a call is nested more than %d levels deep", maxDepth).error()
	}
	return a, nil
}

func validClientID(id string) bool {
	for _, c := range []byte(id) {
		if !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= maxClientID
}
