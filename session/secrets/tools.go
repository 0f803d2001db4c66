package secrets

import "strings"

// Tools are the secrets of a provider of tools, which the ledger has sealed.
type Tools struct {
	Headers map[string]string `json:"headers,omitempty"`
	Secret  string            `json:"secret,omitempty"`
}

// IsZero reports whether there are none.
func (t Tools) IsZero() bool { return len(t.Headers) == 0 && t.Secret == "" }

// Words returns the values to hide in texts.
func (t Tools) Words() map[string]string {
	if t.IsZero() {
		return nil
	}
	list := map[string]string{"": t.Secret}
	for name, value := range t.Headers {
		_, bare, _ := strings.Cut(value, " ") // "Bearer …"
		list[name], list[name+" "] = value, bare
	}
	return list
}
