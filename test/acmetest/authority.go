// Package acmetest has what a test of ACME needs beside the daemon: Let's Encrypt's test authority, pebble, and a name
// server that takes dynamic updates. Both are real ones, in the test's process.
package acmetest

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
)

// A Config says what kind of authority a test needs.
type Config struct {
	Valid    time.Duration     // lifetime of certificates; 0: 90 days
	HTTPPort int               // where the authority asks over HTTP
	Accounts map[string]string // external accounts, which are then required: IDs and keys
	Resolver string            // name server of the authority
}

// An Authority is a running pebble.
type Authority struct {
	URL    string         // of its directory
	CAFile string         // certifies the server of the directory
	Roots  *x509.CertPool // certify what it issues

	orders  atomic.Int64
	Down    atomic.Bool // it ends each connection
	Limited atomic.Bool // it refuses orders for their number
}

// New starts an authority that ends with the test.
func New(t *testing.T, cfg Config) *Authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")     // no random waits
	t.Setenv("PEBBLE_AUTHZREUSE", "0")     // each order is checked
	logger := log.New(io.Discard, "", 0)   // of the authority, which the test does not judge
	store := db.NewMemoryStore()           //
	seconds := uint64(cfg.Valid.Seconds()) // 0: pebble's default
	profiles := map[string]ca.Profile{"default": {Description: "of the test", ValidityPeriod: seconds}}
	issuer := ca.New(logger, store, "", "ecdsa", 0, 1, profiles)
	checker := va.New(logger, cfg.HTTPPort, 0, true, cfg.Resolver, store)
	for id, key := range cfg.Accounts {
		if err := store.AddExternalAccountKeyByID(id, key); err != nil {
			t.Fatal(err)
		}
	}
	front := wfe.New(logger, store, checker, issuer, []string{"pebble.test"}, true, len(cfg.Accounts) > 0, 1, 1)
	a := &Authority{Roots: x509.NewCertPool(), CAFile: filepath.Join(t.TempDir(), "ca.pem")}
	server := httptest.NewUnstartedServer(a.limit(front.Handler()))
	server.Config.ErrorLog = logger
	server.StartTLS()
	t.Cleanup(server.Close)
	a.URL = server.URL + wfe.DirectoryPath
	a.Roots.AddCert(issuer.GetRootCert(0).Cert)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(a.CAFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// Orders returns how many orders the authority has been given.
func (a *Authority) Orders() int { return int(a.orders.Load()) }

// limit counts orders, and is what stands before an authority that is down or has too many of them.
func (a *Authority) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Down.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/order-plz") {
			a.orders.Add(1)
			if a.Limited.Load() {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many orders"}`)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
