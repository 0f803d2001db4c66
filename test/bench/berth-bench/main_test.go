package main

import (
	"path/filepath"
	"testing"

	"berth/test/apitest"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets scripts run this program as "berth-bench".
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth-bench": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("BERTH_HOST", apitest.Serve(env.T().(testing.TB), nil).URL)
			env.Setenv("BERTH_API_KEY", apitest.Key)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": apitest.Status},
	})
}
