package gateway

import "berth/proto"

// A Refusal is an error with its own code for clients.
type Refusal struct {
	Code string // such as "container_not_found" or "container_expired"
	Err  *proto.Error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the proto.Error, which decides the status.
func (r *Refusal) Unwrap() error { return r.Err }

// An Interruption is the failure of a turn that has done work. A retry by the client as a new turn would do that work
// again. The results of the work are in Container, if there is one.
type Interruption struct {
	Container *proto.ContainerRef
	Status    int    // the upstream's status; 0: the status of Err
	Kind      string // the upstream's error type; "": the type for the status
	Code      string // the upstream's error code, if it has one
	Err       *proto.Error
}

func (i *Interruption) Error() string { return "a turn was interrupted: " + i.Err.Error() }

// Unwrap returns the proto.Error.
func (i *Interruption) Unwrap() error { return i.Err }
