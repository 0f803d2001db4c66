package daemon

import (
	"os/user"
	"strconv"

	"berth/state/keys"
)

// GroupName is the group whose members may use the first API key, if the machine has such a group. They have the rights
// of the daemon's administrator.
const GroupName = "berth"

// Group returns the ID of the group of GroupName, or keys.NoGroup.
func Group() int {
	g, err := user.LookupGroup(GroupName)
	if err != nil { // there is none, or no list of groups
		return keys.NoGroup
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return keys.NoGroup
	}
	return id
}
