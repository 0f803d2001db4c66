package proto

// Port is a port of a container that a program listens on.
type Port struct {
	Port    uint16 `json:"port"`
	Address string `json:"address"`           // That the program listens on, such as 127.0.0.1 or 0.0.0.0.
	PID     int    `json:"pid"`               // In the container; 0 if unknown, as under gVisor.
	Program string `json:"program,omitempty"` // Name of the process.
}
