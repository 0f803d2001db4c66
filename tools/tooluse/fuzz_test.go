package tooluse

import (
	"encoding/json"
	"testing"

	"berth/proto"
	"berth/tools/toolinput"
)

// Any block of a model is read, or refused with the name of the wrong field.
func FuzzBlock(f *testing.F) {
	for _, seed := range []string{
		`{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"ls"}}`,
		`{"type":"tool_use","id":"t","name":"bash","input":{"restart":true}}`,
		`{"type":"tool_use","id":"t","name":"str_replace_based_edit_tool","input":{"command":"view","path":"/x","view_range":[1,-1]}}`,
		`{"type":"tool_use","id":"t","name":"text_editor_code_execution","input":{"command":"str_replace","path":"/x","old_str":"a","new_str":null}}`,
		`{"type":"tool_use","id":"t","name":"str_replace_based_edit_tool","input":{"command":"insert","insert_line":1e3,"new_str":"\ud800"}}`,
		`{"type":"tool_use","id":"t","name":"bash","input":[]}`,
		`{"type":"tool_use","id":"t","name":"bash","input":"ls"}`, `{"type":"tool_use","id":"","name":"bash"}`, `[]`,
		`null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var u Use
		if json.Unmarshal(data, &u) != nil {
			return
		}
		if err := Check(u); err != nil {
			if proto.CodeOf(err) != proto.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		var in bashInput
		if err := toolinput.Decode(u.Input, &in); err != nil && proto.CodeOf(err) != proto.InvalidArgument {
			t.Fatal(err)
		}
		edit, err := editorInput(u.Input)
		if err != nil && proto.CodeOf(err) != proto.InvalidArgument {
			t.Fatal(err)
		}
		if err == nil && edit.Command == "insert" && edit.NewStr != nil && edit.InsertText == nil {
			t.Fatal("the text of an insert is lost")
		}
	})
}
