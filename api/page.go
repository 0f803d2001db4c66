package api

import (
	"bytes"
	"html/template"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// prefersPage reports whether a client would rather have a page of HTML than JSON. Browsers name HTML, and JSON not at
// all. Other clients name neither, or JSON.
func prefersPage(r *http.Request) bool {
	var page, data float64
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, weighted := params["q"]; weighted {
			weight, _ = strconv.ParseFloat(q, 64) // what is no number has no weight
		}
		switch media {
		case "text/html":
			page = max(page, weight)
		case "application/json":
			data = max(data, weight)
		}
	}
	return page > data
}

// lostPage is what a person sees under a path that no route serves.
func (t *table) lostPage(f Failure) []byte { return errorPage(f, t.literal["/docs"]) }

// ErrorPage is an error as a page for a person, with the way to the documentation.
func ErrorPage(f Failure) []byte { return errorPage(f, true) }

func errorPage(f Failure, docs bool) []byte {
	var b bytes.Buffer
	_ = errorText.Execute(&b, struct { // a buffer takes everything
		Failure
		Title string
		Docs  bool
	}{f, http.StatusText(f.Status), docs})
	return b.Bytes()
}

var errorText = template.Must(template.New("error").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Status}} {{.Title}}</title>
<style>body{font:16px/1.5 sans-serif;max-width:40em;margin:15vh auto;padding:0 1em;color-scheme:light dark}</style>
</head><body><h1>{{.Title}}</h1><p>{{.Err.Message}}</p>
{{if .Docs}}<p>This is a berth daemon. <a href="/docs">Its API is described here.</a></p>{{end}}
<p><small>{{.Status}} {{.RequestID}}</small></p></body></html>
`))
