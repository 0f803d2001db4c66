package native

import (
	"io"
	"net/http"

	"berth/api"
	"berth/api/jsonlines"
	"berth/api/openapi"
	"berth/proto"
	"berth/session"
)

// Images belong to the daemon, not to an owner: every key sees and may use all of them.
func (e *edge) listImages(c *call) (page[session.Image], error) { return list(e.Images.List(c.ctx())) }

// The name of an image of a registry.
type pull struct {
	// Such as debian:12 or ghcr.io/owner/name@sha256:…
	Ref string `json:"ref" schema:"image"`
}

func (e *edge) pullImage(c *call, req pull) (any, error) {
	if req.Ref == "" {
		return nil, proto.Invalid("ref", "ref must name the image to pull, such as debian:12.")
	}
	api.Note(c.ctx(), req.Ref)
	return nil, e.reportProgress(c, func(report func(session.ImageProgress)) (session.Image, error) {
		return e.Images.Pull(c.ctx(), req.Ref, report)
	})
}

func (e *edge) importImage(c *call) (any, error) {
	return nil, e.reportProgress(c, func(report func(session.ImageProgress)) (session.Image, error) {
		return e.Images.Import(c.ctx(), c.query.Get("name"), c.r.Body, report)
	})
}

func (e *edge) removeImage(c *call) (deletedName, error) {
	ref := c.query.Get("ref")
	return deletedName{ref, true}, e.Images.Remove(c.ctx(), ref)
}

// One line of the answer to an import, a pull or a push: a step, or at the end the image or an error.
type imageLine struct {
	*session.ImageProgress
	Image *session.Image `json:"image,omitempty"`
	Error *proto.Error   `json:"error,omitempty"`
}

// imageLines are the answers of a route that reports its progress.
var imageLines = answers(http.StatusOK, []openapi.Content{{Media: jsonlines.Media, Of: imageLine{}}})

// reportProgress runs work and reports it line by line. An error before the first line is an ordinary error.
func (e *edge) reportProgress(c *call, work func(func(session.ImageProgress)) (session.Image, error)) error {
	lines := jsonlines.New(c.w, c)
	// Errors of Write are dropped: a client that has gone ends the context of the request, and with it the work.
	img, err := work(func(p session.ImageProgress) { _ = lines.Write(imageLine{ImageProgress: &p}) })
	switch {
	case err != nil && !lines.HasBegun():
		return err
	case err != nil:
		e.Log.Warn("importing, pulling or pushing an image failed", "request_id", api.RequestID(c.ctx()), "error", err)
		// The status was 200, so the audit log does not have the failure yet.
		api.NoteFailure(c.ctx(), err)
		err = lines.Write(imageLine{Error: proto.AsError(err)})
	default:
		err = lines.Write(imageLine{Image: &img})
	}
	// Read what a failed import left of the body: the server must not find it after an answer that was sent
	// meanwhile.
	_, _ = io.Copy(io.Discard, c.r.Body)
	return err
}
