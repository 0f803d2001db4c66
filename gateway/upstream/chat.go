package upstream

import (
	"context"
	"net/http"
)

func (u *Upstream) doChat(ctx context.Context, r Request) (*http.Response, error) {
	return newFault(http.StatusBadRequest, "Upstreams that speak chat completions cannot be asked yet.").response(http.StatusBadRequest), nil
}
