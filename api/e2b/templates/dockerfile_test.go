package templates

import (
	"slices"
	"strings"
	"testing"

	"berth/proto"
)

var plain = base{ref: "debian:12", user: usualUser, dir: usualDir, plain: true}

const someHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// A step becomes the lines of a Dockerfile that mean the same.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  Step
		names []string
		want  []string
	}{
		{"run", Step{Type: "RUN", Args: []string{"cat <<EOF >a && echo \"$X\"\nhi\nEOF"}}, nil,
			[]string{`RUN ["/bin/sh","-c","if [ -x /bin/bash ]; then exec /bin/bash -c \"$0\"; fi; exec /bin/sh -c \"$0\"",` +
				`"cat \u003c\u003cEOF \u003ea \u0026\u0026 echo \"$X\"\nhi\nEOF"]`}},
		{"env", Step{Type: "ENV", Args: []string{"A", `say "$B" \n \$C`, "B", ""}}, nil,
			[]string{`ENV A="say \"$B\" \\n \$C"`, `ENV B=""`}},
		{"user", Step{Type: "USER", Args: []string{"root"}}, nil, []string{"USER root"}},
		{"copy", Step{Type: "COPY", Args: []string{"a.txt", "/opt/", "root:root", "0755"}}, []string{"a.txt"},
			[]string{`COPY --chown=root:root --chmod=0755 ["copy-1/a.txt","/opt/"]`}},
		{"copy what a pattern found", Step{Type: "COPY", Args: []string{"**/*.py", "$DEST"}},
			[]string{"x/b.py", "a.py", "pkg", "pkg/c.py"},
			[]string{`COPY --chown=user ["copy-1/a.py","copy-1/pkg","copy-1/x/b.py","$DEST/"]`}},
		{"copy all", Step{Type: "COPY", Args: []string{".", "/app"}}, []string{".", "a"},
			[]string{`COPY --chown=user ["copy-1/.","/app"]`}},
		{"copy an odd name", Step{Type: "COPY", Args: []string{`it's [1] "$x".txt`, "/"}}, []string{`it's [1] "$x".txt`},
			[]string{`COPY --chown=user ["copy-1/it\\'s [[]1] \\\"\\$x\\\".txt","/"]`}},
	} {
		p, err := makePlan(Recipe{Steps: []Step{c.step}}, plain, [][]string{c.names})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, l := range p.lines {
			if l.step == "1" {
				got = append(got, l.text)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// The builder's names and lines lead back to the steps of the template.
func TestStepsOfThePlan(t *testing.T) {
	p, err := makePlan(Recipe{Steps: []Step{{Type: "ENV", Args: []string{"A", "1"}},
		{Type: "RUN", Args: []string{"make", "root"}}, {Type: "RUN", Args: []string{"true"}}}}, plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Split(p.text(), "\n")
	for i, l := range text {
		if strings.Contains(l, `"make"`) && (p.stepOf(i+1) != "2" || text[i-1] != "USER root" || text[i+1] != "USER user") {
			t.Errorf("line %d is of step %q, between %q and %q", i+1, p.stepOf(i+1), text[i-1], text[i+1])
		}
	}
	// 1 is FROM, 2 makes the user, 3 is WORKDIR
	for name, want := range map[string]string{"[4/5] RUN make": "2", "[stage-0 5/5] RUN true": "3", "[1/5] FROM x": stepBase} {
		if l, ok := p.lineOf(name); !ok || l.step != want {
			t.Errorf("%s is of step %q, want %q", name, l.step, want)
		}
	}
	for _, name := range []string{"", "[internal] load", "[9/9] RUN x", "exporting"} {
		if l, ok := p.lineOf(name); ok {
			t.Errorf("%q is of step %q", name, l.step)
		}
	}
}

// What cannot be honored is refused, and the error names the field.
func TestRefusedRecipes(t *testing.T) {
	steps := func(s ...Step) Recipe { return Recipe{FromImage: "debian:12", Steps: s} }
	for field, r := range map[string]Recipe{
		"fromImage":         {},
		"fromImageRegistry": {FromImage: "a", Registry: []byte(`{"type":"registry","username":"a","password":"b"}`)},
		"startCmd":          {FromImage: "a", StartCmd: "a\x00"},
		"readyCmd":          {FromImage: "a", ReadyCmd: strings.Repeat("a", maxCommand+1)},
		"steps":             {FromImage: "a", Steps: make([]Step, maxSteps+1)},
		"steps[0].type":     steps(Step{Type: "ONBUILD", Args: []string{"RUN true"}}),
		"steps[1].args":     steps(Step{Type: "RUN", Args: []string{"true"}}, Step{Type: "USER", Args: []string{"a\nRUN b"}}),
		"steps[0].args[1]":  steps(Step{Type: "RUN", Args: []string{"true", "$(id)"}}),
		"steps[0].args[0]":  steps(Step{Type: "ENV", Args: []string{"A B", ""}}),
		"steps[0].args[3]":  steps(Step{Type: "COPY", Args: []string{"a", "b", "", "u+x"}, FilesHash: someHash}),
		"steps[0].filesHash": steps(Step{Type: "COPY", Args: []string{"a", "b"},
			FilesHash: "../../../../etc/passwd"}),
	} {
		if err := r.check(); proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := (Recipe{FromImage: "a\nRUN b"}).check(); err == nil {
		t.Error("an image may have a second line")
	}
	if err := (Recipe{FromImage: "a", FromTemplate: "b"}).check(); err == nil {
		t.Error("a template is built on two things")
	}
}

// FuzzPlan checks that no step can write more than its own lines.
func FuzzPlan(f *testing.F) {
	f.Add("RUN", "make", "root", "")
	f.Add("COPY", "a b", "/x", "0644")
	f.Add("ENV", "A", "\\", "")
	f.Add("WORKDIR", "/a \" b", "", "")
	f.Fuzz(func(t *testing.T, kind, a, b, c string) {
		s := Step{Type: kind, Args: []string{a, b}, FilesHash: someHash}
		switch kind {
		case "WORKDIR", "USER":
			s.Args = []string{a}
		case "COPY":
			s.Args = []string{a, b, "", c}
		}
		r := Recipe{FromImage: "debian:12", Steps: []Step{s}}
		if r.check() != nil {
			return
		}
		p, err := makePlan(r, plain, [][]string{{a}})
		if err != nil {
			return
		}
		if n := strings.Count(p.text(), "\n"); n != len(p.lines) {
			t.Errorf("%d lines, want %d: %q", n, len(p.lines), p.text())
		}
	})
}

func TestNames(t *testing.T) {
	for text, want := range map[string][]string{
		"App": {"app:latest"}, "app:v1": {"app:v1"}, "team/app:default": {"team/app:latest"},
	} {
		if n, err := ParseName(text, nil); err != nil || !slices.Equal(n.images(), want) {
			t.Errorf("%s: %v, %v", text, n.images(), err)
		}
	}
	if n, err := ParseName("app:v1", []string{"v1", "stable"}); err != nil || len(n.Tags) != 2 {
		t.Errorf("%v, %v", n, err)
	}
	for _, text := range []string{"", "a b", "registry.test/app", "app@sha256:" + someHash, "sha256:" + someHash,
		"app:6f1c2d34-0000-4000-8000-1234567890ab", "-a", "../a"} {
		if n, err := ParseName(text, nil); err == nil {
			t.Errorf("%q is %v", text, n)
		}
	}
}
