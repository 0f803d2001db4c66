package proto

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What is written of a time is what package time would write.
func TestTime(t *testing.T) {
	times := []time.Time{
		{}, time.Unix(0, 0), time.Unix(1700000000, 999999999), time.Date(1, 2, 3, 4, 5, 6, 7000,
			time.FixedZone("", -5*3600)), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for range 1000 {
		times = append(times, time.Unix(rand.Int64N(1<<38), rand.Int64N(1e9)).In(
			time.FixedZone("", rand.IntN(24*3600)-12*3600)))
	}
	for _, at := range times {
		want := at.UTC().Format(timeLayout)
		text, err := At(at).MarshalText()
		quoted, jerr := At(at).MarshalJSON()
		if err != nil || jerr != nil || string(text) != want || string(quoted) != `"`+want+`"` {
			t.Errorf("%v is written %s and %s, want %s", at, text, quoted, want)
		}
	}
}
