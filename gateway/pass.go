package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"

	"berth/gateway/upstream"
)

// pass sends a request on as it came, but for an owner's stored files, and its answer back.
func (g *Gateway) pass(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, owner string,
	r upstream.Request) (err error) {
	if r.Body, err = g.embed(ctx, owner, r.Body); err != nil {
		return err
	}
	res, err := up.Do(ctx, r)
	if err != nil {
		return err
	}
	return relay(w, res)
}

// relay gives an upstream's answer to the client, each piece as it comes.
func relay(w http.ResponseWriter, res *http.Response) error {
	defer res.Body.Close()
	h := w.Header()
	for name, values := range res.Header {
		h[name] = values
	}
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := rc.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// told are the headers of an upstream's that say something about the client's account rather than about one round.
var told = []string{"Anthropic-", "Retry-After"}

// account passes on what an upstream says of the client's account.
func account(w http.ResponseWriter, res *http.Response) {
	for name, values := range res.Header {
		for _, prefix := range told {
			if strings.HasPrefix(name, prefix) {
				w.Header()[name] = values
			}
		}
	}
}
