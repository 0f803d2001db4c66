package term

import (
	"slices"
	"testing"
	"time"
)

// TestFit checks that the widest columns give way, but not the first, and none below its head.
func TestFit(t *testing.T) {
	head := []string{"ID", "STATE", "DESCRIPTION"}
	for _, c := range []struct {
		widths []int
		total  int
		want   []int
	}{
		{[]int{32, 7, 60}, 80, []int{32, 7, 37}},
		{[]int{32, 7, 60}, 0, []int{32, 7, 60}},
		{[]int{32, 7, 20}, 80, []int{32, 7, 20}},
		{[]int{32, 40, 40}, 80, []int{32, 22, 22}},
		{[]int{90, 7, 60}, 80, []int{90, 7, 11}},
	} {
		got := slices.Clone(c.widths)
		if fit(got, head, c.total); !slices.Equal(got, c.want) {
			t.Errorf("%v in %d became %v, want %v", c.widths, c.total, got, c.want)
		}
	}
	for text, want := range map[string]string{"plain": "plain", "a long text": "a lon…", "漢字漢字": "漢字…"} {
		if got := cut(text, 6); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestDurations checks the units of times in tables.
func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		-time.Second:                  {"now", "0 ms"},
		300 * time.Microsecond:        {"0s", "<1 ms"},
		12500 * time.Microsecond:      {"0s", "12 ms"},
		1234 * time.Millisecond:       {"1s", "1.23 s"},
		90 * time.Second:              {"90s", "About a minute"},
		119 * time.Minute:             {"119m", "2 hours"},
		47 * time.Hour:                {"47h", "47 hours"},
		29*24*time.Hour + time.Second: {"29d", "4 weeks"},
	} {
		if got := [2]string{Brief(d), Took(d)}; got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestFilters checks values of all kinds, and names that have dots.
func TestFilters(t *testing.T) {
	type item struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels,omitempty"`
		Ports  []int             `json:"ports,omitempty"`
		Size   int64             `json:"size"`
		Hidden string            `json:"-"`
	}
	list := []item{{Name: "a/b", Labels: map[string]string{"team.x": "red"}, Ports: []int{80, 8080}, Size: 2000000},
		{Name: "c"}}
	for text, want := range map[string]int{"name=a*": 1, "name=a/*": 1, "name!=c": 1, "name=*": 2, "labels.team.x=red": 1,
		"labels.team.x=": 1, "labels.team.x!=red": 1, "ports=8080": 1, "ports=81": 0, "size=2000000": 1, "name=[ac]*": 2} {
		var f Filters
		if err := f.Add(text); err != nil {
			t.Fatal(text, err)
		}
		if got, err := filtered(f, list); err != nil || len(got) != want {
			t.Errorf("%s kept %d items, want %d: %v", text, len(got), want, err)
		}
	}
	for _, text := range []string{"name", "=x", "name=[", "!=x"} {
		if new(Filters).Add(text) == nil {
			t.Errorf("%q is a filter", text)
		}
	}
	if _, err := filtered(Filters{{field: "Hidden", want: "x"}}, list); err == nil {
		t.Error("an unknown field keeps nothing, and says nothing")
	}
}
