package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"
)

// maxFile bounds the file's size. One with every setting has 20 KiB.
const maxFile = 1 << 20

// ReadFile reads a file of settings. It returns all that is right, and all faults by line. A fault of the syntax ends
// the reading, since what follows may mean anything.
func ReadFile(path string, flags *pflag.FlagSet) (Values, []*Fault) {
	whole := func(text string) (Values, []*Fault) {
		return nil, []*Fault{{Source: Source{Kind: File, Name: path}, Text: text}}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return whole("there is no such file; `berth config example` prints one")
	case err != nil:
		return whole(bare(err))
	case !info.Mode().IsRegular():
		return whole("it is not a file")
	case info.Size() > maxFile:
		return whole("it is larger than 1 MiB")
	// The daemon is root, and the file names programs that it runs.
	case info.Mode().Perm()&0o002 != 0:
		return whole(fmt.Sprintf("everyone can write to it (mode %04o); run `chmod o-w %s`", info.Mode().Perm(), path))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return whole(bare(err))
	}
	return Parse(path, text, flags)
}

// bare returns an error of package os without the path.
func bare(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// Parse is ReadFile for a text. path is only named in faults and sources.
func Parse(path string, text []byte, flags *pflag.FlagSet) (Values, []*Fault) {
	f := file{path: path, flags: flags, keys: Keys(flags), values: make(Values)}
	if at := firstNUL(text); at > 0 {
		return f.values, []*Fault{{Source: f.at(at), Text: "it is not a text file"}}
	}
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.KeyValue:
			f.setting(&p, e)
		case unstable.Table, unstable.ArrayTable:
			f.table(&p, e)
		}
	}
	f.faults = append(f.faults, f.syntax(text, p.Error())...)
	slices.SortStableFunc(f.faults, func(a, b *Fault) int { return cmp.Compare(a.Source.Line, b.Source.Line) })
	return f.values, f.faults
}

// firstNUL returns the line of the first NUL byte, or 0.
func firstNUL(text []byte) int {
	before, _, found := strings.Cut(string(text), "\x00")
	if !found {
		return 0
	}
	return 1 + strings.Count(before, "\n")
}

// A file is a file of settings while it is read.
type file struct {
	path   string
	flags  *pflag.FlagSet
	keys   []string // of all settings
	values Values
	faults []*Fault
	lines  map[string]int // by key that was seen
}

func (f *file) at(line int) Source { return Source{Kind: File, Name: f.path, Line: line} }

func (f *file) fault(line int, key, format string, args ...any) {
	f.faults = append(f.faults, &Fault{f.at(line), key, fmt.Sprintf(format, args...)})
}

// syntax returns the fault of a text that is not TOML.
func (f *file) syntax(text []byte, err error) []*Fault {
	if err == nil {
		return nil
	}
	line, message := 1, err.Error()
	var all map[string]any
	// Only the decoder computes the position.
	if de, ok := errors.AsType[*toml.DecodeError](toml.Unmarshal(text, &all)); ok {
		line, _ = de.Position()
		message = strings.TrimPrefix(de.Error(), "toml: ")
	}
	return []*Fault{{Source: f.at(line), Text: "this is not TOML: " + message +
		"; texts and durations stand in quotes, and lists in brackets"}}
}

// name returns the key of an expression, and its line.
func (f *file) name(p *unstable.Parser, e *unstable.Node) (key string, line int) {
	var parts []string
	for it := e.Key(); it.Next(); {
		if n := it.Node(); n.Kind == unstable.Key {
			parts = append(parts, string(n.Data))
			line = cmp.Or(line, p.Shape(n.Raw).Start.Line)
		}
	}
	return strings.Join(parts, "."), line
}

// table refuses the header of a table. What stands below it is read as if the header was not there, so that its faults
// are reported, too.
func (f *file) table(p *unstable.Parser, e *unstable.Node) {
	key, line := f.name(p, e)
	f.fault(line, "["+key+"]", "settings have no tables; remove this line")
}

// setting reads one line KEY = VALUE, or several lines if the value has some.
func (f *file) setting(p *unstable.Parser, e *unstable.Node) {
	key, line := f.name(p, e)
	if first := f.lines[key]; first > 0 {
		f.fault(line, key, "it is set in line %d already", first)
		return
	}
	if f.lines == nil {
		f.lines = make(map[string]int)
	}
	f.lines[key] = line
	if why := refused[key]; why != "" {
		f.fault(line, key, "%s", why)
		return
	}
	if !slices.Contains(f.keys, key) {
		f.fault(line, key, "there is no such setting%s", didYouMean(Nearest(key, f.keys)))
		return
	}
	// The decoder knows how numbers and escapes are written.
	var decoded map[string]any
	if err := toml.Unmarshal(p.Raw(e.Raw), &decoded); err != nil {
		f.fault(line, key, "%s", strings.TrimPrefix(err.Error(), "toml: "))
		return
	}
	texts, err := textsOf(f.flags.Lookup(key), decoded[key])
	if err != nil {
		f.fault(line, key, "%s", err)
		return
	}
	f.values[key] = Value{texts, f.at(line)}
}

// didYouMean returns the end of an error about an unknown key.
func didYouMean(key string) string {
	if key == "" {
		return "; `berth config example` has all of them"
	}
	return "; did you mean " + key + "?"
}

// textsOf returns a value of TOML as the texts that its flag takes. It refuses a value of another type.
func textsOf(f *pflag.Flag, v any) ([]string, error) {
	if isList(f) {
		elements, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("it must be a list of texts, such as [%q, …]", fmt.Sprint(v))
		}
		texts := make([]string, len(elements))
		for i, e := range elements {
			if texts[i], ok = e.(string); !ok {
				return nil, fmt.Errorf("its element %d must be a text in quotes", i+1)
			}
		}
		return texts, nil
	}
	want := "a text in quotes"
	switch kind := f.Value.Type(); kind {
	case "bool":
		if b, ok := v.(bool); ok {
			return []string{strconv.FormatBool(b)}, nil
		}
		want = "true or false, without quotes"
	case "int", "int64", "float64":
		switch n := v.(type) {
		case int64:
			return []string{strconv.FormatInt(n, 10)}, nil
		case float64:
			if kind == "float64" {
				return []string{strconv.FormatFloat(n, 'g', -1, 64)}, nil
			}
		}
		want = "a number without quotes"
		if kind != "float64" {
			want = "a whole number without quotes"
		}
	case "duration":
		if text, ok := v.(string); ok {
			return []string{text}, nil
		}
		want = `a duration in quotes, such as "5m"`
	default:
		if text, ok := v.(string); ok {
			return []string{text}, nil
		}
	}
	return nil, errors.New("it must be " + want)
}
