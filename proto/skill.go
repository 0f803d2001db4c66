package proto

// A SkillRef names a skill that a container is to have.
type SkillRef struct {
	Type    string `json:"type"` // "custom", or "anthropic" for skills that come with the daemon
	SkillID string `json:"skill_id"`
	Version string `json:"version,omitempty"` // "" is the latest
}
