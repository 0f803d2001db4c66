package codeapi

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Refusal returns the status and the failure that answer a request that cannot be read.
func Refusal(err error) (status int, f *Failure) {
	var slow net.Error
	switch own := FailureOf(err); {
	case own != nil:
		return http.StatusBadRequest, own
	case errors.Is(err, errLargeInput):
		return http.StatusRequestEntityTooLarge, Fail(ValueError, "an input has at most %d bytes; put what is larger "+
			"into a file", maxInput)
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge, Fail(ValueError, "a request has at most %d bytes; spread its calls "+
			"over several", maxRequest)
	case errors.Is(err, errNoMemory):
		return http.StatusTooManyRequests, Fail(RuntimeError, "the inputs of calls under way have reached their limit "+
			"of bytes; await some of the calls first")
	case errors.As(err, &slow) && slow.Timeout():
		return http.StatusRequestTimeout, Fail(ValueError, "the request took too long to arrive")
	}
	return http.StatusBadRequest, Fail(ValueError, `a request is {"calls": [{"id", "tool", "input"}]}`)
}

// Refuse answers a request with a failure. The rest of the request's body is not read.
func Refuse(w http.ResponseWriter, status int, f *Failure) {
	body, _ := json.Marshal(map[string]*Failure{"error": f})
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Connection", "close")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// A line is what the code gets for a call.
type line struct {
	ID     string          `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
}

// WriteLine writes the end of a call. The result is passed on unchanged, in one line.
func WriteLine(w io.Writer, id string, result []byte, failure *Failure) error {
	text, err := json.Marshal(line{id, result, failure}) // Marshal compacts raw values
	if err != nil {
		text, _ = json.Marshal(line{id, nil, Fail(RuntimeError, "the tool returned something that is not JSON")})
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// A Listed is a tool as code finds it.
type Listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Async       bool            `json:"async"`
}

// WriteList writes the tools that code may call.
func WriteList(w io.Writer, tools []Listed) error {
	for i, t := range tools {
		if len(t.InputSchema) == 0 {
			tools[i].InputSchema = json.RawMessage(`{"type":"object"}`)
		}
	}
	return json.NewEncoder(w).Encode(map[string][]Listed{"tools": tools})
}
