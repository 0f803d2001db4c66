package secrets

import "berth/proto"

// A Vault seals secrets for the ledger. vault.Vault implements it. A sealed text opens under its name only.
type Vault interface {
	Seal(name string, text []byte) (string, error)
	Unseal(name, sealed string) ([]byte, error)
}

// None is the vault of a daemon without a vault.
type None struct{}

var errNoVault = proto.Errorf(proto.Unsupported, "", "secrets", "this daemon cannot keep secrets")

func (None) Seal(string, []byte) (string, error) { return "", errNoVault }

func (None) Unseal(string, string) ([]byte, error) { return nil, errNoVault }
