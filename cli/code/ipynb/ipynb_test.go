package ipynb

import (
	"encoding/json"
	"strings"
	"testing"

	"berth/proto"
)

const notebook = `{"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"language": "Python"}, "kept": 1},
"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title"},
{"cell_type": "code", "id": "b", "metadata": {"tags": ["raises-exception"]}, "source": ["x = 1\n", "x < 2"],
"outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}], "execution_count": 9},
{"cell_type": "code", "id": "c", "metadata": {}, "source": " ", "outputs": [], "execution_count": null}]}`

func TestRoundTrip(t *testing.T) {
	n, err := Parse("n.ipynb", []byte(notebook))
	if err != nil {
		t.Fatal(err)
	}
	if n.Language() != "python" || len(n.Cells) != 3 {
		t.Errorf("language %q, %d cells", n.Language(), len(n.Cells))
	}
	title, code, empty := n.Cells[0], n.Cells[1], n.Cells[2]
	if title.IsCode() || !code.IsCode() || empty.IsCode() || !code.MayFail() || empty.MayFail() {
		t.Error("the kinds of the cells are wrong")
	}
	if code.Source != "x = 1\nx < 2" {
		t.Errorf("source %q", code.Source)
	}
	main := 1
	if err := code.SetOutcome(1, proto.Outcome{
		Logs: proto.Logs{Stdout: []string{"a\n", "<b>"}}, MainResult: &main,
		Rich: []proto.Bundle{{"image/png": json.RawMessage(`"iVBO"`)},
			{"text/plain": json.RawMessage(`"l1\nl2"`), "application/json": json.RawMessage(`{"k":[1]}`)}},
		ErrorDetail: &proto.ErrorDetail{Name: "E", Message: "m", Traceback: "t1\nt2\n"},
	}); err != nil {
		t.Fatal(err)
	}
	out, err := n.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	const outputs = `"outputs": [{"output_type": "stream", "name": "stdout", "text": ["a\n", "<b>"]},
		{"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBO"}},
		{"output_type": "execute_result", "execution_count": 1, "metadata": {},
			"data": {"text/plain": ["l1\n", "l2"], "application/json": {"k": [1]}}},
		{"output_type": "error", "ename": "E", "evalue": "m", "traceback": ["t1", "t2"]}], "execution_count": 1}`
	expected := strings.Replace(notebook, `"outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}], `+
		`"execution_count": 9}`, outputs, 1)
	if err := json.Unmarshal([]byte(expected), &want); err != nil {
		t.Fatal(err)
	}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
	if !strings.HasPrefix(string(out), "{\n \"cells\": [\n  {\n") || !strings.HasSuffix(string(out), "}\n") ||
		strings.Contains(string(out), `\u003c`) {
		t.Errorf("not written as by Jupyter:\n%s", out)
	}
}

func TestWhatIsNoNotebook(t *testing.T) {
	for text, want := range map[string]string{
		`print(1)`:        "n.ipynb is no notebook: invalid character",
		`{"nbformat": 3}`: "n.ipynb is no notebook of format 4; open it with Jupyter and save it",
		`{"nbformat": 4}`: "the cells of n.ipynb cannot be read",
		`{"nbformat": 4, "cells": [{"cell_type": "code"}]}`: "cell 1 of n.ipynb has no source",
	} {
		_, err := Parse("n.ipynb", []byte(text))
		if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
