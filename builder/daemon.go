package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"berth/build/wire"
)

// A daemon is the client of the daemon's HTTP server.
type daemon struct {
	http *http.Client
	dial func(ctx context.Context) (net.Conn, error)

	mu   sync.Mutex // guards last
	last error      // why the daemon could not get an image; BuildKit's resolver drops the reason
}

func newDaemon(socket string) *daemon {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &daemon{dial: dial, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// A daemonError is an error for the caller that the daemon has worded.
type daemonError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *daemonError) Error() string { return e.Message }

// invalid returns the error for what the caller sent.
func invalid(format string, args ...any) error {
	return &daemonError{Code: "invalid_argument", Message: fmt.Sprintf(format, args...)}
}

// unsupported returns the error for what a build cannot have.
func unsupported(format string, args ...any) error {
	return &daemonError{Code: "unsupported", Message: fmt.Sprintf(format, args...)}
}

// call sends a request and reads its answer.
func (d *daemon) call(ctx context.Context, path string, request, answer any) error {
	body, err := d.post(ctx, path, request)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(answer)
}

// post sends a request and returns the body of its answer.
func (d *daemon) post(ctx context.Context, path string, request any) (io.ReadCloser, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://daemon"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	said := &daemonError{}
	if err := json.NewDecoder(resp.Body).Decode(said); err != nil {
		return nil, fmt.Errorf("the daemon answered %s", resp.Status)
	}
	return nil, said
}

// image has the daemon get an image.
func (d *daemon) image(ctx context.Context, ref string) (found wire.Found, err error) {
	err = d.call(ctx, wire.PathImage, wire.Wanted{Ref: ref}, &found)
	if err != nil {
		d.mu.Lock()
		d.last = err
		d.mu.Unlock()
	}
	return found, err
}

// noRegistry returns a registry that answers nothing. BuildKit makes a client for the registry of each image, and has
// no use for it: the daemon has stored all content before.
func (d *daemon) noRegistry(host string) ([]docker.RegistryHost, error) {
	refuse := roundTripper(func(*http.Request) (*http.Response, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.last != nil {
			return nil, d.last
		}
		return nil, errors.New("the daemon gets images")
	})
	return []docker.RegistryHost{{Client: &http.Client{Transport: refuse}, Host: host, Scheme: "https", Path: "/v2",
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve}}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// explain returns the daemon's reason for a failed build if there is one.
func (d *daemon) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var known *daemonError
	if d.last != nil && !errors.As(err, &known) {
		return fmt.Errorf("%w (%v)", d.last, err)
	}
	return err
}

// proxied returns a connection to the proxy of the build's network.
func (d *daemon) proxied(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: daemon\r\nContent-Length: 0\r\nConnection: Upgrade\r\n"+
		"Upgrade: berth-proxy\r\n\r\n", wire.PathProxy)
	if err == nil {
		err = readUpgrade(conn)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// readUpgrade reads the head of an answer byte by byte: what follows belongs to the tunnel.
func readUpgrade(conn net.Conn) error {
	const most = 64 << 10
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, b[0]) {
		if _, err := io.ReadFull(conn, b); err != nil || len(head) > most {
			return errors.Join(errors.New("the daemon opens no connection"), err)
		}
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
		return &daemonError{Code: "permission_denied", Message: "the build has no network; ask for one, with the " +
			"hosts that it may reach"}
	}
	return nil
}
