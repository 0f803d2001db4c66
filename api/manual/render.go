package manual

import (
	"bytes"
	"embed"
	"html/template"
	"strings"
	texttemplate "text/template"
)

//go:embed *.html *.md.tmpl
var templates embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{"prose": prose, "lower": strings.ToLower}).
	ParseFS(templates, "*.html"))

var texts = texttemplate.Must(texttemplate.New("").Funcs(texttemplate.FuncMap{"cell": cell, "types": typeText}).
	ParseFS(templates, "*.md.tmpl"))

func execute(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := pages.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}

// A view is what the templates of the reference show.
type view struct {
	*Reference
	Guides []guide
}

func referenceHTML(ref *Reference, guides []guide) ([]byte, error) {
	return execute("reference", view{ref, guides})
}

func referenceText(ref *Reference, guides []guide) ([]byte, error) {
	var b bytes.Buffer
	err := texts.ExecuteTemplate(&b, "reference.md.tmpl", view{ref, guides})
	return b.Bytes(), err
}

// prose escapes a text and sets what stands between backticks as code.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String())
}

// cell escapes a text for a cell of a table in Markdown.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text) }

// typeText is the name of a type without links.
func typeText(pieces []Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}
