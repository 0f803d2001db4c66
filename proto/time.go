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
	return t.append(make([]byte, 0, len(timeLayout))), nil
}

// MarshalJSON is MarshalText in quotes; without it the embedded time's own would win.
func (t Time) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, len(timeLayout)+2), '"')
	return append(t.append(b), '"'), nil
}

// append is AppendFormat of timeLayout, which would read the layout anew for each of the dozen times that are written
// of a command.
func (t Time) append(b []byte) []byte {
	u := t.UTC()
	year, month, day := u.Date()
	if year < 0 || year > 9999 {
		return u.AppendFormat(b, timeLayout)
	}
	hour, minute, second := u.Clock()
	b = append(digits(b, year, 4), '-')
	b = append(digits(b, int(month), 2), '-')
	b = append(digits(b, day, 2), 'T')
	b = append(digits(b, hour, 2), ':')
	b = append(digits(b, minute, 2), ':')
	b = append(digits(b, second, 2), '.')
	return append(digits(b, u.Nanosecond()/1000, 6), 'Z')
}

// digits appends the last width digits of n.
func digits(b []byte, n, width int) []byte {
	at := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := len(b) - 1; i >= at; i-- {
		b[i] += byte(n % 10)
		n /= 10
	}
	return b
}
