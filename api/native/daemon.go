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

// A rotate changes the keys of the vault.
type rotate func(context.Context) (Rotation, error)

// changeKeys returns a handler that changes the keys of the vault, if the daemon has one.
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

// The document is public, so that it can be read without a key.
func (e *edge) openAPI(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	_, err := c.w.Write(e.document)
	return err
}

// Orphaned workspaces are removed first, so that the sweeps count what is left.
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
