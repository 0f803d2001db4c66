// Package daemontest runs the real daemon in a separate process for tests. It needs the programs that make has built,
// the base image, containerd, runc and gVisor. Their locations are in environment variables that `make test` sets.
package daemontest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/test/launch"
)

// A Daemon is one `berth serve` process.
type Daemon struct {
	Dir   string   // its data directory
	Flags []string // for the next start, in addition to those for Dir and a free port
	URL   string   // where it listens; changes with each start
	Key   string   // its first API key

	proc *launch.Process // nil: never started
	boot string          // directory of the program that gives the daemon another boot ID; "": it has the host's
}

// Binary returns the path of the berth program that make has built.
func Binary() (string, error) {
	if os.Getenv("BERTH_BIN") == "" || os.Getenv("BERTH_BASE_IMAGE") == "" {
		return "", errors.New("BERTH_BIN and BERTH_BASE_IMAGE are not set; run these tests with `make test`")
	}
	return filepath.Join(os.Getenv("BERTH_BIN"), "berth"), nil
}

// New starts a daemon with a new data directory and imports the base image. Close removes both.
func New(flags ...string) (*Daemon, error) {
	if _, err := Binary(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "berth-daemon-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{Dir: dir, Flags: flags}
	if err = d.Start(); err == nil {
		err = d.ImportImage("base", os.Getenv("BERTH_BASE_IMAGE"))
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close stops the daemon and all its containers, and removes its data.
func (d *Daemon) Close() error {
	if d.proc != nil {
		d.Stop(syscall.SIGTERM)
	}
	if d.boot != "" {
		_ = os.RemoveAll(d.boot) // only small files
	}
	return os.RemoveAll(d.Dir)
}

// Start runs the daemon and returns when it reports that it is ready. Log lines above the level info are shown.
func (d *Daemon) Start() error {
	bin, err := d.program()
	if err != nil {
		return err
	}
	proc, err := launch.Start(bin, d.Dir, d.Flags, func(line string) {
		if !strings.Contains(line, "level=INFO") {
			fmt.Fprintln(os.Stderr, line)
		}
	})
	if proc != nil { // a daemon that failed has a log too
		d.proc, d.URL, d.Key = proc, proc.URL, proc.Key
	}
	return err
}

// StartKilled runs the daemon and kills it after that time, whether it is ready or not.
func (d *Daemon) StartKilled(after time.Duration) error {
	bin, err := d.program()
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, launch.Args(d.Dir, d.Flags...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // the error only says that it was killed
	return nil
}

// Log returns the daemon's log since its last start.
func (d *Daemon) Log() string { return d.proc.Log() }

// Faults returns the lines of the log that tell of an error of the daemon's own.
func (d *Daemon) Faults() (lines []string) {
	for line := range strings.SplitSeq(d.Log(), "\n") {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "status=500") {
			lines = append(lines, line)
		}
	}
	return lines
}

// PID returns the daemon's process ID.
func (d *Daemon) PID() int { return d.proc.PID() }

// Exited returns a channel that is closed when the daemon has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.proc.Exited() }

// Stop sends a signal and waits for the daemon to end.
func (d *Daemon) Stop(sig syscall.Signal) { d.proc.Stop(sig) }

// Restart ends the daemon by a signal, and starts another one at the same address.
func (d *Daemon) Restart(sig syscall.Signal) error {
	flags, listen := d.Flags, strings.TrimPrefix(d.URL, "http://")
	d.Stop(sig)
	d.Flags = append([]string{"--listen", listen}, flags...)
	defer func() { d.Flags = flags }()
	return d.Start()
}

// Do makes a request and returns the status and the body. It sends a *strings.Reader as JSON.
func (d *Daemon) Do(method, path string, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequest(method, d.URL+path, body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Api-Key", d.Key)
	req.Header.Set("anthropic-version", "2023-06-01")
	if _, isJSON := body.(*strings.Reader); isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	client, err := d.client()
	if err != nil {
		return 0, nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	return res.StatusCode, out, err
}

// CAFile returns the path of the CA certificate that a client must trust if Flags make the daemon create its own
// certificate.
func (d *Daemon) CAFile() string { return filepath.Join(d.Dir, "tls", "ca.pem") }

// client returns an HTTP client that trusts the daemon's own certificate, if it has one.
func (d *Daemon) client() (*http.Client, error) {
	if !strings.HasPrefix(d.URL, "https:") {
		return http.DefaultClient, nil
	}
	pem, err := os.ReadFile(d.CAFile())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: roots}}}, nil
}

// ImportImage imports an image from an archive.
func (d *Daemon) ImportImage(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	status, out, err := d.Do("POST", "/v1/images/import?name="+name, f)
	if err != nil || status != 200 || bytes.Contains(out, []byte(`"error"`)) {
		return fmt.Errorf("importing %s: %d %v %s", name, status, err, out)
	}
	return nil
}
