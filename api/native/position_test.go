package native

import (
	"net/http"
	"testing"
)

// A position that is taken is one that this edge gives out: offsets from 0 on, and no other ones.
func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"", "0-0", "12-34", "12-34-end", "-1-0", "0--1", "9223372036854775807-0",
		"9223372036854775808-0", "+1-0", "1-2-3", "0x1-0", "-end"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, last string) {
		c := &call{r: &http.Request{Header: http.Header{"Last-Event-Id": {last}}}}
		at, err := c.resumePosition()
		if err != nil || at == nil {
			return
		}
		if at.Stdout < 0 || at.Stderr < 0 {
			t.Errorf("%q is %+v", last, at)
		}
	})
}
