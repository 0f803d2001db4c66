package validate

import (
	"strings"
	"testing"

	"berth/proto"
)

func TestSecretsAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ secrets, env map[string]string }{
		"too short": {map[string]string{"S": "abc"}, nil},
		"no name":   {map[string]string{"": "abcdef"}, nil},
		"bad name":  {map[string]string{"A=B": "abcdef"}, nil},
		"in env":    {map[string]string{"S": "abcdef"}, map[string]string{"S": "x"}},
		"NUL":       {map[string]string{"S": "abc\x00def"}, nil},
	} {
		if err := checkSecrets(c.secrets, c.env); proto.CodeOf(err) != proto.InvalidArgument ||
			strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkSecrets(map[string]string{"S": "abcd"}, map[string]string{"T": ""}); err != nil {
		t.Error(err)
	}
}
