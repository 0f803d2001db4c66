package session

import (
	"encoding/json"
	"maps"
	"slices"

	"berth/egress"
	"berth/proto"
	"berth/session/retries"
	"berth/session/secrets"
	"berth/session/validate"
	"berth/state/ledger"
	"berth/state/vault"

	"github.com/google/uuid"
)

// sealedFields is the part of a record that is sealed in the ledger. It includes the environment, since people put
// tokens there.
type sealedFields struct {
	Env          map[string]string        `json:"env,omitempty"`
	Secrets      map[string]string        `json:"secrets,omitempty"`
	Placeholders map[string]egress.Secret `json:"swapped,omitempty"`
	Tools        secrets.Tools            `json:"tools,omitzero"`
}

// seal seals the secret fields of a record that has its ID.
func (ss *Sessions) seal(r *record) error {
	r.Names = slices.Sorted(maps.Keys(r.Secrets))
	if len(r.Env)+len(r.Secrets)+len(r.NetworkSecrets) == 0 && r.toolSecrets.IsZero() {
		return nil
	}
	text, err := json.Marshal(sealedFields{r.Env, r.Secrets, r.NetworkSecrets, r.toolSecrets})
	if err == nil {
		r.Sealed, err = ss.cfg.Vault.Seal(r.ID, text)
	}
	return err
}

// unseal opens the sealed fields of a record. If that fails, the session refuses to run commands; everything else
// works.
func (ss *Sessions) unseal(r *record) {
	if r.Sealed == "" {
		return
	}
	text, err := ss.cfg.Vault.Unseal(r.ID, r.Sealed)
	var c sealedFields
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if r.Env, r.Secrets, r.NetworkSecrets, r.toolSecrets, r.unsealErr = c.Env, c.Secrets, c.Placeholders, c.Tools,
		err; err != nil {
		ss.cfg.Log.Error("the secrets of a container cannot be opened; it runs no commands until they can", "container",
			r.ID, "error", err)
	}
}

// openRecords unseals all records at start, and seals environments that an older daemon left in clear.
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
			ss.cfg.Ledger.UpdateLater(func(tx *ledger.Tx) error { return tx.Put(bucketSessions, rec.ID, rec) })
		}
		s.redactor = s.rec.redactor()
	}
}

// Commands never see network secrets: their environment has placeholders, which the proxy replaces in requests that
// leave. To read the requests, the proxy presents certificates for the hosts from its own CA, which only such
// containers trust.

// placeholderPrefix begins every placeholder.
const placeholderPrefix = "berth-secret-"

// grantNetworkSecrets checks the network secrets of a request and gives each a placeholder.
func (c Config) grantNetworkSecrets(n proto.Network, req proto.CreateContainer) (map[string]egress.Secret, error) {
	if len(req.NetworkSecrets) == 0 {
		return nil, nil
	}
	if c.Egress == nil {
		return nil, proto.Errorf(proto.Unsupported, "", "network_secrets", "this daemon gives containers no "+
			"network, where network_secrets could be put in")
	}
	granted, err := c.Egress.AllowSecrets(n, req.NetworkSecrets)
	if err != nil {
		return nil, err
	}
	placeholders := map[string]egress.Secret{}
	for name, s := range granted {
		_, plain := req.Env[name]
		_, secret := req.Secrets[name]
		if plain || secret {
			return nil, validate.Error("network_secrets", "network secret %.64q: env or secrets have that name too; "+
				"leave one of them out", name)
		}
		placeholders[name] = egress.Secret{Name: name, Placeholder: proto.ID(placeholderPrefix, uuid.New()),
			Value: s.Value, Hosts: s.Hosts}
	}
	return placeholders, validate.Env(record{NetworkSecrets: placeholders}.placeholders())
}

// CheckNetworkSecrets checks whether a container with that network may have these secrets.
func (ss *Sessions) CheckNetworkSecrets(n proto.Network, asked map[string]proto.NetworkSecret) error {
	_, err := ss.cfg.grantNetworkSecrets(n, proto.CreateContainer{NetworkSecrets: asked})
	return err
}

