package messages

import (
	"encoding/json"
	"strings"

	"berth/gateway"
	"berth/gateway/messages/exectool"
	"berth/gateway/messages/history"
	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// toolNames maps tools to their names for clients and models.
var toolNames = map[gateway.Tool]string{gateway.Bash: exectool.ToolBash, gateway.Editor: exectool.ToolEditor,
	gateway.Python:  exectool.ToolCode,
	gateway.Program: exectool.ToolCode}

// encodeResult returns the block with a call's result for the client.
func encodeResult(call gateway.Call, res *gateway.Result) json.RawMessage {
	name := toolNames[call.Tool]
	var content json.RawMessage
	switch {
	case res.Err != nil:
		content = encodeFailure(name, res.Err)
	case res.Code != nil:
		files := []json.RawMessage{}
		for _, id := range res.Code.Files {
			files = append(files, rawjson.Object{}.With("type", "code_execution_output").With("file_id", id).Raw())
		}
		content = rawjson.Object{}.With("type", "code_execution_result").With("stdout", res.Code.Stdout).
			With("stderr", res.Code.Stderr).With("return_code", res.Code.ReturnCode).With("content",
			rawjson.Join(files)).Raw()
	default:
		content = rawjson.Marshal(res.Content)
	}
	if o, err := rawjson.Parse(content); err == nil && len(res.Notes) > 0 && o.Has("stderr") {
		stderr := o.Text("stderr")
		if stderr != "" && !strings.HasSuffix(stderr, "\n") {
			stderr += "\n"
		}
		content = o.With("stderr", stderr+"["+strings.Join(res.Notes, "]\n[")+"]\n").Raw()
	}
	return rawjson.Object{}.With("type", name+history.ResultSuffix).With("tool_use_id", call.ID).With("content",
		content).Raw()
}

// encodeFailure returns the result content of a call that could not run, or whose outcome is unknown.
func encodeFailure(name string, err error) json.RawMessage {
	code := proto.BlockUnavailable
	switch proto.CodeOf(err) {
	case proto.TooMany, proto.QuotaExceeded:
		code = proto.BlockTooMany
	case proto.InvalidArgument, proto.TooLarge:
		code = proto.BlockInvalidInput
	}
	content := rawjson.Object{}.With("type", name+history.ResultSuffix+"_error").With("error_code", code)
	if name == exectool.ToolEditor { // the other tools' results have no field for the reason
		content = content.With("error_message", proto.AsError(err).Message)
	}
	return content.Raw()
}
