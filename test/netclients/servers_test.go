package netclients_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/egresstest"
)

// serverAddress is the loopback address that all servers listen on, at the ports that their clients expect. It is none
// of the host's own, which a range does not allow.
const serverAddress = "127.44.0.1"

// An internet is the servers that the clients reach, by the names that their name server gives them.
type internet struct {
	names *egresstest.NameServer
	ca    []byte // certificate of the authority that signed for all names
	key   []byte // private key of the user of ssh
}

// hosts are the names of the servers.
var hosts = []string{"web.test", "npm.test", "pypi.test", "crates.test", "go.test", "apt.test", "git.test", "db.test",
	"cache.test"}

// refusedHost is on no list, and leads to an address that no container may reach.
const refusedHost = "denied.test"

func newInternet(t *testing.T) *internet {
	t.Helper()
	w := &internet{names: egresstest.NewNameServer(t)}
	for _, name := range hosts {
		w.names.Set(name, serverAddress)
	}
	w.names.Set(refusedHost, "127.0.0.2")
	w.names.Set("web.test", serverAddress+" TXT=greeting")
	w.names.Set("_greeting._tcp.web.test", "SRV=5222:web.test SRV=5223:other.test")
	w.names.Set("_http._tcp.apt.test", "SRV=80:front.test") // as a repository has that is behind a shared front
	w.names.Set("front.test", serverAddress)
	certificate := w.certificate(t)
	handler := registries(t)
	plain := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.Host, ".test") {
			upstream().ServeHTTP(rw, r)
			return
		}
		handler.ServeHTTP(rw, r)
	})}
	secure := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	serve(t, plain, 80, plain.Serve)
	serve(t, secure, 443, func(l net.Listener) error { return secure.ServeTLS(l, "", "") })
	return w
}

func serve(t *testing.T, s *http.Server, port int, accept func(net.Listener) error) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(serverAddress, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = accept(l)
	}()
	t.Cleanup(func() { s.Close(); <-done })
}

// certificate returns one for all names, signed by an authority of its own.
func (w *internet) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	sign := func(c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		if by == nil {
			parent, by = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
		if err == nil {
			c, err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	root, rootKey := sign(&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test root"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, leafKey := sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "web.test"},
		DNSNames: hosts, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, root, rootKey)
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})
	return tls.Certificate{Certificate: [][]byte{leaf.Raw, root.Raw}, PrivateKey: leafKey}
}

// startServers starts the real servers of protocols other than HTTP: OpenSSH, PostgreSQL and Redis.
func (w *internet) startServers(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "netclients-") // of a path that other users may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.startSSH(t, dir)
	startPostgres(t, filepath.Join(dir, "db"))
	start(t, 6379, exec.Command("redis-server", "--bind", serverAddress, "--port", "6379", "--save", "",
		"--protected-mode", "no", "--dir", dir))
}

func (w *internet) startSSH(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"host", "user"} {
		run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	var err error
	if w.key, err = os.ReadFile(filepath.Join(dir, "user")); err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(dir, "user.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "authorized"), `restrict,command="git-shell -c \"$SSH_ORIGINAL_COMMAND\"" `+
		string(public), 0o644)
	write(t, filepath.Join(dir, "sshd_config"), fmt.Sprintf("ListenAddress %s:22\nHostKey %s/host\nPidFile none\n"+
		"AuthorizedKeysFile %[2]s/authorized\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"+
		"PermitRootLogin forced-commands-only\n", serverAddress, dir), 0o644)
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		t.Fatal(err)
	}
	start(t, 22, exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(dir, "sshd_config")))
}

// startPostgres starts a database server as another user: it refuses to run as root.
func startPostgres(t *testing.T, dir string) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Fatal("there is no PostgreSQL; `make test-network` installs it")
	}
	const nobody = 65534
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	as := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(found[0], program), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd
	}
	if out, err := as("initdb", "-D", dir, "-U", "test", "--auth=trust", "--no-sync", "--no-locale").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	write(t, filepath.Join(dir, "pg_hba.conf"), "host all test "+serverAddress+"/8 trust\n", 0o644)
	start(t, 5432, as("postgres", "-D", dir, "-h", serverAddress, "-k", "", "-F"))
}

// start starts a server and waits until it listens. It ends with the test.
func start(t *testing.T, port int, cmd *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // PostgreSQL ends its sessions
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	for {
		c, err := net.Dial("tcp", net.JoinHostPort(serverAddress, strconv.Itoa(port)))
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("%q ended: %s", cmd.Args, said.String())
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(50 * time.Millisecond): // it tells nobody when it listens
		}
	}
}
