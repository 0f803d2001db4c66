package openapi

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/proto"
)

// Check checks the values of a query key. Its errors are InvalidArgument and name the key and what it takes.
func (p Param) Check(values []string) error {
	if len(values) > 1 && !p.Repeat {
		return proto.Invalid(p.Name, "The query key %q is given %d times.", p.Name, len(values))
	}
	for _, v := range values {
		if err := p.checkValue(v); err != nil {
			return err
		}
	}
	return nil
}

// checkValue checks one value of a query key.
func (p Param) checkValue(v string) error {
	switch {
	case p.Choices != nil && !slices.Contains(p.Choices, v):
		return proto.Invalid(p.Name, "%s must be one of %s, not %.80q.", p.Name, strings.Join(p.Choices, ", "), v)
	case p.Kind == User && !proto.ValidUser(v):
		return proto.Invalid(p.Name, "%s %.80q: %s.", p.Name, v, proto.UserRule)
	case p.Kind == Whole && !isWhole(v, p.Max):
		return proto.Invalid(p.Name, "%s must be a whole number from 0%s, not %.80q.", p.Name, upTo(p.Max), v)
	case p.Kind == Flag && v != "true" && v != "false":
		return proto.Invalid(p.Name, "%s must be true or false, not %.80q.", p.Name, v)
	case p.Kind == Date && !isMoment(v):
		return proto.Invalid(p.Name, "%s must be a time such as 2006-01-02T15:04:05Z, not %.80q.", p.Name, v)
	case p.Kind == Mode && !isMode(v):
		return proto.Invalid(p.Name, "%s must be octal permission bits such as 0644, not %.80q.", p.Name, v)
	}
	return nil
}

// isWhole refuses a sign, which ParseInt accepts.
func isWhole(v string, most int64) bool {
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && n >= 0 && v[0] != '+' && (most == 0 || n <= most)
}

func upTo(most int64) string {
	if most == 0 {
		return " on"
	}
	return " to " + strconv.FormatInt(most, 10)
}

// isMode accepts up to four octal digits, with setuid, setgid and sticky bits, but not 0.
func isMode(v string) bool {
	n, err := strconv.ParseUint(v, 8, 32)
	return err == nil && n > 0 && n <= 0o7777
}

// isMoment accepts RFC 3339, which requires a time zone.
func isMoment(v string) bool {
	_, err := time.Parse(time.RFC3339, v)
	return err == nil
}
