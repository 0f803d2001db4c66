package containerd

import (
	"slices"
	"testing"

	"berth/proto"
)

// TestIndexIsTheRecords checks that the index equals the records of containerd, also after a restart.
func TestIndexIsTheRecords(t *testing.T) {
	dir := t.TempDir()
	r := openIn(t, dir)
	id, spec := startTest(t, r, proto.ClassRunc)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = openIn(t, dir)
	other, _ := startTest(t, r, proto.ClassRunc)
	same := func(what string, want ...string) {
		t.Helper()
		records, err := r.client.ContainerService().List(r.ns(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, rec := range records {
			have = append(have, rec.ID)
		}
		got := r.index.sandboxes()
		for _, list := range [][]string{got, have, want} {
			slices.Sort(list)
		}
		if !slices.Equal(got, want) || !slices.Equal(have, want) {
			t.Errorf("%s: remembered %v, containerd has %v, want %v", what, got, have, want)
		}
	}
	same("one of before and one of now", id, other)
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); proto.CodeOf(err) != proto.Conflict {
		t.Errorf("removing a workspace in use since before: %v", err)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	same("after a stop", other)
	if err := r.RemoveWorkspace(t.Context(), spec.Workspace); err != nil {
		t.Errorf("removing it afterwards: %v", err)
	}
}
