package manual

import (
	"bytes"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown is without raw HTML, which it leaves out. Tables have attributes, since the policy of pages forbids styles.
func markdown(name string) goldmark.Markdown {
	tables := extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))
	return goldmark.New(goldmark.WithExtensions(extension.Linkify, tables), goldmark.WithParserOptions(
		parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(linksOf(name), 100))))
}

// guideHTML makes a page of a text in Markdown.
func guideHTML(name string, source []byte, guides []guide) ([]byte, error) {
	var b bytes.Buffer
	if err := markdown(name).Convert(source, &b); err != nil {
		return nil, err
	}
	title, _ := head(string(source))
	return execute("guide", struct {
		Name, Title string
		Body        template.HTML // of goldmark, which escapes
		Guides      []guide
	}{name, title, template.HTML(b.String()), guides})
}

// linksOf rewrites the pictures and the links of a page: to the HTML of other pages, and to nothing where they leave
// the folder.
type linksOf string

// Transform implements parser.ASTTransformer.
func (name linksOf) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	var away []ast.Node
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // no step of it fails
		if picture, ok := n.(*ast.Image); ok && entering {
			picture.Destination = []byte(path.Join("/docs", path.Dir(string(name)), string(picture.Destination)))
		}
		if link, ok := n.(*ast.Link); ok && entering {
			to, anchor, _ := strings.Cut(string(link.Destination), "#")
			switch inside := path.Join("/docs", path.Dir(string(name)), to); {
			case strings.Contains(to, ":"), to == "": // to another host, or on this page
			case !strings.HasPrefix(inside, "/docs/"), path.Ext(inside) == "":
				away = append(away, n)
			default:
				link.Destination = []byte(strings.TrimSuffix(inside, ".md"))
				if anchor != "" {
					link.Destination = append(link.Destination, "#"+anchor...)
				}
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range away {
		for n.FirstChild() != nil {
			n.Parent().InsertBefore(n.Parent(), n, n.FirstChild())
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
}

// inlineLink matches a link in Markdown.
var inlineLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain returns a text in Markdown without its links.
func plain(text string) string { return inlineLink.ReplaceAllString(text, "$1") }
