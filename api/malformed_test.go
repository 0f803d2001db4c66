package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"berth/api"
	"berth/proto"
	"berth/session"
)

// TestMalformedBodies checks that no route of any edge answers a malformed body with a success, or does its work.
func TestMalformedBodies(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Name: "g"})
	_, made := g.send(t, "POST", "/v1/containers", "{}")
	container := regexp.MustCompile(`container_\w+`).FindString(made)
	text := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n" +
		"\r\nx\r\n--b--\r\n"
	_, stored := g.send(t, "POST", "/v1/files", form{text, "multipart/form-data; boundary=b"})
	file := regexp.MustCompile(`file_\w+`).FindString(stored)
	if container == "" || file == "" {
		t.Fatal(made, stored)
	}
	send := func(method, path, kind, body string) int {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, method+" "+path+" HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+g.secret+"\r\n"+
			"Anthropic-Version: 2023-06-01\r\nContent-Type: "+kind+"\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	for _, e := range h.edges {
		for _, r := range e.Routes {
			path := strings.ReplaceAll(r.Pattern, "/containers/{id}", "/containers/"+container)
			path = strings.ReplaceAll(path, "/sandboxes/{id}", "/sandboxes/"+proto.HostID(container))
			path = strings.ReplaceAll(path, "{file_id}", file)
			for _, name := range api.Wildcards(path) {
				path = strings.ReplaceAll(path, "{"+name+"}", "x")
			}
			if name := path[strings.LastIndex(path, "/")+1:]; strings.Contains(path, "/fs/") {
				if r.Method == http.MethodPatch { // it writes bytes as they come
					name = "in-place"
				}
				path += "?path=/workspace/of-" + name
			}
			takes := len(r.Media) > 0 || r.Doc != nil && len(r.Doc.Body) > 0
			if status := send(r.Method, path, "application/json", "2\r\n{}X0\r\n\r\n"); status != 400 && (!takes ||
				status < 400) {
				t.Errorf("%s %s: %d", r.Method, r.Pattern, status)
			}
		}
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\nzz\r\n", len(text), text)
	if status := send("POST", "/v1/files", "multipart/form-data; boundary=b", chunk); status != 400 {
		t.Errorf("a form with a malformed end: %d", status)
	}
	if status := send("GET", "/v1/none", "application/json", "zz\r\n"); status != 404 {
		t.Errorf("no route: %d", status)
	}
	if res, body := g.send(t, "GET", "/v1/files", nil); res.StatusCode != 200 || strings.Count(body, `"file_`) != 1 {
		t.Errorf("files: %d %s", res.StatusCode, body)
	}
	if res, body := g.send(t, "GET", "/v1/containers/"+container+"/fs/list?path=/workspace", nil); res.StatusCode != 200 ||
		strings.Contains(body, "/workspace/of-content") { // a directory for an archive is made first
		t.Errorf("the container: %d %s", res.StatusCode, body)
	}
}
