package pid1

import (
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// TestFilesHaveNamesOfOwners checks that stat and list name owner and group, and tell what links lead to.
func TestFilesHaveNamesOfOwners(t *testing.T) {
	w := newWorld(t, false)
	w.run(wire.Command{User: "root", Dir: w.workspace, Text: "mkdir d; touch d/root d/number; " +
		"chown 54321:54321 d/number; ln -s root d/file; ln -s . d/directory; ln -s nothing d/broken"})
	list, _, err := w.List(short(t), proto.UserDefault, "d")
	must(t, err)
	got := map[string]proto.FileInfo{}
	for _, fi := range list {
		one, err := w.Stat(short(t), proto.UserDefault, fi.Path)
		must(t, err)
		if one.Owner != fi.Owner || one.Group != fi.Group || one.TargetType != fi.TargetType {
			t.Errorf("stat %+v, list %+v", one, fi)
		}
		got[fi.Path[len(w.workspace)+len("/d/"):]] = fi
	}
	if f := got["root"]; f.Owner != "root" || f.Group != "root" || f.TargetType != "" {
		t.Errorf("%+v", f)
	}
	if f := got["number"]; f.Owner != "" || f.Group != "" || f.UID != 54321 {
		t.Errorf("%+v", f)
	}
	for name, want := range map[string]proto.FileType{"file": proto.TypeFile, "directory": proto.TypeDirectory,
		"broken": ""} {
		if f := got[name]; f.Type != proto.TypeSymlink || f.TargetType != want {
			t.Errorf("%s: %+v, want %q", name, f, want)
		}
	}
}
