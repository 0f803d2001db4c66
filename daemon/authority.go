package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"berth/egress/authority"
	"berth/proto"
	"berth/state/durable"
)

// An authorityFile holds the CA that signs the proxy's certificates for hosts that receive secrets. The CA is created
// when the first container needs it, and again when it is about to expire. Containers get its certificate at their
// start.
type authorityFile struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex // guards made; held while the CA is read or created
	made *authority.Authority
}

func newAuthorityFile(dir string, log *slog.Logger) *authorityFile {
	return &authorityFile{path: filepath.Join(dir, "egress-authority.pem"), log: log}
}

// get returns the CA, and reads or creates it first if needed.
func (f *authorityFile) get() (*authority.Authority, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made != nil {
		return f.made, nil
	}
	a, err := f.open()
	if err != nil {
		f.log.Error("there is no authority to put secrets into requests with", "error", err)
		return nil, proto.Errorf(proto.Unavailable, "", "network_secrets", "the daemon has no authority to put "+
			"secrets into requests with; its log says why")
	}
	f.made = a
	return a, nil
}

func (f *authorityFile) open() (*authority.Authority, error) {
	text, err := f.read()
	if err == nil {
		if a, err := authority.Read(text); err == nil {
			return a, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if text, err = authority.New(); err != nil {
		return nil, err
	}
	err = durable.WriteFile(f.path, 0o600, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return authority.Read(text)
}

// read reads the file. It refuses a file that other users can read.
func (f *authorityFile) read() ([]byte, error) {
	fi, err := os.Stat(f.path)
	if err == nil && fi.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s can be read by others than its owner; remove it, and another is made", f.path)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(f.path)
}

// readRoots returns the system's CAs and those in a file.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil // nil means the system's CAs
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading --egress-ca: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--egress-ca: %s holds no certificate in PEM", file)
	}
	return roots, nil
}
