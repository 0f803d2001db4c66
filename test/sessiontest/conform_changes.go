package sessiontest

import (
	"context"
	"slices"
	"testing"

	"berth/proto"
)

// changes checks that a job with many files has each change with the command that made it. Where the guest does not
// walk the directory at a command's end, it relies on the kernel's notifications, which a kernel can get wrong.
func (c conformance) changes(t *testing.T) {
	ctx := context.Background()
	st, s := c.session(t)
	for _, k := range []struct {
		text string
		want []string
	}{
		{"mkdir -p a ../k; touch $(seq 120)", nil},
		{"true", nil},
		{"cat 1 2 3 >/dev/null", nil},
		{"printf x >1", []string{"1"}},
		{"touch -d 2001-01-01 2", []string{"2"}},
		{"printf y >1; touch -d 2001-01-01 1", []string{"1"}},
		{"chmod 600 3", []string{"3"}},
		{"truncate -s 9 4", []string{"4"}},
		{"mkdir b; printf x >b/new", []string{"b/new"}},
		{"printf y >b/new", []string{"b/new"}},
		{"mv b/new a/new", []string{"a/new"}},
		{"mv a d", []string{"d/new"}},
		{"printf z >d/new", []string{"d/new"}},
		{"true", nil},
		{"ln 5 ../k/five", c.unlessGVisor("5")},
		{"printf x >>../k/five", []string{"5"}},
		{`python3 -c 'import mmap; f = open("4", "r+b"); mmap.mmap(f.fileno(), 9)[0] = 1'`, c.unlessGVisor("4")},
		{`exec 3>>6; mv 6 d/6; printf x >&3`, []string{"d/6"}},
		{"rm 7", nil},
		{"cp -a d e", []string{"e/6", "e/new"}},
		{"true", nil},
	} {
		r, err := s.Run(ctx, proto.Cmd{Command: k.text, JobID: "j"})
		if err != nil || r.Result.Result == nil || r.Result.Result.ReturnCode != 0 {
			t.Fatalf("%q: %v %+v", k.text, err, r.Result)
		}
		m, err := st.Jobs.Manifest(ctx, s, "j")
		if err != nil {
			t.Fatal(err)
		}
		made := m.Execs[len(m.Execs)-1].Produced
		if len(made) < 100 && !slices.Equal(made, k.want) { // the first command makes them all
			t.Errorf("%q made %q, want %q", k.text, made, k.want)
		}
	}
}

// unlessGVisor returns the path of a file whose change time moves, except under gVisor, where no walk finds it either.
func (c conformance) unlessGVisor(path string) []string {
	if c.class == proto.ClassGVisor {
		return nil
	}
	return []string{path}
}
