package toolstore_test

import (
	"encoding/json"
	"testing"

	"berth/proto"
	"berth/tools/toolstore"
)

// Another owner's tools and runs do not exist, by whatever name.
func TestOtherOwnersHaveNothing(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	made := b.make(t, tool("mine", "def run(input):\n    return 1", review))
	run, _, err := b.Run(t.Context(), owner, made.Name, toolstore.RunRequest{Input: json.RawMessage("{}")})
	if err != nil || run.State != proto.RunParked {
		t.Fatalf("%+v, %v", run, err)
	}
	const other = "somebody-else"
	for _, name := range []string{made.ID, made.Name} {
		_, err := b.Get(other, name, 0)
		refused(t, err, proto.NotFound, name, "")
		_, err = b.Versions(other, name)
		refused(t, err, proto.NotFound, name, "")
		_, err = b.Change(t.Context(), other, name, toolstore.ChangeTool{})
		refused(t, err, proto.NotFound, name, "")
		_, _, err = b.Run(t.Context(), other, name, toolstore.RunRequest{})
		refused(t, err, proto.NotFound, name, "")
		_, err = b.Delete(t.Context(), other, name)
		refused(t, err, proto.NotFound, name, "")
	}
	_, err = b.GetRun(other, run.ID)
	refused(t, err, proto.NotFound, run.ID, "")
	_, err = b.Approve(t.Context(), other, run.ID)
	refused(t, err, proto.NotFound, run.ID, "")
	_, err = b.Refuse(t.Context(), other, run.ID, toolstore.Refusal{})
	refused(t, err, proto.NotFound, run.ID, "")
	if list, err := b.List(other); err != nil || len(list) > 0 {
		t.Errorf("tools %v, %v", list, err)
	}
	if list, more, err := b.Runs(other, toolstore.Filter{}); err != nil || more || len(list) > 0 {
		t.Errorf("runs %v, %v", list, err)
	}
}
