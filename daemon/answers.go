package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Answers returns nil if the daemon answers a request over its own port. It is how the service manager knows that
// requests are served.
func (d *Daemon) Answers(ctx context.Context) error {
	// A daemon that listens on all addresses is reached on loopback: a dial of the unspecified address leads there.
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, d.Addr().String())
		},
		// The peer is this process, and its certificate may be for any name.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL()+"/healthz", nil)
	if err != nil {
		return err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon answers its own request with %s", res.Status)
	}
	return nil
}

// WaitServing returns when the daemon answers requests, or when ctx ends. The port is open before: a request waits
// there for its answer.
func (d *Daemon) WaitServing(ctx context.Context) error {
	const pause = time.Second // only if the runtime does not answer
	for d.Answers(ctx) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}
