package proto

// A NetworkMode says what a container may connect to.
type NetworkMode string

// The modes, from the narrowest to the widest. In each of them the container itself has loopback alone; what goes out
// goes through the daemon.
const (
	NetworkNone      NetworkMode = "none"      // nothing: loopback alone, and no resolver
	NetworkAllowlist NetworkMode = "allowlist" // the hosts that Network.Allow lists
	NetworkOpen      NetworkMode = "open"      // any public host
)

// ContainerAddress is the address of a container with a network, on its loopback. Its name server is there, too.
const ContainerAddress = "198.19.255.254"

// GatewayAddress is where the network of a container of the class gvisor begins, which has a kernel of its own. The
// container's name server is there.
const GatewayAddress = "198.19.255.253"

// Covers reports whether m lets through all that other does.
func (m NetworkMode) Covers(other NetworkMode) bool { return m.width() >= other.width() }

func (m NetworkMode) width() int {
	switch m {
	case NetworkAllowlist:
		return 1
	case NetworkOpen:
		return 2
	}
	return 0
}

// A Network is what a container may reach. In a request, a mode may stand in its place: "open".
type Network struct {
	// none: nothing. allowlist: the hosts in allow. open: any public host. Default allowlist if allow has hosts,
	// otherwise none.
	Mode NetworkMode `json:"mode,omitempty" schema:"enum=|none|allowlist|open"`
	// Hosts such as api.github.com, api.example.com:8443 or *.example.com, where the star stands for one label.
	// Without a port, 80 and 443 are allowed.
	Allow []string `json:"allow,omitempty" schema:"maxItems=256 hosts"`
	// Whether a connection to a host that is not listed waits for a person's decision; see GET /v1/approvals.
	Ask bool `json:"ask,omitempty"`
	// Hosts that are refused without asking, written as in allow. They are refused even if allow has them.
	Deny []string `json:"deny,omitempty" schema:"maxItems=256 hosts"`
}

// SetShort is Network where a mode alone stands for it.
func (n *Network) SetShort(mode string) { *n = Network{Mode: NetworkMode(mode)} }

// IsZero reports whether nothing was asked for.
func (n Network) IsZero() bool { return n.Mode == "" && len(n.Allow)+len(n.Deny) == 0 && !n.Ask }

// A NetworkSecret is a secret that code in a container never has. Its environment has a placeholder, and the proxy
// puts the value into requests to these hosts alone.
type NetworkSecret struct {
	Value string   `json:"value,omitempty"` // At least 4 bytes. It is never returned.
	Hosts []string `json:"hosts"`           // Written as in the allow list of a network.
}

// An AuditEgress is what the audit log tells of a request that left a container, or was to.
type AuditEgress struct {
	Method   string  `json:"method"`            // "CONNECT", "SOCKS5", "TCP", "DNS", or that of a plain HTTP request
	Host     string  `json:"host,omitempty"`    // name or address, as it was judged; empty where it was none
	Port     uint16  `json:"port,omitempty"`    //
	Address  string  `json:"address,omitempty"` // that was dialled
	Reason   string  `json:"reason,omitempty"`  // why it was refused or cut, in a word; Note says it in a sentence
	Sent     int64   `json:"sent_bytes"`        // this and what follows only at its end
	Received int64   `json:"received_bytes"`
	Seconds  float64 `json:"seconds"`

	Secrets []string `json:"secrets,omitempty"` // names of those that were put in
}
