package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/daemon/certs"
)

// TLSDir is where a data directory's own certificate is.
func TLSDir(dir string) string { return filepath.Join(dir, "tls") }

// CAFile is what clients are to trust where a data directory's daemon made its own certificate.
func CAFile(dir string) string { return certs.CAFile(TLSDir(dir)) }

// URLFile is where a data directory's daemon says where it listens, while it runs.
func URLFile(dir string) string { return filepath.Join(dir, "url") }

// tell writes it there, for clients on this machine. One that listens on every address is reached at its own.
// No client can connect to 0.0.0.0 or [::] on every system, so loopback is written there.
func (d *Daemon) tell() error {
	url := d.URL()
	if addr, ok := d.Addr().(*net.TCPAddr); ok && addr.IP.IsUnspecified() {
		url = strings.Replace(url, addr.String(), net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port)), 1)
	}
	return os.WriteFile(URLFile(d.cfg.Dir), []byte(url+"\n"), 0o644)
}

// listen opens the port, and the certificate if there is to be one.
func (d *Daemon) listen() (err error) {
	if d.cfg.TLSSelfSigned || d.cfg.TLSCert != "" || d.cfg.TLSKey != "" {
		if d.certs, err = certs.Open(certs.Config{
			CertFile: d.cfg.TLSCert, KeyFile: d.cfg.TLSKey, Dir: TLSDir(d.cfg.Dir), Hosts: hostsOf(d.cfg.Listen),
			Log: d.cfg.Log,
		}); err != nil {
			return err
		}
	}
	// The certificate is read before the port is taken: one that cannot be used should not cost a moment
	// of a port that answers nothing.
	if d.listener, err = net.Listen("tcp", d.cfg.Listen); err != nil {
		return fmt.Errorf("listening: %w; choose another --listen, or stop what has the port", err)
	}
	d.keep(quietCloser{d.listener})
	if a, ok := d.listener.Addr().(*net.TCPAddr); d.certs == nil && ok && !a.IP.IsLoopback() {
		d.cfg.Log.Warn("API KEYS AND DATA CROSS THE NETWORK IN CLEAR TEXT: this address can be reached from other "+
			"machines, and there is no TLS; "+
			"use --tls-self-signed or --tls-cert, or listen on 127.0.0.1 behind a proxy that has TLS", "address",
			a.String())
	}
	return nil
}

// hostsOf are the names that a client may use for a listening address: its host, or where that is any address,
// all that this machine has now.
func hostsOf(listen string) (list []string) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil // listening says what is wrong with it
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return []string{host}
	}
	addrs, _ := net.InterfaceAddrs() // without them there is still the machine's name
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// URL is where it listens.
func (d *Daemon) URL() string {
	if d.certs != nil {
		return "https://" + d.Addr().String()
	}
	return "http://" + d.Addr().String()
}

// Fingerprint is the SHA-256 of the certificate, and file what clients are to trust where it is the daemon's own.
// Both are empty without TLS.
func (d *Daemon) Fingerprint() (sum, file string) {
	if d.certs == nil {
		return "", ""
	}
	return d.certs.Fingerprint(), d.certs.CAFile()
}

// accept is the listener that requests come from.
func (d *Daemon) accept() net.Listener {
	if d.certs == nil {
		return d.listener
	}
	return tls.NewListener(d.listener, d.certs.TLS())
}
