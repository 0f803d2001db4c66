package e2b

import (
	"math"
	"net/http"

	"berth/api"
	"berth/api/e2b/templates"
	"berth/proto"
)

// who is the caller as packages below the edges know it.
func (c *call) who() proto.Caller {
	return proto.Caller{Owner: c.owner, KeyID: c.keyID, Admin: c.admin}
}

// orderBuild makes a build that waits for its files and its steps.
func (e *Edge) orderBuild(c *call) (any, error) {
	var ask templates.Order
	b, err := e.buildsFor(c, &ask)
	if err != nil {
		return nil, err
	}
	made, err := b.Reserve(c.r.Context(), c.owner, ask)
	if err != nil {
		return nil, err
	}
	api.Note(c.r.Context(), made.TemplateID+" "+made.BuildID)
	c.status = http.StatusAccepted
	return made, nil
}

// linkFiles answers whether the files of a COPY step are here, with a link for their upload.
func (e *Edge) linkFiles(c *call) (any, error) {
	b, err := e.builds(c)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if c.r.TLS != nil || c.r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	c.status = http.StatusCreated
	return b.Link(c.who(), c.r.PathValue("hash"), scheme+"://"+c.r.Host)
}

// uploadRoute takes the files of a COPY step. Its requests have a signed link and no API key.
func (e *Edge) uploadRoute() api.Route {
	return api.Route{Method: "PUT", Pattern: "/templates/files/{hash}", Where: api.None, Media: []string{"*/*"},
		MaxBodyBytes: -1, Act: "template.upload", Keyless: func(*http.Request) bool { return true },
		Handle: func(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
			if e.cfg.Builds == nil {
				return notBuilt()
			}
			hash := r.PathValue("hash")
			who, err := e.cfg.Builds.Signed(hash, r.URL.Query())
			if err != nil {
				return err
			}
			api.Note(r.Context(), "by "+who.KeyID)
			life := e.cfg.Keys.Life(who.KeyID)
			if life.Err() != nil {
				return errKeyEnded
			}
			if err := e.cfg.Builds.Store(r.Context(), who.Owner, hash, r.Body); err != nil {
				return err
			}
			w.WriteHeader(http.StatusOK)
			return nil
		}}
}

// startBuild starts a build, which goes on without its client.
func (e *Edge) startBuild(c *call) (any, error) {
	var ask templates.Recipe
	b, err := e.buildsFor(c, &ask)
	if err != nil {
		return nil, err
	}
	c.status = http.StatusAccepted
	return struct{}{}, b.Start(c.r.Context(), c.who(), c.r.PathValue("template"), c.r.PathValue("build"), ask)
}

// status returns that of the build in the path, from a line of the log on.
func (e *Edge) status(c *call, offset string) (s templates.Status, err error) {
	if e.cfg.Builds == nil {
		return s, notBuilt()
	}
	from, err := c.whole(offset, 0, 0, math.MaxInt32)
	if err != nil {
		return s, err
	}
	return e.cfg.Builds.Status(c.r.Context(), c.owner, c.r.PathValue("template"), c.r.PathValue("build"), int(from))
}

func (e *Edge) buildStatus(c *call) (any, error) { return e.status(c, "logsOffset") }

func (e *Edge) buildLogs(c *call) (any, error) {
	s, err := e.status(c, "offset")
	return map[string]any{"logs": s.Entries}, err
}
