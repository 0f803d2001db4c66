package code

import "berth/proto"

// Wire types that this package reads and writes.
type (
	Cell        = proto.Cell
	Outcome     = proto.Outcome
	ErrorDetail = proto.ErrorDetail
	Bundle      = proto.Bundle
	Progress    = proto.Progress
	Context     = proto.CodeContext
)

// A Program is a request to run code, and how the caller wants it run.
type Program struct {
	proto.Program
	Each  func(Progress) error // gets the output while the code runs in a named container; nil: none
	Shown string               // recorded in place of the code; "": the code is recorded
}
