package daemon_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"berth/code"
	"berth/proto"
)

// A figure comes with what it shows, as data. Numbers, labels and the kind are those that the code gave.
func TestChartsAreData(t *testing.T) {
	c := call[proto.Container](t, base, 201, "POST", "/v1/containers", "{}")
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	axes := `"x_label": "Time (s)", "x_unit": "s", "y_label": null, "y_unit": null`
	const none = `"x_label": null, "x_unit": null, "y_label": null, "y_unit": null`
	ticks := func(scale string) string {
		return `"x_scale": "` + scale + `", "y_scale": "linear", "y_ticks": [0, 1], "y_tick_labels": ["0", "1"]`
	}
	const setY = "plt.yticks([0, 1])\n"
	for name, fig := range map[string]struct{ text, want string }{
		"line": {"plt.plot([0, 1], [0, 1], label='up'); plt.plot([0, 1], [1, 0])\nplt.title('T'); plt.xlabel('Time (s)')\n" +
			"plt.xticks([0, 1])\n" + setY, `{"type": "line", "title": "T", ` + axes + `, ` + ticks("linear") + `,
			"x_ticks": [0, 1], "x_tick_labels": ["0", "1"],
			"elements": [{"label": "up", "points": [[0, 0], [1, 1]]}, {"label": "Line 2", "points": [[0, 1], [1, 0]]}]}`},
		"scatter": {"plt.scatter([1, 10], [0, 1]); plt.xscale('log'); plt.xticks([1, 10], ['a', 'b'])\n" + setY,
			`{"type": "scatter", "title": null, ` + none + `, ` + ticks("log") + `, "x_ticks": [1, 10],
			"x_tick_labels": ["a", "b"], "elements": [{"label": "Group 1", "points": [[1, 0], [10, 1]]}]}`},
		"dates": {"import datetime as d\nplt.plot([d.datetime(2026, 1, 1), d.datetime(2026, 1, 2)], [0, 1])\n" +
			"plt.xticks([d.datetime(2026, 1, 1)], ['first'])\n" + setY, `{"type": "line", "title": null, ` + none + `, ` +
			ticks("datetime") + `, "x_ticks": ["2026-01-01T00:00:00"], "x_tick_labels": ["first"], "elements":
			[{"label": "Line 1", "points": [["2026-01-01T00:00:00", 0], ["2026-01-02T00:00:00", 1]]}]}`},
		"bar": {"plt.bar(['a', 'b'], [1, 2], label='first'); plt.bar(['a', 'b'], [3, 4], bottom=[1, 2])\n" +
			"plt.xlabel('Time (s)')", `{"type": "bar", "title": null, ` + axes + `, "elements": [
			{"label": "a", "group": "first", "value": 1}, {"label": "b", "group": "first", "value": 2},
			{"label": "a", "group": "Group 2", "value": 3}, {"label": "b", "group": "Group 2", "value": 4}]}`},
		"grouped bar": {"plt.bar([-0.2, 0.8], [1, 2], 0.4); plt.bar([0.2, 1.2], [3, 4], 0.4)\nplt.xticks([0, 1], ['a', 'b'])",
			`{"type": "bar", "title": null, ` + none + `, "elements": [
			{"label": "a", "group": "Group 1", "value": 1}, {"label": "b", "group": "Group 1", "value": 2},
			{"label": "a", "group": "Group 2", "value": 3}, {"label": "b", "group": "Group 2", "value": 4}]}`},
		"flat bar": {"plt.barh(['a', 'b'], [1, 2])", `{"type": "bar", "title": null, ` + none + `, "elements": [
			{"label": "a", "group": "Group 1", "value": 1}, {"label": "b", "group": "Group 1", "value": 2}]}`},
		"pie": {"plt.pie([1, 3], labels=['a', 'b'])", `{"type": "pie", "title": null, "elements": [
			{"label": "a", "angle": 90, "radius": 1}, {"label": "b", "angle": 270, "radius": 1}]}`},
		"box": {"plt.boxplot([[1, 2, 3, 4, 5, 20], [1, 1, 1]]); plt.xticks([1, 2], ['a', 'b'])",
			`{"type": "box_and_whisker", "title": null, ` + none + `, "elements": [{"label": "a", "min": 1,
			"first_quartile": 2.25, "median": 3.5, "third_quartile": 4.75, "max": 5, "outliers": [20]},
			{"label": "b", "min": 1, "first_quartile": 1, "median": 1, "third_quartile": 1, "max": 1, "outliers": []}]}`},
		"several": {"f, (a, b) = plt.subplots(1, 2)\na.pie([1], labels=['a'])\nb.bar(['x'], [1])\nf.suptitle('S')",
			`{"type": "superchart", "title": "S", "elements": [{"type": "pie", "title": null, "elements":
			[{"label": "a", "angle": 360, "radius": 1}]}, {"type": "bar", "title": null, ` + none + `, "elements":
			[{"label": "x", "group": "Group 1", "value": 1}]}]}`},
		"a picture": {"plt.imshow([[1, 2]]); plt.title('P')", `{"type": "unknown", "title": "P", "elements": []}`},
		"nothing":   {"plt.figure()", `{"type": "unknown", "title": null, "elements": []}`},
	} {
		t.Run(name, func(t *testing.T) {
			res := call[code.Outcome](t, base, 200, "POST", "/v1/containers/"+c.ID+"/contexts/main/run",
				asJSON(t, code.Cell{Code: plotted + fig.text}))
			if res.Error != "" || len(res.Logs.Stderr) > 0 || figures(res) != 1 {
				t.Fatalf("%d figures, error %q, %q", figures(res), res.Error, res.Logs.Stderr)
			}
			var got, want any
			for _, b := range res.Rich {
				if b["image/png"] == nil {
					continue
				}
				if err := json.Unmarshal(b["application/vnd.berth.chart+json"], &got); err != nil {
					t.Fatal(err)
				}
			}
			if err := json.Unmarshal([]byte(fig.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				text, _ := json.MarshalIndent(got, "", " ")
				t.Errorf("got %s\nwant %s", text, fig.want)
			}
		})
	}
}
