package proto

// Isolation is what separates a container from its host, as the kernel has it and not as it was configured. It
// is found out at each start; a container that has never been up has the zero Isolation.
type Isolation struct {
	Kernel        string `json:"kernel"`         // name and release as seen inside
	UserNamespace bool   `json:"user_namespace"` // its root is nobody on the host
	HostUID       int64  `json:"host_uid"`       // what its root is there; -1 when unknown
	// what the kernel counts for each user, inotify for one, it shares with nobody
	OwnCounts  bool `json:"own_counts"`
	Seccomp    bool `json:"seccomp"`      // its system calls are filtered
	NoNewPrivs bool `json:"no_new_privs"` // no program in it can gain privileges
	// NetworkNone; ThroughProxy where the daemon carries what goes out; "" when unknown
	Network string `json:"network"`
}

// ThroughProxy is the network of a container that has loopback alone, and on it the daemon's proxy.
const ThroughProxy = "proxy"

// SetThroughProxy says whether the daemon carries what goes out of a container that has loopback alone.
func (i *Isolation) SetThroughProxy(carries bool) {
	switch {
	case carries && i.Network == string(NetworkNone):
		i.Network = ThroughProxy
	case !carries && i.Network == ThroughProxy:
		i.Network = string(NetworkNone)
	}
}
