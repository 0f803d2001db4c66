// Package codeapi is the HTTP interface that code in a container finds on its loopback: it reads the calls of a
// request, and writes results, failures and refusals. The client's side is in tools/bridge/inside, which describes the
// messages.
//
// Requests come from untrusted code. Each byte of a request that stays in memory is reserved first, and a wrong call is
// refused by itself. Package bridge decides what the calls may do.
package codeapi

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"berth/proto"
	"berth/tools/schema"

	"github.com/go-json-experiment/json/jsontext"

	v2 "github.com/go-json-experiment/json"
)

// Bounds of one request from code.
const (
	MaxCalls    = 64
	maxInput    = 1 << 20  // bytes of one input
	maxRequest  = 16 << 20 // bytes
	aroundInput = 4 << 10  // bytes of a request without its calls
)

// clientID is the form of the code's own identifier of a call.
var clientID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// A Call is a call as the code requests it.
type Call struct {
	ID    string          `json:"id"`
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`

	size  int64 // of the input, in bytes
	wrong error // why this call alone is refused; its input was not kept. nil: it is not
}

// Size returns the bytes of the input, also if the input was not kept.
func (c Call) Size() int64 { return c.size }

// Refusal returns why this call alone is refused; nil: it is not.
func (c Call) Refusal() *Failure {
	if c.wrong == nil {
		return nil
	}
	_, f := Refusal(c.wrong)
	return f
}

// Memory bounds the bytes of requests that stay in memory.
type Memory interface {
	Reserve(n int64) bool // reports whether the bytes were available
	Release(n int64)
}

var (
	errTooLarge   = errors.New("the request is too large")
	errLargeInput = errors.New("the input of a call is too large")
	errNoMemory   = errors.New("no memory is left for inputs")
	errMalformed  = errors.New("the request is malformed")
)

// A reader reads a request's body and reserves memory for what it reads.
type reader struct {
	r      io.Reader
	memory Memory
	left   int64 // bytes that the current part may still have
	taken  int64
}

// Read implements io.Reader. It fails when no memory is left.
func (t *reader) Read(p []byte) (int, error) {
	if t.left <= 0 || t.taken >= maxRequest {
		return 0, errTooLarge
	}
	n, err := t.r.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	if !t.memory.Reserve(int64(n)) {
		return 0, errNoMemory
	}
	t.taken += int64(n)
	return n, err
}

// lenient accepts faults within a call, so that the error concerns that call alone.
var lenient = v2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// ReadCalls reads {"calls": […]}, one call after another. The memory of the inputs stays reserved, and the caller
// releases it; the rest is released. A wrong call is refused by itself. If it is the only one, its failure is the
// request's. Refusal has the answer to an error.
func ReadCalls(body io.Reader, memory Memory) (calls []Call, err error) {
	t := &reader{r: body, memory: memory, left: aroundInput}
	kept := int64(0)
	defer func() {
		if err != nil {
			kept = 0
		}
		memory.Release(t.taken - kept)
	}()
	dec := jsontext.NewDecoder(t, lenient)
	if err := expect(dec, '{', '"', '['); err != nil {
		return nil, err
	}
	t.left = maxRequest // an input that is too large is read to its end, so that the calls behind it can be read
	for dec.PeekKind() != ']' {
		if len(calls) == MaxCalls {
			return nil, AsError(Fail(ValueError, "a request has at most %d calls", MaxCalls))
		}
		c, err := readCall(dec)
		if err != nil {
			return nil, err
		}
		kept += int64(len(c.Input))
		calls = append(calls, c)
	}
	t.left = aroundInput
	if err := expect(dec, ']', '}'); err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, readError(err)
	}
	if len(calls) == 1 && calls[0].wrong != nil {
		return nil, calls[0].wrong
	}
	return calls, nil
}

// expect reads tokens of these kinds; a string must be the name "calls".
func expect(dec *jsontext.Decoder, kinds ...jsontext.Kind) error {
	for _, kind := range kinds {
		token, err := dec.ReadToken()
		if err != nil || token.Kind() != kind || kind == '"' && token.String() != "calls" {
			return readError(err)
		}
	}
	return nil
}

// readError returns the error of a read, or errMalformed if the read itself did not fail.
func readError(err error) error {
	if err == nil || err == io.EOF {
		return errMalformed
	}
	return err
}

// readCall reads one call. It returns an error if the fault cannot be assigned to a call.
func readCall(dec *jsontext.Decoder) (c Call, err error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return c, readError(err)
	}
	if err := v2.Unmarshal(raw, &c, v2.RejectUnknownMembers(true), lenient); err != nil {
		return c, AsError(Fail(ValueError, "a call has the fields id, tool and input, and no other"))
	}
	if !clientID.MatchString(c.ID) {
		return c, AsError(Fail(ValueError, "the id of a call must be 1 to 64 letters, digits and '-'"))
	}
	c.size = int64(len(c.Input))
	switch {
	case len(c.Tool) > proto.MaxToolName: // only inputs have memory reserved
		c.wrong = AsError(Fail(ValueError, "the name of a tool has at most %d bytes", proto.MaxToolName))
	case len(c.Input) > maxInput:
		c.wrong = errLargeInput
	case schema.TooDeep(c.Input):
		c.wrong = AsError(Fail(ValueError, "the input of a call is nested more than %d levels deep", schema.MaxDepth))
	case !raw.IsValid():
		c.wrong = AsError(Fail(ValueError, "a call must be valid Unicode, and no object in it may have a name twice"))
	}
	if c.wrong != nil {
		c.Tool, c.Input = proto.Shorten(c.Tool, proto.MaxToolName),
			nil // otherwise they would stay in memory unreserved
	}
	return c, nil
}
