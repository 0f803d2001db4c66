package app

import (
	"time"

	"berth/proto"
)

// ParseMoment parses a time, or a duration before now. A report has a time, and a user in a hurry types "2h".
func ParseMoment(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	// A negative duration means a future time, which has no entries. It is refused below.
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, proto.Errorf(proto.InvalidArgument, "", flag, "--%s %q is no time; write it as "+
			"2006-01-02T15:04:05Z, or as 2h for two hours ago", flag, text)
	}
	return t, nil
}
