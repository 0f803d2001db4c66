package native

import (
	"context"
	"net/http"

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

// A rotate does one of both.
type rotate func(context.Context) (Rotation, error)

// changeKeys answers with what the daemon did. An edge without a vault behind it has nothing to do it with.
func (e *edge) changeKeys(act func() rotate) handler {
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

func (e *edge) info(c *call) error { return c.json(http.StatusOK, e.Info) }

// The document is public: whoever has no key yet may read what there is to ask for.
func (e *edge) openAPI(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	_, err := c.w.Write(e.document)
	return err
}

// Strangers first, so that the sweeps that follow count what is left.
func (e *edge) sweep(c *call) error {
	if c.flag("strangers") {
		if _, err := e.Sessions.RemoveOrphanedWorkspaces(c.r.Context()); err != nil {
			return err
		}
	}
	counts, err := e.Sweep(c.r.Context())
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, counts)
}
