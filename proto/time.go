package proto

import "time"

// timeLayout is RFC 3339 in UTC with exactly six digits of a second, as SDKs send and expect.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// A Time is a moment on the wire.
type Time struct{ time.Time }

// At wraps t.
func At(t time.Time) Time { return Time{t.UTC()} }

// AtOrNil wraps t, or is nil for the zero time, which the wire writes as null.
func AtOrNil(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t.UTC()}
}

// MarshalText writes t in UTC with microseconds and a Z.
func (t Time) MarshalText() ([]byte, error) {
	return t.UTC().AppendFormat(nil, timeLayout), nil
}

// MarshalJSON is MarshalText in quotes; without it the embedded time's own would win.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(nil, `"`+timeLayout+`"`), nil
}
