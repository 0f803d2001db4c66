package attack

import (
	"errors"
	"slices"
	"strings"

	"berth/proto"
)

// Refused judges a request that the daemon must refuse with one of these codes. err is the daemon's answer. If it has
// one of the codes, Refused returns a description. Any other answer, including an internal error, is a breach. If
// there was no answer, or none from a berth daemon, the case is untried. A case that accepts any error as a refusal
// would count as held against a broken daemon.
func Refused(err error, codes ...proto.Code) (happened string, _ error) {
	var own *proto.Error
	switch {
	case err == nil:
		return "", Breached("it was accepted")
	case !errors.As(err, &own):
		return "", err
	case slices.Contains(codes, own.Code):
		return "refused with " + string(own.Code) + ": " + own.Message, nil
	// A daemon that is starting or stopping has refused nothing.
	case own.Code == proto.Unavailable:
		return "", err
	}
	return "", Breached("it was refused with %s (%s) rather than %s", own.Code, own.Message, codesText(codes))
}

// codesText returns text such as "not_found or expired".
func codesText(codes []proto.Code) string {
	var words []string
	for _, c := range codes {
		words = append(words, string(c))
	}
	return strings.Join(words, " or ")
}
