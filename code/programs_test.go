package code_test

import (
	"context"
	"testing"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// cMain is a program of C with these statements.
func cMain(statements string) string {
	return "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n" +
		"int main(void) { " + statements + " }\n"
}

// TestCompiledPrograms runs programs of C, alone and as cells of one context.
func TestCompiledPrograms(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for text, w := range map[string]want{
		cMain(`puts("é"); fputs("e\n", stderr); return 0;`): {stdout: "é\n", stderr: "e\n"},
		cMain(`puts("a"); return 3;`):                       {stdout: "a\n", err: "status 3", name: "exit"},
		cMain(`raise(SIGSEGV);`):                            {err: "SIGSEGV", name: "signal"},
		cMain(`printf("%d", getchar());`):                   {stdout: "-1"},
		cMain(`nope();`) + "}":                              {err: "main.c:6:1: error: ", name: "compile"},
	} {
		w.check(t, text, b.once(t, proto.Program{Code: text, Language: "C", Container: s.ID()}))
	}
	cell := func(c code.Cell) code.Outcome {
		t.Helper()
		c.Language = "c"
		res, err := b.run.Cell(context.Background(), sessiontest.Owner, s.ID(), "programs", c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Notes) > 0 {
			t.Errorf("%q", res.Notes)
		}
		return res
	}
	for _, c := range []struct {
		cell code.Cell
		want want
	}{
		{code.Cell{Code: cMain(`FILE *f = fopen("kept.h", "w"); fputs("#define KEPT 7\n", f); fclose(f);`)}, want{}},
		{code.Cell{Code: "#include \"kept.h\"\n" + cMain(`printf("%d\n", KEPT);`)}, want{stdout: "7\n"}},
		{code.Cell{Code: cMain(`printf("%s %s\n", getenv("A"), getcwd(0, 0));`), Cwd: "/tmp",
			Env: map[string]string{"A": "x"}}, want{stdout: "x /tmp\n"}},
		{code.Cell{Code: cMain(`pause();`), TimeoutSeconds: 1}, want{err: "timeout_seconds", name: "timeout"}},
		{code.Cell{Code: cMain(`return 4;`)}, want{err: "the program exited with status 4", name: "exit"}},
		{code.Cell{Code: cMain(`raise(SIGTERM);`)}, want{err: "the program was ended by SIGTERM", name: "signal"}},
		{code.Cell{Code: "int"}, want{err: "main.c:1", name: "compile"}},
		{code.Cell{Code: cMain(`puts(getenv("A") ? "left" : "gone");`)}, want{stdout: "gone\n"}},
	} {
		c.want.check(t, c.cell.Code, cell(c.cell))
	}
}
