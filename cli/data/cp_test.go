package data

import "testing"

func TestParsePlace(t *testing.T) {
	for arg, want := range map[string]place{
		"c:/a":         {"c", "/a"},
		"c:":           {"c", ""},
		"c:a:b":        {"c", "a:b"},
		"./c:a":        {"", "./c:a"},
		"/c:a":         {"", "/c:a"},
		"dir/c:a":      {"", "dir/c:a"},
		"plain":        {"", "plain"},
		"-":            {"", "-"},
		":a":           {"", ":a"},
		"container_x:": {"container_x", ""},
	} {
		if got := parsePlace(arg); got != want {
			t.Errorf("%q: %+v", arg, got)
		}
	}
}
