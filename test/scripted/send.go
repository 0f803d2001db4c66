package scripted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
)

// A sender writes one answer.
type sender struct {
	s *Server
	a Answer
	w http.ResponseWriter
	r *http.Request
}

// send writes an answer. It returns an error only if nothing was written.
func (s *Server) send(w http.ResponseWriter, r *http.Request, got *received, a Answer) error {
	out := &sender{s: s, a: a, w: w, r: r}
	var msg message
	if a.Content != nil {
		var err error
		if msg, err = s.message(got, a); err != nil {
			return err
		}
		s.keepThread(got, msg)
	}
	if out.wait(0) != nil {
		return nil
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	switch {
	case a.Error != nil:
		refuse(w, got.path, *a.Error)
	case a.Raw != nil:
		out.raw(*a.Raw)
	case a.InputTokens != nil:
		out.whole(map[string]int{"input_tokens": *a.InputTokens})
	case got.stream():
		out.stream(msg, got)
	case a.Cut != nil && a.Cut.By == "error":
		refuse(w, got.path, a.Cut.error())
	default:
		out.whole(msg.json(got))
	}
	return nil
}

// wait waits for the pauses before an event. It returns an error if the client disconnects.
func (o *sender) wait(event int) error {
	for _, p := range o.a.Pauses {
		if p.BeforeEvent == event {
			if err := o.s.pause(o.r.Context(), p); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole writes an answer that is one JSON value.
func (o *sender) whole(v any) {
	body := encode(v)
	o.w.Header().Set("Content-Type", "application/json")
	if o.a.Cut == nil {
		_, _ = o.w.Write(body) // fails only if the client has disconnected
		return
	}
	if o.a.Cut.By != "end" { // announce more bytes than are sent
		o.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	_, _ = o.w.Write(body[:len(body)/2])
	_ = http.NewResponseController(o.w).Flush()
	o.cut()
}

// cut ends an answer in the way that the script gives.
func (o *sender) cut() {
	switch o.a.Cut.By {
	case "break":
		panic(http.ErrAbortHandler) // net/http recovers it and breaks the connection
	case "hang":
		<-o.r.Context().Done()
	}
}

func (o *sender) raw(raw Raw) {
	if o.w.Header().Get("Content-Type") == "" {
		o.w.Header().Set("Content-Type", "application/json")
	}
	o.w.WriteHeader(max(raw.Status, http.StatusOK))
	var parts [][]byte
	for _, chunk := range append(raw.Chunks, raw.Body) {
		if chunk != "" {
			parts = append(parts, []byte(chunk))
		}
	}
	o.parts(parts)
}

// stream writes an answer as events.
func (o *sender) stream(msg message, got *received) {
	o.w.Header().Set("Content-Type", "text/event-stream")
	o.w.Header().Set("Cache-Control", "no-cache")
	o.w.WriteHeader(http.StatusOK)
	o.parts(msg.events(got, cmp.Or(o.a.Piece, 8)))
}

// parts writes events, or chunks, up to the place where the answer is cut.
func (o *sender) parts(list [][]byte) {
	for i, part := range list {
		if o.a.Cut != nil && i >= o.a.Cut.AfterEvents {
			break
		}
		if o.wait(i+1) != nil {
			return
		}
		_, err := o.w.Write(part)
		if err != nil || http.NewResponseController(o.w).Flush() != nil {
			return
		}
	}
	if o.a.Cut != nil {
		o.cutStream()
	}
}

func (o *sender) cutStream() {
	if o.a.Cut.By != "error" {
		o.cut()
		return
	}
	name := "error"
	if o.r.URL.Path == chatPath {
		name = ""
	}
	_, _ = o.w.Write(event(name, o.a.Cut.error().body(o.r.URL.Path)))
}

// error returns the content of the error event that cuts an answer.
func (c *Cut) error() Error {
	if c.Error != nil {
		return *c.Error
	}
	return Error{Status: http.StatusInternalServerError, Message: "the script ends the answer here"}
}

// refuse sends an error in the dialect of the path.
func refuse(w http.ResponseWriter, path string, e Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_, _ = w.Write(encode(e.body(path)))
}

func (e Error) body(path string) any {
	kind := e.Type
	if kind == "" {
		kind = "api_error"
	}
	var code any
	if e.Code != "" {
		code = e.Code
	}
	if path == chatPath {
		return map[string]any{"error": map[string]any{"message": e.Message, "type": kind, "code": code, "param": nil}}
	}
	inner := map[string]any{"type": kind, "message": e.Message}
	if code != nil {
		inner["details"] = map[string]any{"error_code": code}
	}
	return map[string]any{"type": "error", "error": inner, "request_id": "req_scripted"}
}

// event returns a server-sent event; the name may be "".
func event(name string, data any) []byte {
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: ")
	b.Write(encode(data))
	b.WriteString("\n\n")
	return b.Bytes()
}

// encode returns JSON as other servers write it: on one line, and without < escaped as \u003c.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // cannot happen: v was decoded from JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// with returns a copy of m with more members.
func with(m map[string]any, more map[string]any) map[string]any {
	out := maps.Clone(m)
	maps.Copy(out, more)
	return out
}
