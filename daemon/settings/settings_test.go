package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// flags returns a set with a flag of each type.
func flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.String("listen", "127.0.0.1:1", "where to listen")
	f.Bool("debug", false, "log more")
	f.Int("warm-max", 32, "how many")
	f.Int64("disk-bytes", 0, "how much (default 4 GiB)")
	f.Float64("cpus", 2, "CPUs")
	f.Duration("idle-timeout", 0, "how long (default 5m)")
	f.StringSlice("origin", nil, "origins")
	f.Var(NewList(new([]int), func(s string) (n int, err error) {
		if _, err = fmt.Sscan(s, &n); err != nil {
			err = errors.New("no number")
		}
		return n, err
	}), "number", "numbers")
	f.Var(NewList(new([]string), func(s string) (string, error) { return s, nil }), "accept-loss", "losses")
	f.Bool("help", false, "")
	f.Bool("old", false, "")
	_ = f.MarkDeprecated("old", "gone")
	return f
}

func texts(faults []*Fault) (all []string) {
	for _, f := range faults {
		all = append(all, f.Error())
	}
	return all
}

// TestEveryFaultIsReported checks that a file's faults come all at once, each with its line, its key and a way out.
func TestEveryFaultIsReported(t *testing.T) {
	values, faults := Parse("b.toml", []byte(`listen = "h:1" # fine
listn = "h:2"
warm_max = 3
something-else = 1
warm-max = "3"
disk-bytes = 1.5
cpus = true
idle-timeout = 300
origin = "https://a"
number = [
  "1",
  2,
]
debug = "yes"
listen = "h:3"
help = true
old = true
accept-loss = ["journal"]
a.b = 1
[network]
debug = 2
[[more]]
`), flags())
	want := []string{
		"b.toml:2: listn: there is no such setting; did you mean listen?",
		"b.toml:3: warm_max: there is no such setting; did you mean warm-max?",
		"b.toml:4: something-else: there is no such setting; `berth config example` has all of them",
		"b.toml:5: warm-max: it must be a whole number without quotes",
		"b.toml:6: disk-bytes: it must be a whole number without quotes",
		"b.toml:7: cpus: it must be a number without quotes",
		`b.toml:8: idle-timeout: it must be a duration in quotes, such as "5m"`,
		`b.toml:9: origin: it must be a list of texts, such as ["https://a", …]`,
		"b.toml:10: number: its element 2 must be a text in quotes",
		"b.toml:14: debug: it must be true or false, without quotes",
		"b.toml:15: listen: it is set in line 1 already",
		"b.toml:16: help: there is no such setting; `berth config example` has all of them",
		"b.toml:17: old: there is no such setting; `berth config example` has all of them",
		"b.toml:18: accept-loss: it is for one start only; give it as --accept-loss",
		"b.toml:19: a.b: there is no such setting; `berth config example` has all of them",
		"b.toml:20: [network]: settings have no tables; remove this line",
		"b.toml:21: debug: it is set in line 14 already",
		"b.toml:22: [more]: settings have no tables; remove this line",
	}
	if got := texts(faults); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(values) != 1 || values["listen"].Texts[0] != "h:1" || values["listen"].Source.String() != "b.toml:1" {
		t.Errorf("%+v", values)
	}
}

// TestTextsThatAreNotTOML checks that the line is named, and that faults before it are reported, too.
func TestTextsThatAreNotTOML(t *testing.T) {
	for _, tt := range [][3]string{
		{"debug = 1\n\nlisten = h:1\n", "b.toml:1: debug: it must be true or false, without quotes",
			"b.toml:3: this is not TOML: "},
		{"listen = \"a\n", "b.toml:1: this is not TOML: ", ""},
		{"debug = true\nwarm-max = 99999999999999999999\n", "b.toml:2: ", ""},
		{"debug = true\nlisten = \"\x00\"", "b.toml:2: it is not a text file", ""},
		{"idle-timeout = 5m", "b.toml:1: this is not TOML: ", ""},
	} {
		_, faults := Parse("b.toml", []byte(tt[0]), flags())
		for i, f := range faults {
			if i > 1 || tt[i+1] == "" || !strings.HasPrefix(f.Error(), tt[i+1]) {
				t.Errorf("%q: %v", tt[0], f)
			}
		}
		if len(faults) == 0 || tt[2] != "" && len(faults) != 2 {
			t.Errorf("%q: %v", tt[0], faults)
		}
	}
}

