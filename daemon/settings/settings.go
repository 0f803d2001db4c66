// Package settings reads the settings of the daemon from a TOML file and from environment variables, and applies them
// to the flags of `berth serve`. A setting has the name of its flag as its key. A flag that was given wins over its
// variable, and the variable over the file.
//
// The package knows no setting by itself: the set of flags says which keys there are, and of which type. It reports all
// faults, not only the first one. Package main uses it at start, at a reload, and for `berth config`.
package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A Kind is where a value comes from.
type Kind string

// Kinds of sources, in the order of precedence.
const (
	Default     Kind = "default"
	File        Kind = "file"
	Environment Kind = "environment"
	Flag        Kind = "flag"
)

// A Source says where the value of a setting comes from.
type Source struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"` // path of the file, name of the variable, or the flag with its dashes
	Line int    `json:"line,omitempty"` // in the file, from 1
}

// String returns the source as people read it.
func (s Source) String() string {
	switch {
	case s.Kind == Default || s.Kind == "":
		return string(Default)
	case s.Line > 0:
		return s.Name + ":" + strconv.Itoa(s.Line)
	}
	return s.Name
}

// A Value is the value of one setting in one source.
type Value struct {
	Texts  []string // one for each element of a list, else exactly one
	Source Source
}

// Values are the values of one source by key.
type Values map[string]Value

// A Fault is something wrong with one setting.
type Fault struct {
	Source Source
	Key    string // "": the fault concerns the whole source
	Text   string // what is wrong, and the way out
}

// Error implements error. It begins with the place, so that editors can jump to it.
func (f *Fault) Error() string {
	if f.Source.Kind == File && f.Key != "" {
		return f.Source.String() + ": " + f.Key + ": " + f.Text
	}
	return f.Source.String() + ": " + f.Text
}

// flagNamed matches an error that begins with the flag that it is about.
var flagNamed = regexp.MustCompile(`^--([a-z0-9-]+)[: ]+`)

// FaultOf returns the fault that an error tells of, if the error begins with the name of a flag. from has the source of
// each setting. The text then names that source in place of the flag. The key is "" for all other errors.
func FaultOf(err error, from map[string]Source) (f *Fault, key string) {
	m := flagNamed.FindStringSubmatch(err.Error())
	if m == nil {
		return nil, ""
	}
	source, ok := from[m[1]]
	if !ok || source.Kind == Flag {
		return nil, m[1]
	}
	return &Fault{source, m[1], err.Error()[len(m[0]):]}, m[1]
}

// refused are settings that only a flag may give, and why.
var refused = map[string]string{
	"accept-loss": "it is for one start only; give it as --accept-loss",
}

// Keys returns the keys of all settings among flags, sorted. Deprecated and hidden flags are no settings, and neither
// are those that only the command line may have.
func Keys(flags *pflag.FlagSet) (keys []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if isSetting(f) && refused[f.Name] == "" {
			keys = append(keys, f.Name)
		}
	})
	slices.Sort(keys)
	return keys
}

func isSetting(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "config" && f.Deprecated == "" && !f.Hidden
}

// Given returns the values of the flags that were given on the command line.
func Given(flags *pflag.FlagSet) Values {
	given := make(Values)
	// Visit finds nothing here: another set of flags, to which these were added, has parsed them.
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			given[f.Name] = Value{Text(f.Value), Source{Kind: Flag, Name: "--" + f.Name}}
		}
	})
	return given
}

// Text returns the value of a flag as texts: one for each element of a list, else one.
func Text(v pflag.Value) []string {
	if list, ok := v.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{v.String()}
}

// Apply sets flags, which must be fresh, to the values of the layers. Later layers win. It returns the source of each
// flag that was set, and all faults. A faulty value leaves its flag at the default.
func Apply(flags *pflag.FlagSet, layers ...Values) (map[string]Source, []*Fault) {
	merged, from := make(Values), make(map[string]Source)
	for _, layer := range layers {
		for key, v := range layer {
			merged[key] = v
		}
	}
	var faults []*Fault
	flags.VisitAll(func(f *pflag.Flag) {
		v, ok := merged[f.Name]
		if !ok {
			return
		}
		if err := set(f, v.Texts); err != nil {
			faults = append(faults, &Fault{v.Source, f.Name, err.Error()})
			return
		}
		f.Changed, from[f.Name] = true, v.Source
	})
	return from, faults
}

// set sets a flag to its only value.
func set(f *pflag.Flag, texts []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(texts)
	}
	if len(texts) != 1 {
		return fmt.Errorf("it takes one value, and there are %d", len(texts))
	}
	if err := checkText(f.Value.Type(), texts[0]); err != nil {
		return err
	}
	return f.Value.Set(texts[0])
}

// checkText checks the form of a value. The errors of package strconv, which flags return, mean little to operators.
func checkText(kind, text string) error {
	bad := func(want string) error { return fmt.Errorf("%.80q is not %s", text, want) }
	switch kind {
	case "bool":
		if _, err := strconv.ParseBool(text); err != nil {
			return bad("true or false")
		}
	case "int", "int64":
		if _, err := strconv.ParseInt(text, 0, 64); errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is too large", text)
		} else if err != nil {
			return bad("a whole number, such as 32")
		}
	case "float64":
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return bad("a number, such as 1.5")
		}
	case "duration":
		if _, err := time.ParseDuration(text); err != nil {
			return bad("a duration, such as 90s, 5m or 1h30m")
		}
	}
	return nil
}

// Variable returns the name of the environment variable of a setting.
func Variable(key string) string {
	return "BERTH_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// FromEnvironment returns the settings in an environment, as of os.Environ. Elements of lists are separated by commas.
// An empty variable counts as not set, as compose files and unit files leave them. A variable that belongs to no
// setting is not for the daemon: clients have such variables, too.
func FromEnvironment(environ []string, flags *pflag.FlagSet) (Values, []*Fault) {
	found := make(map[string]string)
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		found[name] = text
	}
	values := make(Values)
	var faults []*Fault
	flags.VisitAll(func(f *pflag.Flag) {
		name := Variable(f.Name)
		text := found[name]
		source := Source{Kind: Environment, Name: name}
		switch {
		case text == "" || !isSetting(f):
		case refused[f.Name] != "":
			faults = append(faults, &Fault{source, f.Name, refused[f.Name]})
		case isList(f):
			values[f.Name] = Value{strings.Split(text, ","), source}
		default:
			values[f.Name] = Value{[]string{text}, source}
		}
	})
	return values, faults
}

func isList(f *pflag.Flag) bool {
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}
