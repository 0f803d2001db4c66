package code_test

import (
	"strings"
	"testing"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// The environment and the directory of one cell hold for that cell alone, whatever its end.
func TestSettingsOfOneCell(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	env := map[string]string{"BERTH_KEPT": "two\nlines", "BERTH_NEW": ""}
	for language, texts := range map[string]struct{ define, look, fail, here string }{
		"python": {"import os\nos.environ['BERTH_KEPT'] = 'own'",
			"print(os.getcwd(), repr(os.environ['BERTH_KEPT']), os.environ.get('BERTH_NEW') == '')", "1/0",
			"print(os.getcwd())"},
		"js": {"process.env.BERTH_KEPT = 'own'", "console.log(process.cwd(), JSON.stringify(process.env.BERTH_KEPT)" +
			".replaceAll('\"', \"'\"), process.env.BERTH_NEW === '' ? 'True' : 'False')", "nope",
			"console.log(process.cwd())"},
		"r": {"Sys.setenv(BERTH_KEPT = 'own')",
			"cat(getwd(), ' ', gsub('\"', \"'\", deparse(Sys.getenv('BERTH_KEPT')))," +
				" ' ', if (is.na(Sys.getenv('BERTH_NEW', NA))) 'False' else 'True', '\\n', sep = '')", "stop('no')",
			"cat(getwd(), '\\n', sep = '')"},
		"bash": {"export BERTH_KEPT=own", "printf \"%s '%s' %s\\n\" \"$PWD\" \"${BERTH_KEPT//$'\\n'/\\\\n}\" " +
			"\"$([[ -v BERTH_NEW ]] && echo True || echo False)\"", "false", "pwd"},
	} {
		t.Run(language, func(t *testing.T) {
			run := func(cell code.Cell) code.Outcome {
				t.Helper()
				cell.Language = language
				res, err := b.run.Cell(t.Context(), sessiontest.Owner, s.ID(), language, cell, nil)
				if proto.CodeOf(err) == proto.Unsupported {
					t.Skip(err)
				} else if err != nil {
					t.Fatal(err)
				}
				return res
			}
			run(code.Cell{Code: texts.define})
			here := strings.Join(run(code.Cell{Code: texts.here}).Logs.Stdout, "")
			own := want{stdout: strings.TrimSuffix(here, "\n") + " 'own' False\n"}
			own.check(t, "before", run(code.Cell{Code: texts.look}))
			want{stdout: "/ 'two\\nlines' True\n"}.check(t, "with settings",
				run(code.Cell{Code: texts.look, Env: env, Cwd: "/"}))
			own.check(t, "after", run(code.Cell{Code: texts.look}))
			if res := run(code.Cell{Code: texts.fail, Env: env, Cwd: "/"}); res.Error == "" {
				t.Errorf("%s did not fail", texts.fail)
			}
			own.check(t, "after an error", run(code.Cell{Code: texts.look}))
			if res := run(code.Cell{Code: texts.look, Env: env, Cwd: "/nowhere"}); res.Error == "" ||
				len(res.Logs.Stdout) > 0 {
				t.Errorf("a directory that is not there: %+v", res)
			}
			own.check(t, "after a directory that is not there", run(code.Cell{Code: texts.look}))
		})
	}
}

// An interrupt ends the cell, and its settings with it.
func TestSettingsAfterAnInterrupt(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for language, texts := range map[string][2]string{
		"python": {"import time\ntime.sleep(600)", "import os\nprint(os.environ.get('BERTH_NEW', 'none'))"},
		"js":     {"await new Promise(r => setTimeout(r, 600_000))", "console.log(process.env.BERTH_NEW ?? 'none')"},
		"bash":   {"sleep 600", "echo ${BERTH_NEW-none}"},
	} {
		_, err := b.run.Cell(t.Context(), sessiontest.Owner, s.ID(), language, code.Cell{Language: language,
			Code: texts[0], Env: map[string]string{"BERTH_NEW": "1"}, TimeoutSeconds: 0.3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want{stdout: "none\n"}.check(t, language, b.cell(t, s, language, texts[1]))
	}
}

// A context works in the directory that it was created with.
func TestDirectoryOfAContext(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	c, err := b.run.Create(t.Context(), sessiontest.Owner, s.ID(), code.NewContext{Name: "main", Cwd: "/"})
	if err != nil || c.Cwd != "/" {
		t.Fatalf("%+v %v", c, err)
	}
	want{results: []string{"'/'"}}.check(t, "its directory", b.cell(t, s, "main", "import os; os.getcwd()"))
}

// What a cell cannot set is refused, and names the item.
func TestSettingsThatAreRefused(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	many := map[string]string{}
	for i := range 65 {
		many["N"+strings.Repeat("x", i)] = ""
	}
	for item, cell := range map[string]code.Cell{
		"env":    {Env: map[string]string{"A B": "1"}},
		"env.A":  {Env: map[string]string{"A": "\x00"}},
		"env.B":  {Env: map[string]string{"B": strings.Repeat("x", 32<<10+1)}},
		"env ":   {Env: many},
		"cwd":    {Cwd: "/\x00"},
		"cwd ":   {Cwd: "/" + strings.Repeat("x", 4095)},
		"cwd  ":  {Cwd: "/", Language: "java"},
		"env   ": {Env: map[string]string{"": "1"}},
	} {
		cell.Code = "1"
		_, err := b.run.Cell(t.Context(), sessiontest.Owner, s.ID(), "new", cell, nil)
		code := proto.CodeOf(err)
		if code != proto.InvalidArgument && code != proto.Unsupported ||
			proto.AsError(err).Item != strings.TrimSpace(item) {
			t.Errorf("%q: %v", item, err)
		}
	}
	if list, err := b.run.List(sessiontest.Owner, s.ID()); err != nil || len(list) != 0 {
		t.Errorf("refused cells left %+v, %v", list, err)
	}
}