// TestLaterLayersWin checks the order of precedence, and that the sources are named.
func TestLaterLayersWin(t *testing.T) {
	cmd := flags()
	if err := cmd.Parse([]string{"--warm-max", "5", "--number", "7", "--number", "8"}); err != nil {
		t.Fatal(err)
	}
	file, faults := Parse("b.toml", []byte("listen = 'f'\nwarm-max = 3\ncpus = 1_0\norigin = ['f']\nnumber = ['1']\n"+
		"idle-timeout = '1h30m'\ndisk-bytes = 0x10"), flags())
	env, more := FromEnvironment([]string{"BERTH_WARM_MAX=4", "BERTH_LISTEN=e", "BERTH_ORIGIN=https://a,https://b",
		"BERTH_CPUS=", "BERTH_API_KEY=k", "BERTH_HELP=1"}, flags())
	if len(faults)+len(more) > 0 {
		t.Fatal(faults, more)
	}
	f := flags()
	from, faults := Apply(f, file, env, Given(cmd))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for key, want := range map[string][2]string{
		"listen": {`"e"`, "BERTH_LISTEN"}, "warm-max": {"5", "--warm-max"}, "cpus": {"10", "b.toml:3"},
		"origin": {`["https://a", "https://b"]`, "BERTH_ORIGIN"}, "number": {`["7", "8"]`, "--number"},
		"idle-timeout": {`"1h30m0s"`, "b.toml:6"}, "disk-bytes": {"16", "b.toml:7"}, "debug": {"false", "default"},
	} {
		if got := [2]string{LiteralOf(f.Lookup(key)), from[key].String()}; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if d, _ := f.GetDuration("idle-timeout"); d != 90*time.Minute {
		t.Error(d)
	}
}

// TestFaultyVariables checks that a variable's fault names the variable.
func TestFaultyVariables(t *testing.T) {
	env, faults := FromEnvironment([]string{"BERTH_WARM_MAX=many", "BERTH_NUMBER=1,x", "BERTH_IDLE_TIMEOUT=5",
		"BERTH_ACCEPT_LOSS=journal", "BERTH_DEBUG=perhaps", "BERTH_CPUS=x"}, flags())
	_, more := Apply(flags(), env)
	want := []string{
		"BERTH_ACCEPT_LOSS: it is for one start only; give it as --accept-loss",
		`BERTH_CPUS: "x" is not a number, such as 1.5`,
		`BERTH_DEBUG: "perhaps" is not true or false`,
		`BERTH_IDLE_TIMEOUT: "5" is not a duration, such as 90s, 5m or 1h30m`,
		"BERTH_NUMBER: no number",
		`BERTH_WARM_MAX: "many" is not a whole number, such as 32`,
	}
	if got := texts(append(faults, more...)); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

// TestFilesThatAreNotRead checks what is said about files that cannot be settings.
func TestFilesThatAreNotRead(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open.toml")
	if err := errors.Join(os.WriteFile(open, nil, 0o600), os.Chmod(open, 0o666)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "there is no such file", dir: "it is not a file",
		open: "everyone can write to it (mode 0666)",
	} {
		if _, faults := ReadFile(path, flags()); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), path+": "+
			want) {
			t.Errorf("%v", faults)
		}
	}
}

// FuzzParse checks that no text makes the reader fail, and that what it takes it also takes when it is written again.
func FuzzParse(f *testing.F) {
	f.Add("listen = \"\\u0007\\\"\"\nnumber = [\"1\", '2']\n[a]\n# x\ncpus = nan")
	f.Add("a.'b c'.\"d\" = {x = 1}\nidle-timeout = \"5m\"\nwarm-max = 0o17")
	f.Fuzz(func(t *testing.T, text string) {
		set := flags()
		values, _ := Parse("b.toml", []byte(text), set)
		for key, v := range values {
			flag := set.Lookup(key)
			again, faults := Parse("b.toml", []byte(key+" = "+Literal(flag.Value.Type(), isList(flag), v.Texts)), set)
			if len(faults) > 0 || strings.Join(again[key].Texts, "\x00") != strings.Join(v.Texts, "\x00") {
				t.Errorf("%s: %q became %q, %v", key, v.Texts, again[key].Texts, faults)
			}
		}
	})
}
