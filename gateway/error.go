package gateway

import (
	"io"
	"net/http"

	"berth/proto"
)

// A Refusal is an error with a code of its own for clients.
type Refusal struct {
	Code string // "container_not_found", "container_expired" or "thread_unsupported_request"
	Err  *proto.Error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap lets edges find the proto.Error, which decides the status.
func (r *Refusal) Unwrap() error { return r.Err }

// refuseContainer gives an error about the container that a request names its code.
func refuseContainer(err error) error {
	switch e := proto.AsError(err); e.Code {
	case proto.NotFound:
		return &Refusal{"container_not_found", e}
	case proto.Expired:
		return &Refusal{"container_expired", e}
	}
	return err
}

// An Interruption is the end of a turn by an error, once something was done for it: the same request again would do
// that again. Its container, if it has one, has what was done.
type Interruption struct {
	Container *proto.ContainerRef
	Status    int    // the upstream's; 0: it is Err's
	Kind      string // the upstream's type of error; "": it is the status's
	Code      string // the upstream's error_code, if it has one
	Err       *proto.Error
}

func (i *Interruption) Error() string { return "a turn was interrupted: " + i.Err.Error() }

// Unwrap lets edges find the proto.Error.
func (i *Interruption) Unwrap() error { return i.Err }

// maxErrorBody bounds how much of an upstream's error is read, in bytes.
const maxErrorBody = 1 << 20

// answeredBy is what an answer of the upstream's that is an error says.
func answeredBy(res *http.Response, ref *proto.ContainerRef) *Interruption {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what is missing is not said
	i := saidBy(body, ref)
	i.Status = res.StatusCode
	return i
}

// saidBy is what an upstream's error body says.
func saidBy(body []byte, ref *proto.ContainerRef) *Interruption {
	i := &Interruption{Container: ref, Err: proto.Errorf(proto.Internal, "", "upstream",
		"the upstream failed in the middle of the turn")}
	o, err := parseObject(body)
	if err != nil {
		return i
	}
	if o, err = parseObject(o.get("error")); err != nil {
		return i
	}
	i.Kind = o.text("type")
	if m := o.text("message"); m != "" {
		i.Err.Message = m
	}
	if details, err := parseObject(o.get("details")); err == nil {
		i.Code = details.text("error_code")
	}
	return i
}
