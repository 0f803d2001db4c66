package messages

import (
	"context"
	"encoding/json"
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

// traceRound records in the span of a request to a model what its answer says: the tokens, the model and why it ended.
// OpenTelemetry counts cached tokens among those of the input.
func traceRound(res *http.Response, r *round) {
	body, ok := res.Body.(*tracedBody)
	if !ok {
		return
	}
	var usage struct {
		Input    int64  `json:"input_tokens"`
		Read     int64  `json:"cache_read_input_tokens"`
		Creation int64  `json:"cache_creation_input_tokens"`
		Output   *int64 `json:"output_tokens"`
	}
	if json.Unmarshal(r.usage, &usage) == nil && usage.Output != nil { // else the upstream reports none
		body.span.Int(span.InputTokens, usage.Input+usage.Read+usage.Creation)
		body.span.Int(span.OutputTokens, *usage.Output)
	}
	body.span.String(span.ResponseModel, r.message.Text("model"))
	if reason := r.message.Text("stop_reason"); reason != "" {
		body.span.Strings(span.FinishReasons, []string{reason})
	}
}
