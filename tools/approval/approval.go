// Package approval holds what stored tools and tool calls from a container share: a person's decision on a request that
// waits for approval, the layout and listing of their records, and the pruning of old ones.
//
// The callers, tools/toolstore and tools/bridge, have record types and buckets of their own.
package approval

import (
	"context"
	"time"

	"berth/proto"
)

// MaxReason bounds the reason of a refusal, in bytes.
const MaxReason = 1000

// A Request is something that may wait for a decision.
type Request struct {
	Kind      string // "run" or "call", for messages
	ID        string
	State     string          // for messages
	Parked    bool            // it waits for a decision
	ExpiresAt *proto.Time     // set while Parked
	Decision  *proto.Decision // an earlier decision
	Gone      bool            // what waited has ended, so a decision is too late
	TooLate   string          // continues "run <id>" in the error of a late decision
}

// CheckReason checks the reason of a refusal.
func CheckReason(reason string) error {
	if len(reason) > MaxReason {
		return proto.Errorf(proto.InvalidArgument, "", "reason", "reason has %d bytes; %d is the limit", len(reason),
			MaxReason)
	}
	return nil
}

// Late reports whether a request has waited beyond its deadline.
func (r Request) Late(now time.Time) bool { return r.Parked && !now.Before(r.ExpiresAt.Time) }

// Decide returns the decision of the caller in ctx. A request takes one decision, in time; each later one gets a
// conflict. The caller stores the decision in the transaction in which it read the request.
func (r Request) Decide(ctx context.Context, now time.Time, reason string) (*proto.Decision, error) {
	if !r.Parked || r.Gone || r.Late(now) {
		return nil, r.Refused()
	}
	return &proto.Decision{By: proto.Actor(ctx), At: proto.At(now), Reason: reason}, nil
}

// Refused returns the error of a decision that came second or too late.
func (r Request) Refused() error {
	switch {
	case r.Parked:
		return proto.Errorf(proto.Expired, "", r.ID, "%s %s %s", r.Kind, r.ID, r.TooLate)
	case r.Decision != nil:
		return proto.Errorf(proto.Conflict, "", r.ID, "%s %s is %s: %s has already decided; an approval is for one %s",
			r.Kind, r.ID, r.State, r.Decision.By, r.Kind)
	}
	return proto.Errorf(proto.Conflict, "", r.ID, "%s %s is %s and does not wait for approval", r.Kind, r.ID, r.State)
}
