package build

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"berth/proto"
)

// TestLongSecrets checks that no part of a long secret is left in the error of a build and in the output that it keeps.
func TestLongSecrets(t *testing.T) {
	var lines []string
	for range 400 {
		lines = append(lines, rand.Text()[:12], rand.Text(), "key: "+rand.Text()+rand.Text())
	}
	many := strings.Join(lines, "\n") + "\n"
	raw := make([]byte, 30<<10)
	rand.Read(raw)
	one := hex.EncodeToString(raw[:10<<10])
	s := newSecrets(map[string][]byte{"many": []byte(many), "one": []byte(one), "raw": raw, "short": []byte("hunter2-hunter2")})
	for name, part := range map[string]string{
		"a line": lines[1001], "a short line": lines[900], "a few lines": strings.Join(lines[30:60], "\n"),
		"the middle of a line": lines[1001][3:22], "a piece": one[7777:9999], "in quotes": fmt.Sprintf("%q", many[5000:5200]),
		"base64":          base64.StdEncoding.EncodeToString([]byte(many[3001:3999])),
		"lines of base64": base64.StdEncoding.EncodeToString(raw)[7600:7676], "of the short one": "hunter2-hunter2",
		"the beginning": many[:40], "the end": one[len(one)-50:],
	} {
		text := "it says " + part + ", and ends"
		err := s.hide(&BuildFailure{Err: proto.Errorf(proto.InvalidArgument, "build", "x", "%s", text), Step: text, Log: text})
		var f *BuildFailure
		if !errors.As(err, &f) {
			t.Fatal(err)
		}
		for _, got := range []string{f.Step, f.Log, f.Err.Message, proto.AsError(s.hide(
			proto.Errorf(proto.InvalidArgument, "build", "x", "%s", text))).Message} {
			// what is left of the secret beside the word is shorter than a run
			if !strings.HasPrefix(got, "it says ") || !strings.HasSuffix(got, ", and ends") ||
				!strings.Contains(got, "[redacted]") || len(got) > len("it says , and ends")+15+strings.Count(got, "[redacted]")*11 {
				t.Errorf("%s: %.300q", name, got)
			}
		}
	}
	const plain = "process /bin/sh -c make did not complete: exit code 2"
	if got := s.redactor.Hide(plain); got != plain {
		t.Errorf("another text: %q", got)
	}
	if got := s.redactor.Hide(lines[1] + lines[2] + plain); got != "[redacted]"+plain && got != "[redacted][redacted]"+plain {
		t.Errorf("at the start: %q", got)
	}
}

// BenchmarkLongSecrets hides the most of secrets in the most of output.
func BenchmarkLongSecrets(b *testing.B) {
	values := map[string][]byte{}
	var text string
	for i := range proto.MaxBuildSecrets {
		raw := make([]byte, proto.MaxBuildSecretsSize/proto.MaxBuildSecrets/2)
		rand.Read(raw)
		values[fmt.Sprint(i)] = []byte(hex.EncodeToString(raw))
		text += string(values[fmt.Sprint(i)][:120]) + "\n"
	}
	s := newSecrets(values)
	for b.Loop() {
		s.redactor.Hide(text)
	}
}
