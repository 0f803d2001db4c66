package attack

import (
	"errors"
	"slices"
	"strings"

	"berth/proto"
)

// Refused is for a request that the daemon must refuse with one of these codes: err is what it answered. That it did
// so is what happened; anything else it answered, an internal error among them, is a breach. An answer that did not
// come, or none that a daemon of ours would give, leaves the case untried. A case that takes any error for a refusal
// would hold against a daemon that is broken.
func Refused(err error, codes ...proto.Code) (happened string, _ error) {
	var own *proto.Error
	switch {
	case err == nil:
		return "", Breached("it was accepted")
	case !errors.As(err, &own):
		return "", err
	case slices.Contains(codes, own.Code):
		return "refused with " + string(own.Code) + ": " + own.Message, nil
	// A daemon that is just starting or stopping has refused nothing.
	case own.Code == proto.Unavailable:
		return "", err
	}
	return "", Breached("it was refused with %s (%s) rather than %s", own.Code, own.Message, codesText(codes))
}

// codesText writes "not_found or expired".
func codesText(codes []proto.Code) string {
	var words []string
	for _, c := range codes {
		words = append(words, string(c))
	}
	return strings.Join(words, " or ")
}
