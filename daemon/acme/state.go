package acme

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/state/durable"
)

// A state is what a daemon leaves to the next one, in state.json.
type state struct {
	Authority string    `json:"authority,omitempty"` // that has made the certificate
	Tried     time.Time `json:"tried,omitzero"`      // when a certificate was last asked for
	Next      time.Time `json:"next,omitzero"`       // when to try again, after a failure
	Failures  int       `json:"failures,omitempty"`  // in a row
	Error     string    `json:"error,omitempty"`     // of the last try
	Limited   bool      `json:"limited,omitempty"`   // the authority asked to wait
	Unended   int       `json:"unended,omitempty"`   // tries in a row whose end no daemon has seen
}

func stateFile(dir string) string { return filepath.Join(dir, "state.json") }

// readState reads the state. One that is missing or broken only means that the daemon tries at once.
func readState(dir string) (s state) {
	data, err := os.ReadFile(stateFile(dir))
	if err != nil || json.Unmarshal(data, &s) != nil {
		return state{}
	}
	return s
}

func (s state) write(dir string) error {
	return durable.WriteFile(stateFile(dir), 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}

// readCert reads a certificate with its key.
func readCert(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// A Status says how the certificate stands.
type Status struct {
	Expires time.Time // of the certificate; zero: there is none
	Error   string    // of the last try to get one; "": it did not fail
	Next    time.Time // of the next try, after a failure
	Tries   int       // that failed, in a row
}

// Examine returns the status of the certificate below a directory, also while a daemon runs. known is false if no
// daemon has ever asked for a certificate there.
func Examine(dir string) (s Status, known bool) {
	st := readState(dir)
	s = Status{Error: st.Error, Next: st.Next, Tries: st.Failures}
	if cert, err := readCert(CertFile(dir)); err == nil {
		s.Expires = cert.NotAfter
	}
	return s, !st.Tried.IsZero() || !s.Expires.IsZero()
}

// Status returns how the certificate stands.
func (m *Manager) Status() Status {
	s, _ := Examine(m.cfg.Dir)
	return s
}
