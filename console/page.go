package console

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"

	"berth/api"
)

// pagePolicy returns what the page may load and do: files of this daemon, images and PDF files that it made of bytes it
// has fetched, and requests to this daemon. No inline script but the import map runs, and no text becomes code.
func pagePolicy(importMap string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self' " + hashSource(importMap), "style-src 'self'",
		"img-src 'self' blob: data:", "connect-src 'self'", "frame-src 'self' blob:", "base-uri 'none'",
		"form-action 'none'", "frame-ancestors 'none'",
	}, "; ")
}

// previewPolicy is for the frame that shows HTML of containers. It has an origin of its own and no network. Only the
// frame's own script runs in it, which receives the text to show.
const previewPolicy = "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

var pageText = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>berth</title>
<link rel="icon" href="{{.At}}web/icon.svg">
{{if .Ready -}}
<link rel="stylesheet" href="{{.At}}web/style.css">
{{.Map}}
{{range .Preloads}}<link rel="modulepreload" href="{{$.At}}{{.}}">
{{end}}<script type="module" src="{{.At}}web/core/main.js"></script>
{{- end}}
</head>
<body>
{{if .Ready}}<div id="app"><p class="boot" role="status">Loading …</p></div>
<noscript><p>The console needs JavaScript.</p></noscript>
{{else}}<h1>The console is not in this program</h1>
<p>It was built without the console's libraries. Run <code>make console-libs</code> and build it again; <code>make
all</code> does both.</p>
{{end}}</body>
</html>
`))

var previewText = template.Must(template.New("preview").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Preview</title>
<link rel="stylesheet" href="{{.At}}web/preview/frame.css">
<script defer src="{{.At}}web/preview/frame.js"></script></head><body></body></html>
`))

// renderPages makes the page and the frame for previews. They never change.
func (e *edge) renderPages() error {
	imports, err := e.assets.importMap()
	if err != nil {
		return err
	}
	var page, preview bytes.Buffer
	data := struct {
		At       string
		Ready    bool
		Map      template.HTML
		Preloads []string
	}{e.assets.at(), e.assets.ready, template.HTML(`<script type="importmap">` + imports + `</script>`), e.assets.preloads()}
	if err := pageText.Execute(&page, data); err != nil {
		return err
	}
	if err := previewText.Execute(&preview, data); err != nil {
		return err
	}
	e.page, e.preview, e.policy = page.Bytes(), preview.Bytes(), pagePolicy(imports)
	return nil
}

func setPolicy(h http.Header, text string) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", text)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

func (e *edge) servePage(w http.ResponseWriter, _ *http.Request, _ api.Caller) error {
	setPolicy(w.Header(), e.policy)
	w.Header().Set("X-Frame-Options", "DENY")
	return write(w, e.page)
}

func (e *edge) servePreview(w http.ResponseWriter, _ *http.Request, _ api.Caller) error {
	setPolicy(w.Header(), previewPolicy)
	return write(w, e.preview)
}
