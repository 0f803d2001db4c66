package proto

// SetRegistry has the credentials for one image registry.
type SetRegistry struct {
	Username string `json:"username"`
	// A password or an access token. No answer has it.
	Password string `json:"password"`
}

// A Registry is an image registry that the daemon has credentials for.
type Registry struct {
	Host      string `json:"host"` // with its port, if it is not 443, such as ghcr.io; docker.io is Docker Hub
	Username  string `json:"username"`
	UpdatedAt Time   `json:"updated_at"`
}

// PushImage names an image and where to push it.
type PushImage struct {
	Name string `json:"name" schema:"image"` // of an image of the daemon
	// The name in the registry, such as ghcr.io/owner/name:1; default the image's own name.
	Ref string `json:"ref,omitempty" schema:"image"`
}