func valuesOf(asked map[string]proto.NetworkSecret) map[string]string {
	return secrets.MapValues(asked, func(s proto.NetworkSecret) string { return s.Value })
}

// redactorFor hides the secrets of a command and of its session.
func (s *Session) redactorFor(cmd proto.Cmd) *secrets.Redactor {
	if len(cmd.Env)+len(cmd.Secrets) == 0 {
		return s.redactor
	}
	r := s.record()
	env := maps.Clone(r.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, cmd.Env)
	return secrets.NewRedactor(env, r.Secrets, r.networkSecretValues(), r.toolSecrets.Words(), cmd.Secrets)
}

// redactor hides the secrets of the record.
func (r record) redactor() *secrets.Redactor {
	return secrets.NewRedactor(r.Env, r.Secrets, r.networkSecretValues(), r.toolSecrets.Words())
}

// hideIn hides the secrets of a request for a container in *err.
func hideIn(req proto.CreateContainer, err *error) {
	if *err != nil {
		p := req.CodeTools.Provider
		*err = secrets.NewRedactor(req.Env, req.Secrets, valuesOf(req.NetworkSecrets),
			secrets.Tools{Headers: p.Headers, Secret: p.Secret}.Words()).Error(*err)
	}
}

// Hide replaces the session's secrets in a text that is kept or shown.
func (s *Session) Hide(text string) string { return s.redactor.Hide(text) }

// HideError hides the session's secrets in an error, which may quote what a client sent.
func (s *Session) HideError(err error) error { return s.redactor.Error(err) }

// Hide replaces the secrets of a container in a text that is kept or shown.
func (ss *Sessions) Hide(container, text string) string {
	if s := ss.find(container); s != nil {
		return s.redactor.Hide(text)
	}
	return text
}

// HideError hides the secrets of a container in an error.
func (ss *Sessions) HideError(container string, err error) error {
	if s := ss.find(container); s != nil {
		return s.HideError(err)
	}
	return err
}

// A Resealer seals a sealed text under the present key; see vault.Rotate.
type Resealer = vault.Resealer

// Reseal reseals the secrets of all sessions and of durable commands, and the key of digests, while they are in use.
func (ss *Sessions) Reseal(reseal Resealer) (changed, closed int, err error) {
	for _, s := range ss.all() {
		fresh, err := vault.Resealed(s.id, s.record().Sealed, reseal)
		switch {
		case err != nil:
			closed++
			continue
		case fresh == "":
			continue
		}
		// An environment is sealed when the session is made, and after that it is only dropped.
		err = s.change(func(r *record) {
			if r.Sealed != "" {
				r.Sealed = fresh
			}
		})
		if err != nil && proto.CodeOf(err) != proto.NotFound {
			return changed, closed, err
		}
		changed++
	}
	n, bad, err := resealOthers(ss.cfg.Ledger, reseal)
	return changed + n, closed + bad, err
}

// Reseal does the work of Sessions.Reseal for a ledger that no daemon has open.
func Reseal(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	changed, closed, err = vault.ResealBucket(db, bucketSessions, reseal,
		func(r *record) (string, *string) { return r.ID, &r.Sealed })
	if err != nil {
		return changed, closed, err
	}
	n, bad, err := resealOthers(db, reseal)
	return changed + n, closed + bad, err
}

// resealOthers reseals what is not in a session's record and changes in the ledger only.
func resealOthers(db *ledger.DB, reseal Resealer) (changed, closed int, err error) {
	changed, closed, err = vault.ResealBucket(db, bucketExecs, reseal, func(r *execRecord) (string, *string) {
		return r.Exec.ID, &r.Sealed
	})
	if err != nil {
		return changed, closed, err
	}
	n, bad, err := vault.ResealBucket(db, retries.BucketDigest, reseal,
		func(sealed *string) (string, *string) { return retries.DigestName, sealed })
	return changed + n, closed + bad, err
}
