package native

import (
	"strconv"
	"strings"
	"time"

	"berth/proto"
)

// moment returns the time under a key, or the zero time.
func (c *call) moment(name string) time.Time {
	t, _ := time.Parse(time.RFC3339, c.query.Get(name)) // checked, or absent
	return t
}

// whole returns the number under a key, or 0.
func (c *call) whole(name string) int64 {
	n, _ := strconv.ParseInt(c.query.Get(name), 10, 64) // checked, or absent
	return n
}

// limit is whole for a limit, of which 0 is none.
func (c *call) limit(name string) int64 {
	if n := c.whole(name); n != 0 || !c.query.Has(name) {
		return n
	}
	return proto.NoLimit
}

func (c *call) flag(name string) bool { return c.query.Get(name) == "true" }

// mode returns the permission bits under a key, or 0.
func (c *call) mode(name string) uint32 {
	n, _ := strconv.ParseUint(c.query.Get(name), 8, 32) // checked, or absent
	return uint32(n)
}

// as returns the user that accesses files.
func (c *call) as() string {
	if as := c.query.Get("as"); as != "" {
		return as
	}
	return proto.UserDefault
}

// labels reads label=k=v. A value may contain '='.
func (c *call) labels() (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range c.query["label"] {
		k, v, ok := strings.Cut(pair, "=")
		// A repeated pair is harmless; two values for one key could never match.
		if old, twice := labels[k]; !ok || k == "" || twice && old != v {
			return nil, proto.Invalid("label", "label %.80q: write label=key=value, each key once.", pair)
		}
		labels[k] = v
	}
	return labels, nil
}
