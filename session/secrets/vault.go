package secrets

import "berth/proto"

// A Vault seals what must not be in the ledger in clear; vault.Vault is the one there is. A sealed text opens under
// its name alone.
type Vault interface {
	Seal(name string, text []byte) (string, error)
	Unseal(name, sealed string) ([]byte, error)
}

// None is the vault of a daemon without one.
type None struct{}

var errNoVault = proto.Errorf(proto.Unsupported, "", "secrets", "this daemon cannot keep secrets")

func (None) Seal(string, []byte) (string, error) { return "", errNoVault }

func (None) Unseal(string, string) ([]byte, error) { return nil, errNoVault }
