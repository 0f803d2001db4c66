package berth_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const (
	maxColumns       = 120   // of a line, a tab counting four
	maxPackageLines  = 4_000 // of a package of the product, tests left out
	maxFunctionLines = 100
	maxAssemblyLines = 150 // of a file
)

// tooLarge are packages that pass maxPackageLines. What is in session cannot be told apart: every change of a session
// concerns its record, its lock, its users and its guest.
var tooLarge = map[string]int{"session": 6_700}

// oldWords are words that this project once used for what the field has a standard term for. docs/glossary.md has the
// words of its own; the standard term stands beside each old one here. Identifiers are compared part by part.
var oldWords = map[string]string{
	"jot": "async write", "gist": "fingerprint", "veil": "redactor", "surroundings": "resource counters",
	"calm": "resource counters", "births": "last PID", "burial": "pending removal", "doomed": "pending removal",
	"roster": "index", "restock": "refill", "respite": "delay", "nap": "delay", "acquaint": "handshake",
	"acquaintance": "handshake", "greet": "handshake", "furnish": "provision", "refurnish": "provision",
	"deed": "audit action", "blueprint": "spec", "scrub": "cleanup", "weigh": "set CPU weight",
	"relieve": "free memory", "veiled": "redacted", "swapped": "placeholder secret", "passage": "tunnel",
}

// hardWords make a reader stop. They stay out of comments and documents.
var hardWords = regexp.MustCompile(`(?i)\b(whoever|told of|stands still|stand still|of no use|is so that)\b`)

// tables are functions that may pass maxFunctionLines, since they are tables of rows or flags.
var tables = map[string]bool{"execRows": true, "newOptions": true}

// hardToRead are packages whose comments still have such words. The list only gets shorter.
var hardToRead = map[string]bool{}

// tracked lists the files of the repository that match the patterns, test data left out.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"ls-files", "-z", "--"}, patterns...)...).Output()
	if err != nil {
		t.Skipf("git ls-files: %v; these rules are checked in a clone", err)
	}
	var list []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(name); err == nil && !strings.Contains(name, "testdata/") {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		t.Fatalf("no file matches %v", patterns)
	}
	return list
}

func TestLinesAreShort(t *testing.T) {
	for _, name := range tracked(t, "*.go", "*.md", "*.mk", "Makefile", "console/web/*.js", "console/web/*.css") {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			continue // their literals are long; code there is wrapped by the same rule, by hand
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		raw := map[int]bool{}
		if strings.HasSuffix(name, ".go") {
			raw = rawStringLines(text)
		}
		for i, line := range strings.Split(string(text), "\n") {
			columns := len([]rune(line)) + 3*strings.Count(line, "\t")
			table := strings.HasSuffix(name, ".md") && (strings.HasPrefix(line, "|") || strings.Contains(line, "]("))
			if columns > maxColumns && !table && !raw[i+1] {
				t.Errorf("%s:%d has %d columns, at most %d are allowed", name, i+1, columns, maxColumns)
			}
		}
	}
}

// rawStringLines are the lines of Go source that a raw string touches. Scripts and JSON in there keep their own lines.
func rawStringLines(source []byte) map[int]bool {
	lines := map[int]bool{}
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && strings.HasPrefix(text, "`") {
			first := file.Line(pos)
			for i := range strings.Count(text, "\n") + 1 {
				lines[first+i] = true
			}
		}
	}
}

func TestSizes(t *testing.T) {
	lines := map[string]int{}
	for _, name := range tracked(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines[filepath.Dir(name)] += bytes.Count(text, []byte("\n"))
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > maxFunctionLines && !tables[fn.Name.Name] {
					t.Errorf("%s: %s has %d lines, at most %d are allowed", name, fn.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
	for dir, n := range lines {
		if most := max(maxPackageLines, tooLarge[dir]); n > most {
			t.Errorf("package %s has %d lines, at most %d are allowed: does it have two subjects?", dir, n, most)
		}
	}
}

// TestAssembly checks that each file of assembly is short, and that its first comment says what the Go fallback is.
func TestAssembly(t *testing.T) {
	for _, name := range tracked(t, "*.s") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > maxAssemblyLines {
			t.Errorf("%s has %d lines, at most %d are allowed", name, n, maxAssemblyLines)
		}
		comment, _, _ := strings.Cut(string(text), "\n\n")
		if !strings.HasPrefix(comment, "// ") || !strings.Contains(comment, "Go fallback") {
			t.Errorf("%s: the first comment does not say what the Go fallback is", name)
		}
	}
}

func TestOldWordsAreGone(t *testing.T) {
	for _, name := range tracked(t, "*.go") {
		if strings.HasPrefix(name, "house") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				for _, word := range identifierWords(id.Name) {
					if term := oldWords[word]; term != "" {
						t.Errorf("%s: %s: %q is %s now", fset.Position(id.Pos()), id.Name, word, term)
					}
				}
			}
			return true
		})
		if strings.HasSuffix(name, "_test.go") || hardToRead[filepath.Dir(name)] {
			continue
		}
		for _, group := range file.Comments {
			if hard := hardWords.FindString(group.Text()); hard != "" {
				t.Errorf("%s: %q makes a reader stop; say it plainly", fset.Position(group.Pos()), hard)
			}
		}
	}
	for _, name := range tracked(t, "*.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if hard := hardWords.FindString(line); hard != "" {
				t.Errorf("%s:%d: %q makes a reader stop; say it plainly", name, i+1, hard)
			}
		}
	}
}

// identifierWords splits an identifier in camel case into its words, in lower case.
func identifierWords(name string) []string {
	var words []string
	begin := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) {
			words = append(words, strings.ToLower(strings.Trim(string(runes[begin:i]), "_")))
			begin = i
		}
	}
	return words
}

// TestGlossary holds the glossary to its own bound.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| word") {
			n++
		}
	}
	if n == 0 || n > 20 {
		t.Errorf("docs/glossary.md has %d words of our own, at most 20 are allowed", n)
	}
}
