package native

import (
	"context"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
	"berth/session"
)

// Registries have the daemon's credentials for image registries, and push to them.
type Registries interface {
	Login(ctx context.Context, host string, req proto.SetRegistry) (proto.Registry, error)
	List() []proto.Registry
	Remove(host string) error
	Push(ctx context.Context, name, ref string, progress func(proto.ImageProgress)) (proto.Image, error)
}

// registryRows are the routes of registries. A daemon that keeps no credentials has none.
func (e *edge) registryRows() []row {
	if e.Registries == nil {
		return nil
	}
	const all, one = "/v1/registries", "/v1/registries/{host}"
	return []row{
		{"GET", all, get(e.listRegistries), openapi.Operation{ID: "listRegistries", Admin: true, Fails: basic,
			Summary: "List the registries that the daemon has credentials for."}},
		{"PUT", one, take(e.setRegistry), openapi.Operation{ID: "setRegistry", Admin: true,
			Summary: "Set the credentials for a registry, which is asked whether it takes them.",
			Description: "They are sealed, and serve all pulls, pushes and base images of builds. No answer has the " +
				"password.", Fails: also(basic, 403)}},
		{"DELETE", one, get(e.removeRegistry), openapi.Operation{ID: "removeRegistry", Admin: true, Fails: namesItem,
			Summary: "Forget the credentials for a registry."}},
		{"POST", "/v1/images/push", take(e.pushImage), openapi.Operation{ID: "pushImage", Admin: true,
			Summary: "Push an image to a registry.", Description: linesMore, Answers: imageLines,
			Fails: also(namesItem, 403, 501)}},
	}
}

func (e *edge) listRegistries(*call) (page[proto.Registry], error) {
	return list(e.Registries.List(), nil)
}

func (e *edge) setRegistry(c *call, req proto.SetRegistry) (proto.Registry, error) {
	return e.Registries.Login(c.ctx(), c.r.PathValue("host"), req)
}

func (e *edge) removeRegistry(c *call) (deletedName, error) {
	host := c.r.PathValue("host")
	return deletedName{host, true}, e.Registries.Remove(host)
}

func (e *edge) pushImage(c *call, req proto.PushImage) (any, error) {
	api.Note(c.ctx(), req.Name)
	return nil, e.reportProgress(c, func(report func(session.ImageProgress)) (session.Image, error) {
		return e.Registries.Push(c.ctx(), req.Name, req.Ref, report)
	})
}
