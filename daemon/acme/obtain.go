package acme

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/state/durable"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
)

// tryLimit bounds one try, beside the time that a record may take.
const tryLimit = 10 * time.Minute

// obtain gets a certificate in place of old, which is nil if there is none. Each certificate has a new key.
func (m *Manager) obtain(ctx context.Context, old *x509.Certificate) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit+m.mostWait())
	defer cancel()
	account, err := m.account(ctx)
	if err != nil {
		return fmt.Errorf("opening the account: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	csr, err := acmez.NewCSR(key, m.names())
	if err != nil {
		return err
	}
	order, err := acmez.OrderParametersFromCSR(account, csr)
	if err != nil {
		return err
	}
	order.Profile, order.Replaces = m.cfg.Settings["profile"], old
	chains, err := m.client.ObtainCertificate(ctx, order)
	if err != nil {
		return err
	}
	if len(chains) == 0 {
		return errors.New("the authority has made the certificate and does not give it")
	}
	return m.keep(chains[0].ChainPEM, key)
}

// mostWait returns how long DNS records may take.
func (m *Manager) mostWait() time.Duration {
	if m.setter == nil {
		return 0
	}
	return 2 * m.setter.MostWait() // a record for each name
}

// keep writes a certificate with its key, if they are what was asked for.
func (m *Manager) keep(chain []byte, key *ecdsa.PrivateKey) error {
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(chain, text)
	if err != nil {
		return fmt.Errorf("the authority's certificate: %w", err)
	}
	if err := m.covers(pair.Leaf); err != nil {
		return fmt.Errorf("the authority's certificate: %w", err)
	}
	if err := writeSecret(CertFile(m.cfg.Dir), append(chain, text...)); err != nil {
		return err
	}
	m.cfg.Log.Info("the ACME authority has made a certificate", "names", m.names(), "until", pair.Leaf.NotAfter)
	return nil
}

// account returns our account with the authority, and makes one if there is none. A second account key would be made
// with each start if the first could not be kept, so the key is written before it is used.
func (m *Manager) account(ctx context.Context) (acme.Account, error) {
	key, err := m.accountKey()
	if err != nil {
		return acme.Account{}, err
	}
	account, err := m.client.GetAccount(ctx, acme.Account{PrivateKey: key})
	if !isProblem(err, acme.ProblemTypeAccountDoesNotExist) {
		return account, err
	}
	account = acme.Account{PrivateKey: key, TermsOfServiceAgreed: true} // --acme-agree says so
	if m.cfg.Email != "" {
		account.Contact = []string{"mailto:" + m.cfg.Email}
	}
	if id := m.cfg.Settings["eab_kid"]; id != "" {
		eab := acme.EAB{KeyID: id, MACKey: m.cfg.Settings["eab_hmac"]}
		if err := account.SetExternalAccountBinding(ctx, m.client.Client, eab); err != nil {
			return acme.Account{}, err
		}
	}
	return m.client.NewAccount(ctx, account)
}

// accountKey reads the key of our account, or makes one. Each authority has its own, so that none can act as us at
// another.
func (m *Manager) accountKey() (crypto.Signer, error) {
	sum := sha256.Sum256([]byte(m.cfg.Authority))
	path := filepath.Join(m.cfg.Dir, "account-"+hex.EncodeToString(sum[:6])+".pem")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		if text, err = encodeKey(key); err != nil {
			return nil, err
		}
		return key, writeSecret(path, text)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no key; remove it, and another account is made", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

func writeSecret(path string, text []byte) error {
	return durable.WriteFile(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
