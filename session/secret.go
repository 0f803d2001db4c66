package session

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/egress"
	"berth/proto"
	"berth/state/ledger"
)

// A Vault seals what must not be in the ledger in clear; vault.Vault is the one there is. A sealed text opens under
// its name alone.
type Vault interface {
	Seal(name string, text []byte) (string, error)
	Unseal(name, sealed string) ([]byte, error)
}

// noVault is for a daemon without one.
type noVault struct{}

var errNoVault = proto.Errorf(proto.Unsupported, "", "secrets", "this daemon cannot keep secrets")

func (noVault) Seal(string, []byte) (string, error) { return "", errNoVault }

func (noVault) Unseal(string, string) ([]byte, error) { return nil, errNoVault }

// confidential is the part of a record that is sealed in the ledger: people put tokens into environments, too.
type confidential struct {
	Env     map[string]string        `json:"env,omitempty"`
	Secrets map[string]string        `json:"secrets,omitempty"`
	Swapped map[string]egress.Secret `json:"swapped,omitempty"`
	Tools   toolSecrets              `json:"tools,omitzero"`
}

// Bounds of a secret, in bytes. A shorter one could not be hidden: it would be found in every text.
const (
	MinSecret = 4
	maxSecret = 64 << 10
)

// checkSecrets checks secrets beside the environment that they go into.
func checkSecrets(secrets, env map[string]string) error {
	if err := checkEnv(secrets); err != nil {
		return invalid("secrets", "secrets: %s", strings.ReplaceAll(proto.AsError(err).Message, "environment variable",
			"secret"))
	}
	for name, value := range secrets {
		if _, ok := env[name]; ok {
			return invalid("secrets",
				"secret %.64q: there is an environment variable of that name; leave one of them out", name)
		}
		if len(value) < MinSecret || len(value) > maxSecret {
			return invalid("secrets", "secret %.64q: it must have %d to %d bytes; what is shorter cannot be hidden, "+
				"so give it as env", name, MinSecret, maxSecret)
		}
	}
	return nil
}

// seal closes what is confidential in a record that has its ID.
func (ss *Sessions) seal(r *record) error {
	r.Names = slices.Sorted(maps.Keys(r.Secrets))
	if len(r.Env)+len(r.Secrets)+len(r.Swapped) == 0 && r.toolSecrets.isZero() {
		return nil
	}
	text, err := json.Marshal(confidential{r.Env, r.Secrets, r.Swapped, r.toolSecrets})
	if err == nil {
		r.Sealed, err = ss.cfg.Vault.Seal(r.ID, text)
	}
	return err
}

// unseal opens a record that comes from the ledger. Where that fails its session says so when it is to run something,
// and all else of it works.
func (ss *Sessions) unseal(r *record) {
	if r.Sealed == "" {
		return
	}
	text, err := ss.cfg.Vault.Unseal(r.ID, r.Sealed)
	var c confidential
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if r.Env, r.Secrets, r.Swapped, r.toolSecrets, r.closed = c.Env, c.Secrets, c.Swapped, c.Tools, err; err != nil {
		ss.cfg.Log.Error("the secrets of a container cannot be opened; it runs no commands until they can", "container",
			r.ID, "error", err)
	}
}

// openRecords unseals all records at start, and seals what an older daemon left in clear.
func (ss *Sessions) openRecords() {
	for _, s := range ss.byID {
		ss.unseal(&s.rec)
		if s.rec.ClearEnv != nil {
			s.rec.Env = s.rec.ClearEnv
			if err := ss.seal(&s.rec); err != nil {
				ss.cfg.Log.Error("sealing the environment of a container; it stays in the ledger in clear", "container",
					s.id, "error", err)
				continue
			}
			s.rec.ClearEnv = nil
			rec := s.rec
			ss.cfg.Ledger.Later(func(tx *ledger.Tx) error { return tx.Put(bucketSessions, rec.ID, rec) })
		}
		s.veil = s.rec.veil()
	}
}

// forgetSecrets is for what will never run anything again.
func (r *record) forgetSecrets() {
	r.Env, r.Secrets, r.Swapped, r.toolSecrets, r.Sealed, r.Names, r.ClearEnv, r.closed = nil, nil, nil, toolSecrets{},
		"", nil, nil, nil
}

// environment is what a command gets of its container's and its own, the narrower over the wider and secrets over the
// rest.
func (e *Exec) environment() map[string]string {
	r, env := e.s.record(), map[string]string{}
	for _, part := range []map[string]string{r.Env, r.Secrets, r.placeholders(), e.cmd.Env, e.cmd.Secrets} {
		maps.Copy(env, part)
	}
	if r.connected() {
		addProxy(env)
	}
	if r.hasTools() {
		e.addTools(env)
	}
	if len(r.Swapped) > 0 {
		addTrust(env)
	}
	return env
}

// A veil replaces the values of secrets in texts that are kept or shown. A nil one hides nothing.
type veil struct {
	words   *strings.Replacer
	longest int // bytes that one of them has
}

// shownInstead is what stands for a secret.
const shownInstead = "[redacted]"

