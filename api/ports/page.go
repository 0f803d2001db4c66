package ports

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"

	"berth/api"
)

// browsers writes errors as the plain dialect does, and as a page for browsers.
var browsers = api.Dialect{Status: api.Plain.Status, Body: api.Plain.Body, Page: page}

// page is what a person sees in place of the application.
func page(f api.Failure) []byte {
	var b bytes.Buffer
	message := f.Err.Message
	if f.Status == http.StatusUnauthorized {
		message = strings.TrimSuffix(message, ".") + ". Or open a signed URL in this browser: `berth open CONTAINER " +
			"PORT`."
	}
	_ = pageText.Execute(&b, struct { // a buffer takes everything
		Status                 int
		Title, Message, Detail string
	}{f.Status, http.StatusText(f.Status), message, f.RequestID})
	return b.Bytes()
}

var pageText = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Status}} {{.Title}}</title>
<style>body{font:16px/1.5 sans-serif;max-width:40em;margin:15vh auto;padding:0 1em}small{color:#777}</style></head>
<body><h1>{{.Title}}</h1><p>{{.Message}}</p><p><small>{{.Status}} {{.Detail}}</small></p></body></html>
`))
