package flags

import (
	"fmt"
	"testing"
)

func TestParseEnv(t *testing.T) {
	t.Setenv("BERTH_TEST_HAS", "it")
	env, err := Env([]string{"A=b=c", "E=", "BERTH_TEST_HAS", "BERTH_TEST_HAS_NOT"})
	if err != nil || fmt.Sprint(env) != "map[A:b=c BERTH_TEST_HAS:it E:]" {
		t.Errorf("%v, %v", env, err)
	}
	if _, err := Env([]string{"=x"}); err == nil {
		t.Error("a variable without a name was taken")
	}
}
