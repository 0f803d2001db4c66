package code_test

import (
	"slices"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
)

// The value of the last expression is the last result and marked, also with too many results.
func TestTheMainResult(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for _, c := range []struct {
		language, text, main string // main "": none
		results              int
	}{
		{"python", "for i in range(250): display(i)\n'the value'", "'the value'", 200},
		{"python", "display(1)\nNone", "", 1},
		{"js", "for (let i = 0; i < 250; i++) display(i); 'the value'", "'the value'", 200},
	} {
		res := b.once(t, proto.Program{Code: c.text, Language: c.language, Container: s.ID()})
		if len(res.Results) != c.results || len(res.Rich) != c.results {
			t.Errorf("%s: %d results, %d bundles", c.text, len(res.Results), len(res.Rich))
			continue
		}
		if (res.MainResult == nil) != (c.main == "") || res.MainResult != nil &&
			(*res.MainResult != c.results-1 || res.Results[c.results-1] != c.main) {
			t.Errorf("%s: the main result is %v; results %q", c.text, res.MainResult, res.Results)
		}
	}
}

// A value is shown without a form that it cannot make. Why is printed, as IPython does.
func TestAValueWhoseFormsFail(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	const class = "class A:\n  def __repr__(self): return 'as text'\n"
	for name, c := range map[string]struct {
		text, stderr string
		forms        []string
	}{
		"a method": {class + "  def _repr_html_(self): raise KeyError('h')\nA()", "KeyError: 'h'", []string{"text/plain"}},
		"one of two": {class + "  def _repr_html_(self): raise KeyError('h')\n  def _repr_svg_(self): return '<svg/>'\nA()",
			"KeyError: 'h'", []string{"image/svg+xml", "text/plain"}},
		"all forms at once": {class + "  def _repr_mimebundle_(self, include, exclude): raise OSError('m')\n" +
			"  def _repr_latex_(self): return '$x$'\nA()", "OSError: m", []string{"text/latex", "text/plain"}},
		"the caller is asked for": {class + "  def _repr_mimebundle_(self, include, exclude): return {'a/b': 'c'}\nA()", "",
			[]string{"a/b", "text/plain"}},
		"no method": {class + "  _repr_html_ = None\nA()", "", []string{"text/plain"}},
		"a metaclass": {"class M(type):\n  def __getattr__(c, n): raise KeyError(n)\nclass A(metaclass=M):\n" +
			"  def __repr__(self): return 'as text'\nA()", "", []string{"text/plain"}},
		"no media type": {class + "  def _repr_mimebundle_(self, **k): return {1: 2, 'a/b': 'c'}\nA()", "",
			[]string{"a/b", "text/plain"}},
		"no error text": {"class E(Exception):\n  def __str__(self): raise KeyError('e')\n" + class +
			"  def _repr_html_(self): raise E\nA()", "E: <exception str() failed>", []string{"text/plain"}},
		"no such form": {class + "  def _repr_html_(self): raise NotImplementedError\nA()", "", []string{"text/plain"}},
		"not JSON": {class + "class B:\n  def __str__(self): raise OSError('s')\n" +
			"class C(A):\n  def _repr_json_(self): return [B()]\nC()", "OSError: s", []string{"text/plain"}},
		"displayed": {class + "  def _repr_html_(self): return 1/0\ndisplay(A())", "return 1/0", []string{"text/plain"}},
	} {
		t.Run(name, func(t *testing.T) {
			res := b.once(t, proto.Program{Code: c.text, Container: s.ID()})
			if res.Error != "" || !slices.Equal(res.Results, []string{"as text"}) {
				t.Fatalf("results %q, error %q", res.Results, res.Error)
			}
			var forms []string
			for form := range res.Rich[0] {
				forms = append(forms, form)
			}
			slices.Sort(forms)
			stderr := strings.Join(res.Logs.Stderr, "")
			if !slices.Equal(forms, c.forms) || (stderr != "") != (c.stderr != "") || !strings.Contains(stderr, c.stderr) {
				t.Errorf("forms %v, on standard error %q", forms, stderr)
			}
		})
	}
}
