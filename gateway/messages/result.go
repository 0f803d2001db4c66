package messages

import (
	"encoding/json"

	"berth/gateway"
	"berth/proto"
)

// toolNames maps tools to their names for clients and models.
var toolNames = map[gateway.Tool]string{gateway.Bash: toolBash, gateway.Editor: toolEditor, gateway.Python: toolCode,
	gateway.Program: toolCode}

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
			files = append(files, object{}.with("type", "code_execution_output").with("file_id", id).raw())
		}
		content = object{}.with("type", "code_execution_result").with("stdout", res.Code.Stdout).
			with("stderr", res.Code.Stderr).with("return_code", res.Code.ReturnCode).with("content", joined(files)).raw()
	default:
		content = mustJSON(res.Content)
	}
	return object{}.with("type", name+resultSuffix).with("tool_use_id", call.ID).with("content", content).raw()
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
	content := object{}.with("type", name+resultSuffix+"_error").with("error_code", code)
	if name == toolEditor { // the other tools' results have no field for the reason
		content = content.with("error_message", proto.AsError(err).Message)
	}
	return content.raw()
}
