package examples_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/test/egresstest"
)

// What the recipe `secrets` talks to, and the address at which containers find it.
const (
	github        = "api.github.com"
	githubAddress = "127.0.83.61"
	githubToken   = "a-token-of-github"
)

// network starts a name server where github leads to a server of this test, which knows one token. It returns the flags
// of a daemon whose containers may ask both.
func network(t *testing.T) (flags []string) {
	t.Helper()
	names := egresstest.NewNameServer(t)
	names.Set(github, githubAddress)
	names.Set("example.com", githubAddress)
	certificate, authority := certificate(t)
	listener, err := tls.Listen("tcp", net.JoinHostPort(githubAddress, "443"),
		&tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != github || r.Header.Get("Authorization") != "Bearer "+githubToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, `{"login": "octocat"}`)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return []string{"--network-max", "allowlist", "--resolver", names.Addr, "--egress-allow-private", githubAddress,
		"--egress-ca", authority}
}

// certificate makes a certificate for github, and a file with the authority to trust, which is the certificate itself.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: github},
		DNSNames: []string{github}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}
