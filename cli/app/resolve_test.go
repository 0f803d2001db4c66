package app

import (
	"strings"
	"testing"

	"berth/proto"
)

func TestPick(t *testing.T) {
	all := []candidate{
		{"container_0000000000000000000abc", "web"}, {"container_0000000000000000001abd", ""},
		{"container_0000000000000000001abe", "abd"}, {"container_1111111111111111111abc", "dup"},
		{"container_2222222222222222222fff", "dup"},
	}
	tests := []struct{ text, id, err string }{
		{"container_0000000000000000000abc", all[0].id, ""},
		{"web", all[0].id, ""},
		{"abd", all[2].id, ""}, // a name wins over the end of an ID
		{"container_11111111", all[3].id, ""},
		{"22222222", all[4].id, ""},
		{"0abc", all[0].id, ""},
		// All IDs begin with it, and the next command may be rm.
		{"container_", "", "too little of an ID"},
		{"c", "", "too little of an ID"},
		{"container_1", "", "too little of an ID"},
		{"2222222", "", "too little of an ID"},
		{"fff", "", "no container is called"}, // too short for the end of an ID
		{"dup", "", "may be any of several containers: container_1111111111111111111abc, " +
			"container_2222222222222222222fff"},
		{"00000000", "", "may be any of several"},
		{"nosuch", "", "no container is called"},
		{"", "", "empty"},
	}
	for _, tt := range tests {
		id, err := pick("container", proto.ContainerPrefix, tt.text, all)
		if id != tt.id || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.text, id, err)
		}
	}
}

// TestNewest checks that the newest command is never an interpreter, in any state.
func TestNewest(t *testing.T) {
	list := []proto.Exec{
		{ID: "a", Command: "sleep 9"}, {ID: "b", Command: "python context main"},
		{ID: "c", Command: "js interpreter for run_code"},
	}
	if id, err := newest("container_x", list); id != "a" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := newest("container_x", list[1:]); proto.CodeOf(err) != proto.NotFound {
		t.Error(err)
	}
	for _, e := range []proto.Exec{
		{Command: "python context main", Background: true}, {Command: "python: context main"},
		{Command: "make context main"}, {Command: "python context a b"}, {Argv: []string{"python"}},
	} {
		if IsInterpreter(e) {
			t.Errorf("%+v was taken for an interpreter", e)
		}
	}
}
