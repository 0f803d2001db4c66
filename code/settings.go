package code

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/proto"
	"berth/proto/span"
)

// Limits of what one cell may set.
const (
	maxCellEnv      = 64       // variables
	maxCellEnvValue = 32 << 10 // bytes
	maxCwd          = 4095     // bytes
)

var cellEnvName = regexp.MustCompile(`^[A-Za-z_][0-9A-Za-z_]{0,127}$`)

// checkSettings checks the environment and the working directory of one cell. Its errors contain names only.
func checkSettings(lang language, env map[string]string, cwd string) error {
	if len(env) > maxCellEnv {
		return proto.Invalid("env", "env has %d variables; %d is the limit of a cell", len(env), maxCellEnv)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch value := env[name]; {
		case !cellEnvName.MatchString(name):
			return proto.Invalid("env", "env: %.80q is not a valid variable name; use letters, digits and '_', not "+
				"beginning with a digit", name)
		case len(value) > maxCellEnvValue || strings.ContainsRune(value, 0) || !utf8.ValidString(value):
			return proto.Invalid("env."+name, "env.%s must be text of at most %d bytes without NUL", name,
				maxCellEnvValue)
		}
	}
	switch {
	case len(cwd) > maxCwd || strings.ContainsRune(cwd, 0) || !utf8.ValidString(cwd):
		return proto.Invalid("cwd", "cwd is not a path of at most %d bytes", maxCwd)
	case cwd != "" && lang.name == "java":
		return proto.Errorf(proto.Unsupported, "", "cwd", "a running program of java cannot change its working "+
			"directory; create the context with cwd")
	}
	return nil
}

// withTrace adds the trace context of a cell to its environment, unless that has one of its own. The interpreter's is
// that of the cell that started it.
func withTrace(ctx context.Context, env map[string]string) map[string]string {
	traced := map[string]string{}
	if span.Environ(ctx, traced); len(traced) == 0 {
		return env
	}
	maps.Copy(traced, env)
	return traced
}
