package native

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"berth/api"
	"berth/proto"
	"berth/session"
)

// Images belong to the daemon, not to an owner: every key sees and may use all of them.
func (e *edge) listImages(c *call) error {
	images, err := e.Images.List(c.r.Context())
	if err != nil {
		return err
	}
	return list(c, images)
}

// The name of an image of a registry.
type pull struct {
	// Such as debian:12 or ghcr.io/owner/name@sha256:…
	Ref string `json:"ref" schema:"image"`
}

func (e *edge) pullImage(c *call) error {
	var req pull
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	if req.Ref == "" {
		return invalid("ref", "ref must name the image to pull, such as debian:12.")
	}
	api.Note(c.r.Context(), req.Ref)
	return e.reportProgress(c, func(ctx context.Context, report func(session.ImageProgress)) (session.Image, error) {
		return e.Images.Pull(ctx, req.Ref, report)
	})
}

func (e *edge) importImage(c *call) error {
	return e.reportProgress(c, func(ctx context.Context, report func(session.ImageProgress)) (session.Image, error) {
		return e.Images.Import(ctx, c.query.Get("name"), c.r.Body, report)
	})
}

func (e *edge) removeImage(c *call) error {
	ref := c.query.Get("ref")
	if err := e.Images.Remove(c.r.Context(), ref); err != nil {
		return err
	}
	return c.json(http.StatusOK, deletedName{ref, true})
}

// One line of the answer to an import or a pull: a step, or at the end the image or an error.
type imageLine struct {
	*session.ImageProgress
	Image *session.Image `json:"image,omitempty"`
	Error *proto.Error   `json:"error,omitempty"`
}

// reportProgress runs work and reports it line by line. An error before the first line is an ordinary error.
func (e *edge) reportProgress(c *call,
	work func(context.Context, func(session.ImageProgress)) (session.Image, error)) error {
	lines := &lineWriter{c: c, rc: http.NewResponseController(c.w)}
	// Errors of writeLine are dropped: a client that has gone ends the context of the request, and with it the work.
	img, err := work(c.r.Context(), func(p session.ImageProgress) { _ = lines.writeLine(imageLine{ImageProgress: &p}) })
	switch {
	case err != nil && !lines.hasBegun():
		return err
	case err != nil:
		e.Log.Warn("an image did not arrive", "request_id", api.RequestID(c.r.Context()), "error", err)
		// The status was 200, so metrics and the audit log are told separately.
		api.NoteFailure(c.r.Context(), err)
		err = lines.writeLine(imageLine{Error: proto.AsError(err)})
	default:
		err = lines.writeLine(imageLine{Image: &img})
	}
	// Read what a failed import left of the body: the server must not find it after an answer that was sent
	// meanwhile.
	_, _ = io.Copy(io.Discard, c.r.Body)
	return err
}

// A lineWriter answers with lines of JSON, each sent at once.
type lineWriter struct {
	c  *call
	rc *http.ResponseController

	mu    sync.Mutex // held while a line is written, so that two do not mix
	begun bool
}

func (l *lineWriter) hasBegun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// Lines are marshalled before the lock and flushed under it: a buffered line shows no progress.
func (l *lineWriter) writeLine(line imageLine) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.c.w.Header().Set("Content-Type", lineType)
		// A proxy must not buffer lines either.
		l.c.w.Header().Set("X-Accel-Buffering", "no")
		_ = l.rc.EnableFullDuplex() // progress goes out while the archive comes in; HTTP/2 always can
	}
	if _, err := l.c.Write(append(text, '\n')); err != nil {
		return err
	}
	return l.rc.Flush()
}
