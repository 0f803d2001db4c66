package proto

// Port is a port of a container that a program listens on.
type Port struct {
	Port    uint16 `json:"port"`
	Address string `json:"address"`           // That the program listens on, such as 127.0.0.1 or 0.0.0.0.
	PID     int    `json:"pid"`               // In the container; 0 if unknown, as under gVisor.
	Program string `json:"program,omitempty"` // Name of the process.
	// Of the port's own host name, if the daemon has a domain. It needs an API key, or a signed URL.
	URL string `json:"url,omitempty"`
}

// A SignPort asks for a signed URL.
type SignPort struct {
	// How long the URL is valid; 0 is the default, one hour.
	ExpiresInSeconds int64 `json:"expires_in_seconds,omitempty" schema:"min=0 max=604800"`
}

// Bounds of SignPort, in seconds.
const (
	UsualPortURL = 60 * 60
	MaxPortURL   = 7 * 24 * 60 * 60
)

// A PortURL is a signed URL: who has it may use one port of a container until a time. It ends with the container, and
// with the API key that asked for it.
type PortURL struct {
	URL       string `json:"url"`
	ExpiresAt Time   `json:"expires_at"`
}
