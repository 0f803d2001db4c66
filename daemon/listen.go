package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/api/ports/address"
	"berth/daemon/acme"
	"berth/daemon/certs"
	"berth/state/keys"
)

// TLSDir returns the directory of the daemon's own certificate in a data directory.
func TLSDir(dir string) string { return filepath.Join(dir, "tls") }

// ACMEDir returns the directory of the certificate that an ACME authority has made.
func ACMEDir(dir string) string { return filepath.Join(dir, "acme") }

// URLFile returns the path of the file in which a running daemon publishes its URL.
func URLFile(dir string) string { return filepath.Join(dir, "url") }

// tell writes the daemon's URL to the URL file, for clients on this machine. Not every system can connect to 0.0.0.0
// or [::]. A daemon that listens on all addresses therefore writes the loopback address.
func (d *Daemon) tell() error {
	url := d.URL()
	if addr, ok := d.Addr().(*net.TCPAddr); ok && addr.IP.IsUnspecified() {
		url = strings.Replace(url, addr.String(), net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port)), 1)
	}
	return os.WriteFile(URLFile(d.cfg.Dir), []byte(url+"\n"), 0o644)
}

// listen opens the port, and the certificate if TLS is on.
func (d *Daemon) listen() (err error) {
	hosts := hostsOf(d.cfg.Listen)
	if d.cfg.Domain != "" {
		if d.domain, err = address.Parse(d.cfg.Domain); err != nil {
			return fmt.Errorf("--domain: %w", err)
		}
		hosts = append(hosts, d.domain.Name, "*."+d.domain.Name)
	}
	issued, err := d.openACME()
	if err != nil {
		return err
	}
	if d.cfg.TLSSelfSigned || d.cfg.TLSCert != "" || d.cfg.TLSKey != "" || issued != "" {
		if d.certs, err = certs.Open(certs.Config{CertFile: d.cfg.TLSCert, KeyFile: d.cfg.TLSKey,
			Dir: TLSDir(d.cfg.Dir), Issued: issued, Hosts: hosts, Log: d.cfg.Log}); err != nil {
			return err
		}
		d.metrics.registry.MustRegister(certCounts{d.certs})
	}
	// The certificate is read before the port is opened. With an unusable certificate, the port never opens.
	if d.listener, err = net.Listen("tcp", d.cfg.Listen); err != nil {
		return fmt.Errorf("listening: %w; choose another --listen, or stop what has the port", err)
	}
	d.keep(quietCloser{d.listener})
	d.settleDomain()
	if d.certs == nil && !isLoopback(d.listener) {
		d.cfg.Log.Warn("API KEYS AND DATA CROSS THE NETWORK IN CLEAR TEXT: this address can be reached from other "+
			"machines, and there is no TLS; "+
			"use --tls-self-signed, --tls-cert or --acme, or listen on 127.0.0.1 behind a proxy that has TLS",
			"address", d.listener.Addr().String())
	}
	return nil
}

// openACME opens what gets a certificate for the domain from an authority, and returns the file that it will be in; ""
// without --acme.
func (d *Daemon) openACME() (file string, err error) {
	cfg := d.cfg.ACME
	if cfg.Authority == "" {
		return "", nil
	}
	if cfg.Domain = d.domain.Name; cfg.Domain == "" {
		return "", errors.New("--acme: the certificate is for the domain of --domain, and there is none")
	}
	if d.cfg.ACMEConfig != "" {
		if cfg.Settings, err = keys.ReadPairs(d.cfg.ACMEConfig, "--acme-config", acme.CheckSetting); err != nil {
			return "", err
		}
	}
	cfg.Dir, cfg.Log, cfg.Agent = ACMEDir(d.cfg.Dir), d.cfg.Log, "berth/"+d.cfg.Version
	if d.acme, err = acme.Open(cfg); err != nil {
		return "", fmt.Errorf("--acme: %w", err)
	}
	d.keep(d.acme)
	d.metrics.registry.MustRegister(acmeCounts{d.acme})
	if cfg.DNS == "" {
		d.cfg.Log.Warn("the ACME authority will certify the domain and no name below it, so host names of ports have "+
			"no certificate that clients trust; use --acme-dns", "domain", cfg.Domain)
	}
	return acme.CertFile(cfg.Dir), nil
}

// settleDomain completes the domain of ports with what is known of the open port. Browsers and many resolvers take
// every name below localhost for this machine, so that is the domain of a daemon that listens on loopback.
func (d *Daemon) settleDomain() {
	if d.cfg.Domain == "" && d.certs == nil && isLoopback(d.listener) {
		d.domain.Name = "localhost"
	}
	scheme, _, _ := strings.Cut(d.URL(), ":")
	_, port, _ := net.SplitHostPort(d.Addr().String())
	d.domain = d.domain.At(scheme, port)
}

// isLoopback reports whether only programs of this machine can connect.
func isLoopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// hostsOf returns the hosts that clients may use for a listening address: its host, or all addresses that this
// machine has now if it is the unspecified address.
func hostsOf(listen string) (list []string) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil // net.Listen returns the error
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return []string{host}
	}
	addrs, _ := net.InterfaceAddrs() // on failure, the machine's name remains
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// URL returns the URL that the daemon listens on.
func (d *Daemon) URL() string {
	if d.certs != nil {
		return "https://" + d.Addr().String()
	}
	return "http://" + d.Addr().String()
}

// Fingerprint returns the SHA-256 of the certificate. If the daemon created the certificate, file is the CA that
// clients must trust. Both are empty without TLS.
func (d *Daemon) Fingerprint() (sum, file string) {
	if d.certs == nil {
		return "", ""
	}
	return d.certs.Fingerprint(), d.certs.CAFile()
}

// accept returns the listener for requests, with TLS if it is on.
func (d *Daemon) accept() net.Listener {
	if d.certs == nil {
		return d.listener
	}
	return tls.NewListener(d.listener, d.certs.TLS())
}
