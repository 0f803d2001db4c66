package messages

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"berth/gateway/upstream"
	"berth/proto/span"
)

// ask sends a request to a model. Its span ends with the answer's body.
func ask(ctx context.Context, up *upstream.Upstream, model string, r upstream.Request) (*http.Response, error) {
	ctx, sp := span.StartClient(ctx, span.OperationChat+" "+model)
	sp.String(span.Operation, span.OperationChat)
	sp.String(span.RequestModel, model)
	res, err := up.Do(ctx, r)
	if err != nil {
		sp.End(err)
		return nil, err
	}
	if sp.Recorded() {
		if sp.Int(span.HTTPStatus, int64(res.StatusCode)); res.StatusCode >= http.StatusBadRequest {
			sp.Fail(strconv.Itoa(res.StatusCode))
		}
		res.Body = &tracedBody{ReadCloser: res.Body, span: sp}
	}
	return res, nil
}

// A tracedBody ends a span when it is closed.
type tracedBody struct {
	io.ReadCloser
	span span.Span
}

func (b *tracedBody) Close() error {
	defer b.span.End(nil)
	return b.ReadCloser.Close()
}
