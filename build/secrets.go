package build

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"berth/build/wire"
	"berth/proto"
	"berth/session/secrets"
)

// buildSecrets are the secrets of one build. The builder program does not have them: it knows a random word for each,
// and BuildKit takes the word for the secret. When a step starts, the secret takes the place of the word, in a file in
// memory or in the environment of the step's command.
type buildSecrets struct {
	words    map[string]string // word by ID
	ids      map[string]string // ID by word
	values   map[string][]byte // by ID
	redactor *secrets.Redactor
}

// maxWhole bounds the secrets that are searched for as a whole, in bytes. No text that is kept is longer, so it has
// parts of a longer secret at most.
const maxWhole = 8 << 10

// newSecrets makes a word for each secret.
func newSecrets(values map[string][]byte) *buildSecrets {
	s := &buildSecrets{words: map[string]string{}, ids: map[string]string{}, values: values}
	hide := map[string]string{}
	var long []string
	for id, value := range values {
		word := "berth-secret-" + rand.Text()
		s.words[id], s.ids[word] = word, id
		if len(value) > maxWhole {
			long = append(long, string(value))
		} else {
			hide[id] = string(bytes.TrimSpace(value)) // files end in a newline, which a step cuts off
		}
	}
	s.redactor = secrets.NewRedactor(nil, hide).AndLong(long)
	return s
}

// fill gives the secrets to a step, whose environment is changed in place.
func (s *buildSecrets) fill(step *wire.Step) error {
	for _, t := range step.Trees {
		if t.Secret == nil {
			continue
		}
		id, ok := s.ids[t.Secret.Word]
		if !ok {
			return fmt.Errorf("a step wants to see at %.200q a secret that the build does not have", t.Target)
		}
		if max(t.Secret.UID, t.Secret.GID) > maxUser {
			return proto.Errorf(proto.InvalidArgument, "build", id, "the secret %s cannot belong to user %d and group "+
				"%d: a step has those from 0 to %d", id, t.Secret.UID, t.Secret.GID, maxUser)
		}
		t.Secret.Data = s.values[id]
	}
	for i, kv := range step.Env {
		name, word, _ := strings.Cut(kv, "=")
		id, ok := s.ids[word]
		if !ok {
			continue
		}
		value := s.values[id]
		if len(name)+len(value) > maxVariable || !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0 {
			return proto.Errorf(proto.InvalidArgument, "build", id, "the secret %s cannot be the variable %.80s: it "+
				"has more than %d KiB or is no text; mount it as a file, without env=", id, name, maxVariable>>10)
		}
		step.Env[i] = name + "=" + string(value)
	}
	return nil
}

// maxUser is the highest number of a user or group in a step.
const maxUser = 1<<16 - 1

// maxVariable bounds a variable, in bytes. The kernel takes a little more.
const maxVariable = 127 << 10

// hide hides the secrets in the error of a build, and in the end of a step's output that comes with it.
func (s *buildSecrets) hide(err error) error {
	var failure *BuildFailure
	if !errors.As(err, &failure) {
		return s.redactor.Error(err)
	}
	failure.Err = proto.AsError(s.redactor.Error(failure.Err))
	failure.Step, failure.Log = s.redactor.Hide(failure.Step), s.redactor.Hide(failure.Log)
	return failure
}
