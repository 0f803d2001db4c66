package client

import "context"

// A Rotation is the result of a change of the keys that seal secrets.
type Rotation struct {
	KeyID    string `json:"key_id"`   // ID of the key that seals now
	Keys     int    `json:"keys"`     // number of keys in the file
	Resealed int    `json:"resealed"` // records sealed with the new key
	Closed   int    `json:"closed"`   // records that no key in the file opens
}

// RotateVault creates a new key and seals all secrets with it. With forget, it removes the old keys instead.
func (c *Client) RotateVault(ctx context.Context, forget bool) (r Rotation, err error) {
	act := "rotate"
	if forget {
		act = "forget"
	}
	err = c.post(ctx, at("vault", act), nil, &r)
	return r, err
}
