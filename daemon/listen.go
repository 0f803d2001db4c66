package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/api/ports/address"
	"berth/daemon/certs"
)

// TLSDir returns the directory of the daemon's own certificate in a data directory.
func TLSDir(dir string) string { return filepath.Join(dir, "tls") }

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
	if d.cfg.TLSSelfSigned || d.cfg.TLSCert != "" || d.cfg.TLSKey != "" {
		if d.certs, err = certs.Open(certs.Config{
			CertFile: d.cfg.TLSCert, KeyFile: d.cfg.TLSKey, Dir: TLSDir(d.cfg.Dir), Hosts: hosts, Log: d.cfg.Log,
		}); err != nil {
			return err
		}
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
			"use --tls-self-signed or --tls-cert, or listen on 127.0.0.1 behind a proxy that has TLS", "address",
			d.listener.Addr().String())
	}
	return nil
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