// newVeil hides secrets, and of environments what looks as if it were one.
func newVeil(env map[string]string, secrets ...map[string]string) *veil {
	var words []string
	for name, value := range env {
		if likeSecret(name, value) {
			words = append(words, forms(value)...)
		}
	}
	for _, part := range secrets {
		for _, value := range part {
			if len(value) >= MinSecret { // what is shorter is refused, and would be found in every word of the refusal
				words = append(words, forms(value)...)
			}
		}
	}
	if len(words) == 0 {
		return nil
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // the replacer takes the first that fits
	pairs := make([]string, 0, 2*len(words))
	for _, w := range words {
		pairs = append(pairs, w, shownInstead)
	}
	return &veil{words: strings.NewReplacer(pairs...), longest: len(words[0])}
}

// veil hides what the record has.
func (r record) veil() *veil {
	return newVeil(r.Env, r.Secrets, r.swappedValues(), r.toolSecrets.words())
}

// veilOf hides what a command brings beside its session's.
func (s *Session) veilOf(cmd proto.Cmd) *veil {
	if len(cmd.Env)+len(cmd.Secrets) == 0 {
		return s.veil
	}
	r := s.record()
	env := maps.Clone(r.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, cmd.Env)
	return newVeil(env, r.Secrets, r.swappedValues(), r.toolSecrets.words(), cmd.Secrets)
}

// sealOwn is what a command brings itself, sealed, where it may end under a later daemon, which has to hide it then.
func (e *Exec) sealOwn() string {
	if !durable(e.cmd) || len(e.cmd.Env)+len(e.cmd.Secrets) == 0 {
		return ""
	}
	text, err := json.Marshal(confidential{Env: e.cmd.Env, Secrets: e.cmd.Secrets})
	var sealed string
	if err == nil {
		sealed, err = e.s.core.cfg.Vault.Seal(e.id, text)
	}
	if err != nil {
		e.s.core.cfg.Log.Warn("sealing the environment of a command", "exec", e.id, "error", err)
	}
	return sealed
}

// recallVeil hides what sealOwn sealed.
func (s *Session) recallVeil(r execRecord) *veil {
	if r.Sealed == "" {
		return s.veil
	}
	var c confidential
	text, err := s.core.cfg.Vault.Unseal(r.Exec.ID, r.Sealed)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		s.core.cfg.Log.Warn("opening the environment of a command", "exec", r.Exec.ID, "error", err)
	}
	return s.veilOf(proto.Cmd{Env: c.Env, Secrets: c.Secrets})
}

// hide replaces every secret in a text.
func (v *veil) hide(text string) string {
	if v == nil {
		return text
	}
	return v.words.Replace(text)
}

// hideAll is hide of each.
func (v *veil) hideAll(texts []string) []string {
	if v == nil {
		return texts
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = v.hide(t)
	}
	return out
}

// tail is hide of the last n bytes of a text. No part of a secret is left at the cut: what is replaced is longer by
// one secret at each end.
func (v *veil) tail(text string, n int) string {
	cut := max(0, len(text)-n)
	if v == nil || cut == 0 {
		return v.hide(text[cut:])
	}
	from := max(0, cut-v.longest)
	before, after := v.hide(text[from:cut]), v.hide(text[cut:])
	// one goes across the cut: give up what may be the rest of it
	if whole := v.hide(text[from:]); whole != before+after {
		return v.hide(text[min(len(text), cut+v.longest):])
	}
	return after
}

// error is err in words that hide secrets.
func (v *veil) error(err error) error {
	var e *proto.Error
	if v == nil || !errors.As(err, &e) {
		return err
	}
	hidden := *e
	hidden.Message, hidden.Item = v.hide(e.Message), v.hide(e.Item)
	if hidden == *e {
		return err
	}
	return &hidden
}

// hideIn hides in *err what a command brings, and its session has.
func (s *Session) hideIn(cmd proto.Cmd, err *error) {
	if *err != nil {
		*err = s.veilOf(cmd).error(*err)
	}
}

// hideIn hides in *err what a request for a container brings.
func hideIn(req proto.CreateContainer, err *error) {
	if *err != nil {
		p := req.CodeTools.Provider
		*err = newVeil(req.Env, req.Secrets, valuesOf(req.NetworkSecrets),
			toolSecrets{p.Headers, p.Secret}.words()).error(*err)
	}
}

// Hider gives what replaces secrets in texts that are kept elsewhere, in all the forms that a container's own are
// hidden in; nil if there are none.
func Hider(secrets map[string]string) func(text string) string {
	if v := newVeil(nil, secrets); v != nil {
		return v.hide
	}
	return nil
}

// Hide replaces the secrets of a container in a text that is to be kept or shown.
func (ss *Sessions) Hide(container, text string) string {
	if s := ss.find(container); s != nil {
		return s.veil.hide(text)
	}
	return text
}

// HideError is err in words that hide the session's secrets, which may repeat what a client sent.
func (s *Session) HideError(err error) error { return s.veil.error(err) }

// HideError is err in words that hide the secrets of a container.
func (ss *Sessions) HideError(container string, err error) error {
	if s := ss.find(container); s != nil {
		return s.HideError(err)
	}
	return err
}

// Hide replaces the session's secrets in a text that is kept or shown.
func (s *Session) Hide(text string) string { return s.veil.hide(text) }

// conceal hides secrets in what an exec leaves behind, but for its output.
func (e *Exec) conceal(end *proto.End, made *Produced) {
	end.Message = e.veil.hide(end.Message)
	made.Notes = e.veil.hideAll(made.Notes)
}

// describe is a command as it is kept and shown.
func (v *veil) describe(info *proto.Exec) {
	info.Command, info.Argv = v.hide(info.Command), v.hideAll(info.Argv)
}

// validText is text as UTF-8.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
