package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"berth/code"
	"berth/proto"
)

// plotted precedes cells that draw.
const plotted = "import matplotlib.pyplot as plt\n"

// figures counts the results that are images.
func figures(res code.Outcome) (n int) {
	for _, b := range res.Rich {
		if b["image/png"] != nil {
			n++
		}
	}
	return n
}

// A figure that cannot be drawn is an error of its own cell, once. It keeps no other figure from being shown.
func TestAFigureThatCannotBeDrawn(t *testing.T) {
	c := call[proto.Container](t, base, 201, "POST", "/v1/containers", "{}")
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	cell := func(t *testing.T, text string) code.Outcome {
		t.Helper()
		return call[code.Outcome](t, base, 200, "POST", "/v1/containers/"+c.ID+"/contexts/main/run",
			asJSON(t, code.Cell{Code: text}))
	}
	const good = "plt.figure(); plt.plot([1, 2])\n"
	const bad = "plt.figure(); plt.text(1e7, 1, 'far')\n"
	for name, c := range map[string]struct {
		text, err, name, stderr string
		figures                 int
	}{
		"mathtext": {text: "plt.ylabel(r'$\\text{CO}_2$')", err: "Unknown symbol: \\text", name: "ValueError"},
		"between others": {text: good + bad + good + "7", err: "too large", name: "ValueError",
			figures: 2},
		"two of them": {text: bad + bad + good, err: "too large", name: "ValueError", stderr: "too large", figures: 1},
		"after an error": {text: good + bad + "1/0", err: "1/0", name: "ZeroDivisionError", stderr: "too large",
			figures: 1},
		"shown": {text: bad + good + "plt.show()\nprint('after')", err: "plt.show()", name: "ValueError",
			figures: 1},
		"shown and taken": {text: bad + good + "try: plt.show()\nexcept ValueError: print('taken')", figures: 1},
		"as a value":      {text: bad + "plt.gcf()", err: "too large", name: "ValueError"},
		"displayed":       {text: bad + "display(plt.gcf())", err: "display(plt.gcf())", name: "ValueError"},
		"interrupted": {text: good + "class Slow(plt.Line2D):\n  def draw(self, r): raise KeyboardInterrupt\n" + good +
			"plt.gca().add_line(Slow([1], [1]))\n" + good, err: "KeyboardInterrupt", name: "KeyboardInterrupt",
			figures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			res := cell(t, plotted+c.text)
			got := ""
			if res.ErrorDetail != nil {
				got = res.ErrorDetail.Name
			}
			if got != c.name || !strings.Contains(res.Error, c.err) || strings.Contains(res.Error, "<berth>") {
				t.Errorf("error %s: %s", got, res.Error)
			}
			if stderr := strings.Join(res.Logs.Stderr, ""); (stderr != "") != (c.stderr != "") ||
				!strings.Contains(stderr, c.stderr) {
				t.Errorf("on standard error: %q", stderr)
			}
			if n := figures(res); n != c.figures {
				t.Errorf("%d figures, want %d", n, c.figures)
			}
			if next := cell(t, "1 + 1"); next.Error != "" || !slices.Equal(next.Results, []string{"2"}) {
				t.Errorf("the next cell: results %q, error %s", next.Results, next.Error)
			}
		})
	}
}

// The value of the last expression follows the figures.
func TestTheMainResultAfterFigures(t *testing.T) {
	for _, text := range []string{
		"plt.plot([1]); plt.figure(); plt.plot([2])\n'the value'",
		"plt.plot([1]); plt.show()\ndisplay(1)\n'the value'",
	} {
		res := runCode(t, proto.Program{Code: plotted + text})
		if len(res.Results) != 3 || res.MainResult == nil || *res.MainResult != 2 || res.Results[2] != "'the value'" {
			t.Errorf("%s: main result %v of %q", text, res.MainResult, res.Results)
		}
	}
	if res := runCode(t, proto.Program{Code: plotted + "x = plt.plot([1])"}); res.MainResult != nil || figures(res) != 1 {
		t.Errorf("without a value: main result %v of %q", res.MainResult, res.Results)
	}
}
