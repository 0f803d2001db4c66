package native

import (
	"context"
	"net/http"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
)

// A Rotation is what was done about the keys that seal secrets.
type Rotation struct {
	KeyID    string `json:"key_id"`   // The key that seals now.
	Keys     int    `json:"keys"`     // Number of keys in the file.
	Resealed int    `json:"resealed"` // Records sealed again.
	// Records that no key in the file opens; they are unchanged.
	Closed int `json:"closed"`
}

func (e *edge) vaultRows() []row {
	const tag = "daemon"
	fails := append([]int{409, 501, 503}, basic...)
	return []row{
		{"POST", "/v1/vault/rotate", api.None, e.rotated(func() rotate { return e.Rotate }), openapi.Operation{ID: "rotateVault", Tag: tag,
			Admin: true, Summary: "Make a new key for secrets and seal all of them anew.",
			Description: "Older keys stay in the file, for copies of the ledger.", Answers: ok(Rotation{}), Fails: fails}},
		{"POST", "/v1/vault/forget", api.None, e.rotated(func() rotate { return e.Forget }), openapi.Operation{ID: "forgetVaultKeys", Tag: tag,
			Admin: true, Summary: "Take all keys for secrets but the newest out of the file.",
			Description: "Secrets in older copies of the ledger are closed then.", Answers: ok(Rotation{}), Fails: fails}},
	}
}

// A rotate does one of both.
type rotate func(context.Context) (Rotation, error)

// rotated answers with what the daemon did. An edge without a vault behind it has nothing to do it with.
func (e *edge) rotated(act func() rotate) handler {
	return func(c *call) error {
		do := act()
		if do == nil {
			return proto.Errorf(proto.Unsupported, "", "vault", "this daemon keeps no keys for secrets")
		}
		done, err := do(c.r.Context())
		if err != nil {
			return err
		}
		return c.json(http.StatusOK, done)
	}
}
