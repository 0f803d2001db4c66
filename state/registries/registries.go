// Package registries keeps the daemon's credentials for image registries. Passwords are sealed in the ledger.
//
// The credentials are the daemon's, not an owner's, as images are: only administrators set them, pull and push.
// Package images speaks to registries and asks For.
package registries

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/state/ledger"
	"berth/state/vault"
)

// Bounds of credentials. Tokens of some registries have several KiB.
const (
	maxRegistries = 64
	maxUsername   = 256      // bytes
	maxPassword   = 16 << 10 // bytes
)

// bucket has the records in the ledger, by host.
const bucket = "registries"

// DockerHub is the name of Docker Hub, whose registry has other host names.
const DockerHub = "docker.io"

// A Vault seals the passwords. vault.Vault is one.
type Vault interface {
	Seal(name string, text []byte) (string, error)
	Unseal(name, sealed string) ([]byte, error)
}

// A record is a registry in the ledger.
type record struct {
	Registry proto.Registry `json:"registry"`
	Sealed   string         `json:"password"`
}

// A Store has the credentials. It is safe for concurrent use.
type Store struct {
	db    *ledger.DB
	vault Vault

	mu  sync.Mutex // guards all; held while the ledger writes, so that no change is lost
	all map[string]record
}

// Open reads the records.
func Open(db *ledger.DB, vault Vault) (*Store, error) {
	s := &Store{db: db, vault: vault, all: map[string]record{}}
	return s, s.load()
}

// load reads all records. mu is held, or nobody else knows s.
func (s *Store) load() error {
	return s.db.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucket, "", func(host string, r record) { s.all[host] = r })
	})
}

// hostForm is a host name or an address, and a port. A name without a dot needs a port, as in names of images.
var hostForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:.]+\])` +
	`(:[0-9]{1,5})?$`)

// HostOf returns the name under which a registry's credentials are kept. It returns InvalidArgument for what is no
// host.
func HostOf(host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/"))
	switch host {
	case "index.docker.io", "registry-1.docker.io", "index.docker.io/v1":
		return DockerHub, nil
	}
	if len(host) > 255 || !hostForm.MatchString(host) || host != "localhost" && !strings.ContainsAny(host, ".:") {
		return "", proto.Invalid("host", "host %.80q is no registry; write it like ghcr.io or "+
			"registry.example.com:5000", host)
	}
	return host, nil
}

// sealName is the name under which a password is sealed.
func sealName(host string) string { return "registry/" + host }

// Set keeps credentials, and replaces those that were there for the host.
func (s *Store) Set(host string, req proto.SetRegistry) (proto.Registry, error) {
	host, err := HostOf(host)
	if err == nil {
		err = Check(req)
	}
	if err != nil {
		return proto.Registry{}, err
	}
	r := record{Registry: proto.Registry{Host: host, Username: req.Username, UpdatedAt: proto.At(time.Now())}}
	if r.Sealed, err = s.vault.Seal(sealName(host), []byte(req.Password)); err != nil {
		return proto.Registry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.all[host]; !known && len(s.all) >= maxRegistries {
		return proto.Registry{}, proto.Errorf(proto.TooMany, "", host, "there are credentials for %d registries, "+
			"which is the limit; remove some", maxRegistries)
	}
	if err := s.db.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, host, r) }); err != nil {
		return proto.Registry{}, err
	}
	s.all[host] = r
	return r.Registry, nil
}

// Check returns InvalidArgument for credentials that no registry can have.
func Check(req proto.SetRegistry) error {
	switch {
	case req.Username == "" || len(req.Username) > maxUsername || strings.ContainsAny(req.Username, ":\r\n\x00"):
		return proto.Invalid("username", "username must have 1 to %d bytes, and no colon", maxUsername)
	case req.Password == "" || len(req.Password) > maxPassword || strings.ContainsAny(req.Password, "\r\n\x00"):
		return proto.Invalid("password", "password must have 1 to %d bytes, and no line feed", maxPassword)
	}
	return nil
}

// List returns the registries, by host.
func (s *Store) List() []proto.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []proto.Registry{}
	for _, host := range slices.Sorted(maps.Keys(s.all)) {
		list = append(list, s.all[host].Registry)
	}
	return list
}

// Remove forgets the credentials for a registry.
func (s *Store) Remove(host string) error {
	name, err := HostOf(host)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[name]; !ok {
		return proto.Errorf(proto.NotFound, "", name, "there are no credentials for %.80q", name)
	}
	if err := s.db.Update(func(tx *ledger.Tx) error { return tx.Delete(bucket, name) }); err != nil {
		return err
	}
	delete(s.all, name)
	return nil
}

// For returns the credentials for a registry, or empty strings. It fails if the vault cannot open the password.
func (s *Store) For(host string) (username, password string, err error) {
	name, err := HostOf(host)
	if err != nil {
		return "", "", nil // such a name can have none
	}
	s.mu.Lock()
	r, ok := s.all[name]
	s.mu.Unlock()
	if !ok {
		return "", "", nil
	}
	text, err := s.vault.Unseal(sealName(name), r.Sealed)
	return r.Registry.Username, string(text), err
}

// Reseal seals all passwords again. It is for a running daemon, whose records in memory change, too.
func (s *Store) Reseal(reseal vault.Resealer) (changed, closed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed, closed, err = Reseal(s.db, reseal); err == nil {
		err = s.load()
	}
	return changed, closed, err
}

// Reseal seals all passwords in the ledger of a daemon that does not run.
func Reseal(db *ledger.DB, reseal vault.Resealer) (changed, closed int, err error) {
	return vault.ResealBucket(db, bucket, reseal, func(r *record) (string, *string) {
		return sealName(r.Registry.Host), &r.Sealed
	})
}
