package librechat

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"berth/api"
	"berth/proto"
)

// Base is where the paths of the edge begin. A key may stand between it and the version.
const Base = "/librechat"

// Limits of bodies, in bytes. Code has at most proto.MaxCode, but is escaped; results of tools can be larger.
const (
	maxExec    = 8 << 20
	maxProgram = 24 << 20
	maxCancel  = 64 << 10
	maxForm    = 1 << 20 // of a form, besides its files
)

// Edge returns the table of all routes.
func (e *Edge) Edge() api.Edge {
	const v1 = Base + "/v1"
	route := func(method, pattern string, h api.Handler, act string, most int64) api.Route {
		return api.Route{Method: method, Pattern: v1 + pattern, Where: api.None, Handle: h, Act: act,
			MaxBodyBytes: most}
	}
	return api.Edge{Name: "librechat", Dialect: dialect, Prefixes: []string{Base}, KeyBelow: Base, Routes: []api.Route{
		route("POST", "/exec", e.exec, "code.run", maxExec),
		route("POST", "/exec/programmatic", e.program, "code.run", maxProgram),
		route("POST", "/exec/programmatic/cancel", e.cancelProgram, "code.cancel", maxCancel),
		route("POST", "/upload", e.upload, "file.upload", e.cfg.MaxFileBytes+maxForm),
		route("POST", "/upload/batch", e.uploadBatch, "file.upload", batchSizes*e.cfg.MaxFileBytes+maxForm),
		route("GET", "/download/{session}/{file}", e.download, "file.download", 0),
		route("GET", "/files/{session}", e.list, "", 0),
		route("GET", "/sessions/{session}/objects/{file}", e.metadata, "", 0),
		route("DELETE", "/files/{session}/{file}", e.delete, "file.delete", 0),
	}}
}

// read decodes the body of a request into v. Fields that v lacks are ignored: clients send all of their settings.
func read(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	err = json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return proto.Invalid(wrong.Field, "%s must be %s, not %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return proto.Invalid("body", "the body is not a JSON object")
}
