package native

import (
	"context"

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

// changeVault returns a handler that changes the keys of the vault, if the daemon has one.
func changeVault(change func(context.Context) (Rotation, error)) func(*call) (Rotation, error) {
	return func(c *call) (Rotation, error) {
		if change == nil {
			return Rotation{}, proto.Errorf(proto.Unsupported, "", "vault", "this daemon keeps no keys for secrets")
		}
		return change(c.ctx())
	}
}

// backUp streams the archive. One that breaks off lacks its end, so its reader sees that.
func (e *edge) backUp(c *call) (any, error) {
	if e.Backup == nil {
		return nil, proto.Errorf(proto.Unsupported, "", "backup", "this daemon makes no backups")
	}
	return nil, e.Backup(c.ctx(), &archiveBody{c: c})
}

func (e *edge) info(*call) (Info, error) { return e.Info, nil }

// The document is public, so that it can be read without a key.
func (e *edge) openAPI(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "application/json")
	_, err := c.w.Write(e.document)
	return nil, err
}

// Orphaned workspaces are removed first, so that the sweeps count what is left.
func (e *edge) sweep(c *call) (map[string]map[string]int, error) {
	if c.flag("strangers") {
		if _, err := e.Sessions.RemoveOrphanedWorkspaces(c.ctx()); err != nil {
			return nil, err
		}
	}
	return e.Sweep(c.ctx())
}
