package client

import "context"

// A Rotation is what was done about the keys that seal secrets.
type Rotation struct {
	KeyID    string `json:"key_id"`   // of the key that seals now
	Keys     int    `json:"keys"`     // in the file
	Resealed int    `json:"resealed"` // records sealed anew
	Closed   int    `json:"closed"`   // records that no key in the file opens
}

// RotateVault makes a new key and has all secrets sealed anew; with forget it takes the old keys away instead.
func (c *Client) RotateVault(ctx context.Context, forget bool) (r Rotation, err error) {
	act := "rotate"
	if forget {
		act = "forget"
	}
	err = c.post(ctx, at("vault", act), nil, &r)
	return r, err
}
