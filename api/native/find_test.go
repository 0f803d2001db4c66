package native

import (
	"io"
	"iter"
	"net/url"
	"strings"
	"testing"

	"berth/proto"
	protosse "berth/proto/sse"
)

// TestFindAndListHavePages checks conditions of a search, levels of a list, and that next_after continues both.
func TestFindAndListHavePages(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.run(t, at, "mkdir -p /workspace/d/{a,b}/c && touch /workspace/d/{a,b}/{c/,}{x.py,y.txt} && ln -s a /workspace/d/z")
	names := func(list []proto.FileInfo) string {
		var out []string
		for _, fi := range list {
			_, below, _ := strings.Cut(fi.Path, "/d/")
			out = append(out, below)
		}
		return strings.Join(out, " ")
	}
	list := must[listing](t, s, "GET", at+"/fs/list?path=d", nil)
	if got := names(list.Data); got != "a b z" || list.Truncated || list.NextAfter != nil ||
		list.Data[2].TargetType != proto.TypeDirectory {
		t.Errorf("list: %q %+v", got, list)
	}
	list = must[listing](t, s, "GET", at+"/fs/list?path=d&depth=2&limit=4", nil)
	if got := names(list.Data); got != "a a/c a/x.py a/y.txt" || !list.Truncated || list.NextAfter == nil {
		t.Fatalf("first page: %q %+v", got, list)
	}
	list = must[listing](t, s, "GET", at+"/fs/list?path=d&depth=2&limit=4&after="+*list.NextAfter, nil)
	if got := names(list.Data); got != "b b/c b/x.py b/y.txt" || !list.Truncated {
		t.Errorf("second page: %q %+v", got, list)
	}
	for query, want := range map[string]string{
		"name=*.py":                            "a/c/x.py a/x.py b/c/x.py b/x.py",
		"name=*.PY&ignore_case=true":           "a/c/x.py a/x.py b/c/x.py b/x.py",
		"name=a/**/*.py&name=b/y.txt":          "a/c/x.py a/x.py b/y.txt",
		"name=*.py&exclude=c":                  "a/x.py b/x.py",
		"type=symlink&type=directory":          "a a/c b b/c z",
		"type=file&depth=1":                    "",
		"modified_before=2001-01-01T00:00:00Z": "",
		"type=file&max_size=0&modified_after=2001-01-01T00:00:00Z&exclude=b": "a/c/x.py a/c/y.txt a/x.py a/y.txt",
		"min_size=1": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		found := must[foundFiles](t, s, "GET", at+"/fs/find?path=d&"+q.Encode(), nil)
		if got := names(found.Data); got != want || found.HasMore || found.NextAfter != nil {
			t.Errorf("%s: %q %+v", query, got, found)
		}
	}
	found := must[foundFiles](t, s, "GET", at+"/fs/find?path=d&name=x.py&limit=3", nil)
	if !found.HasMore || found.NextAfter == nil {
		t.Fatalf("%+v", found)
	}
	found = must[foundFiles](t, s, "GET", at+"/fs/find?path=d&name=x.py&limit=3&after="+*found.NextAfter, nil)
	if got := names(found.Data); got != "b/x.py" || found.HasMore {
		t.Errorf("the rest: %q", got)
	}
	for query, status := range map[string]int{"path=d&type=file&type=door": 400, "path=d&name=[": 400,
		"path=d&after=!": 400, "path=d&depth=1000": 400, "path=d&limit=100000": 400, "path=missing": 404,
		"path=d/a/x.py": 400, "path=d&as=user&name=": 400} {
		if res, body := s.do(t, "GET", at+"/fs/find?"+query, nil); res.StatusCode != status {
			t.Errorf("%s: %d %s", query, res.StatusCode, body)
		}
	}
}

// TestGrep checks what a search for text answers, at once and as a stream.
func TestGrep(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.run(t, at, `mkdir /workspace/g && cd /workspace/g && printf 'one\ntwo\nthree\n' >a.txt && echo two >b.py && printf 'two\0' >c`)
	found := must[foundLines](t, s, "GET", at+"/fs/grep?path=g&pattern=%5Et.o$&lines_after=1", nil)
	if len(found.Data) != 3 || found.Data[0].Line != 2 || found.Data[0].Column != 1 || found.Data[0].Text != "two" ||
		found.Data[1].Type != proto.GrepContext || found.Data[1].Text != "three" ||
		found.Summary != (proto.GrepSummary{Matches: 2, Files: 2, Searched: 2, BinaryFiles: 1}) {
		t.Errorf("%+v", found)
	}
	found = must[foundLines](t, s, "GET", at+"/fs/grep?path=g&pattern=T&fixed=true&ignore_case=true&name=*.TXT"+
		"&max_matches=1", nil)
	if len(found.Data) != 1 || !found.Summary.Truncated {
		t.Errorf("%+v", found)
	}
	var kinds []string
	for kind, data := range s.events(t, "GET", at+"/fs/grep?path=g&pattern=two") {
		kinds = append(kinds, kind)
		if kind == "end" && !strings.Contains(data, `"matches":2`) {
			t.Errorf("%s", data)
		}
	}
	if strings.Join(kinds, " ") != "match match end" {
		t.Errorf("%q", kinds)
	}
	for query, status := range map[string]int{"path=g": 400, "path=g&pattern=(": 400, "path=g&pattern=%ff": 400,
		"path=missing&pattern=x": 404, "path=g&pattern=x&lines_before=21": 400} {
		if res, body := s.do(t, "GET", at+"/fs/grep?"+query, nil); res.StatusCode != status {
			t.Errorf("%s: %d %s", query, res.StatusCode, body)
		}
	}
}

// TestWriteInPlace checks that a PATCH changes a part of a file.
func TestWriteInPlace(t *testing.T) {
	s := newSite(t)
	at := s.container(t) + "/fs/content?path=/workspace/part"
	must[proto.FileInfo](t, s, "PATCH", at, "0123456789")
	must[proto.FileInfo](t, s, "PATCH", at+"&offset=3", "abc")
	must[proto.FileInfo](t, s, "PATCH", at+"&append=true", "!")
	if _, body := s.do(t, "GET", at, nil); string(body) != "012abc6789!" {
		t.Errorf("%q", body)
	}
	if fi := must[proto.FileInfo](t, s, "PATCH", at+"&offset=4&truncate=true", nil); fi.SizeBytes != 4 {
		t.Errorf("%+v", fi)
	}
	for query, status := range map[string]int{"&append=true&offset=0": 400, "&append=true&truncate=true": 400,
		"&offset=-1": 400} {
		if res, body := s.do(t, "PATCH", at+query, "x"); res.StatusCode != status {
			t.Errorf("%s: %d %s", query, res.StatusCode, body)
		}
	}
}

// events returns the events of an answer, as type and data.
func (s *site) events(t *testing.T, method, path string) iter.Seq2[string, string] {
	t.Helper()
	req := s.request(t, t.Context(), method, path, nil)
	req.Header.Set("Accept", eventType)
	res, err := s.client.Do(req)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %+v", err, res)
	}
	return func(yield func(string, string) bool) {
		defer res.Body.Close()
		events := protosse.NewReader(res.Body, protosse.Options{})
		for {
			e, err := events.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			if !yield(e.Name, string(e.Data)) {
				return
			}
		}
	}
}
