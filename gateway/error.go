package gateway

import "berth/proto"

// A Refusal is an error with a code of its own for clients.
type Refusal struct {
	Code string // such as "container_not_found" or "container_expired"
	Err  *proto.Error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap lets edges find the proto.Error, which decides the status.
func (r *Refusal) Unwrap() error { return r.Err }

// An Interruption is the failure of a turn that has done work: the same request again would do that work again. What
// was done is in the container, if there is one.
type Interruption struct {
	Container *proto.ContainerRef
	Status    int    // the upstream's; 0: the one of Err
	Kind      string // the upstream's type of error; "": the one of the status
	Code      string // the upstream's error code, if it has one
	Err       *proto.Error
}

func (i *Interruption) Error() string { return "a turn was interrupted: " + i.Err.Error() }

// Unwrap lets edges find the proto.Error.
func (i *Interruption) Unwrap() error { return i.Err }
