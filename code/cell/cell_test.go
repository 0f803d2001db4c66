package cell

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/guest/output"
	"berth/proto"
)

// A reporter writes reports as a driver does.
type reporter struct{ *Cell }

func newReporter(limit int64) reporter { return reporter{New(0, output.NewBudget(limit))} }

func (r reporter) put(kind byte, data string) {
	for {
		piece := data[:min(len(data), maxPiece)]
		r.Receive(proto.Stdout, fmt.Appendf(nil, "\x1e%s %c %d\n%s", r.nonce, kind, len(piece), piece))
		if data = data[len(piece):]; data == "" {
			return
		}
	}
}

// result reports a result of one media type.
func (r reporter) result(kind, name, data string) {
	r.put(kindResult, kind)
	r.put(kindName, name)
	r.put(kindData, data)
}

func (r reporter) failure(message string) {
	r.put(kindError, "")
	r.put(kindName, "message")
	r.put(kindData, message)
}

// The value of the last expression is the last result, whatever was reported after it and however much before it.
func TestTheMainResultIsLastAndKept(t *testing.T) {
	big := strings.Repeat("x", maxReported/2-100)
	value := func(data string) func(reporter) {
		return func(r reporter) { r.result("value", "text/plain", data) }
	}
	display := func(name, data string) func(reporter) {
		return func(r reporter) { r.result("display", name, data) }
	}
	displays := func(n int) func(reporter) {
		return func(r reporter) {
			for i := range n {
				r.result("display", "text/plain", fmt.Sprint(i))
			}
		}
	}
	failure := func(r reporter) { r.failure("e") }
	picture := func(r reporter) { r.put(kindName, "image/png"); r.put(kindData, big+big+big) }
	for name, c := range map[string]struct {
		reports     []func(reporter)
		results     int
		first, last string // last "": there is no main result
		cut         bool
	}{
		"none":                  {reports: []func(reporter){display("text/plain", "d")}, results: 1, first: "d"},
		"a figure after it":     {[]func(reporter){value("v"), display("text/plain", "f")}, 2, "f", "v", false},
		"199 results before it": {[]func(reporter){displays(199), value("v")}, 200, "0", "v", false},
		"200 results before it": {[]func(reporter){displays(200), value("v")}, 200, "0", "v", true},
		"300 results before it": {[]func(reporter){displays(300), value("v")}, 200, "0", "v", true},
		"300 results after it":  {[]func(reporter){value("v"), displays(300)}, 200, "0", "v", true},
		"all bytes before it": {[]func(reporter){display("a", big), display("b", big), value(big)}, 2, "<a>", big,
			true},
		"a value that is too large": {[]func(reporter){value("v"), picture}, 1, "v", "v", true},
		"two values":                {[]func(reporter){value("v"), value("w")}, 2, "v", "w", false},
		"results and an error":      {[]func(reporter){displays(300), failure}, 200, "0", "", true},
		"an error and a value":      {[]func(reporter){display("a", big+big), failure, value("v")}, 2, "<a>", "v", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter(1 << 30)
			defer r.Close()
			for _, report := range c.reports {
				report(r)
			}
			res := r.Outcome()
			if len(res.Results) != c.results || len(res.Rich) != c.results || res.Results[0] != c.first ||
				res.Truncated != c.cut {
				t.Errorf("%d results, the first %.20q, truncated %v", len(res.Results), res.Results[0], res.Truncated)
			}
			last := res.Results[len(res.Results)-1]
			if (res.MainResult == nil) != (c.last == "") || res.MainResult != nil &&
				(*res.MainResult != c.results-1 || last != c.last) {
				t.Errorf("the main result is %v, the last one %.20q", res.MainResult, last)
			}
		})
	}
}

// The error of a cell is reported even if its results have used all memory, and the memory is given back.
func TestTheErrorIsKept(t *testing.T) {
	big := strings.Repeat("x", maxReported/4)
	for name, c := range map[string]struct {
		limit   int64
		message string
		want    string
		results int
	}{
		"results of the maximum": {1 << 30, strings.Repeat("m", 1000), strings.Repeat("m", 1000), 3},
		"little memory":          {3 * maxReported / 4, "m", "m", 2},
		"no memory":              {0, "m", "the code failed; the daemon had no room for its error", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReporter(c.limit)
			for range 4 {
				r.result("display", "text/plain", big)
			}
			r.failure(c.message)
			res := r.Outcome()
			if res.Error != c.want || len(res.Results) != c.results || !res.Truncated {
				t.Errorf("error %.80q, %d results, truncated %v", res.Error, len(res.Results), res.Truncated)
			}
			r.Close()
			if n := r.budget.Used(); n != 0 {
				t.Errorf("%d bytes are held by a closed cell", n)
			}
		})
	}
}

// Data that are left out free their memory at once.
func TestDroppedDataAreGivenBack(t *testing.T) {
	r := newReporter(1 << 20)
	defer r.Close()
	for range 50 {
		r.result("display", "image/png", strings.Repeat("x", 2<<20))
	}
	r.result("display", "text/plain", "small")
	if res := r.Outcome(); !slices.Contains(res.Results, "small") || r.budget.Used() != int64(len("small")) {
		t.Errorf("%d results, %d bytes held", len(res.Results), r.budget.Used())
	}
}
