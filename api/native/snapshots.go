package native

import (
	"net/http"

	"berth/api/jsonlines"
	"berth/api/openapi"
	"berth/proto"
	"berth/session"
)

// snapshotPage are the parameters of a page of snapshots.
var snapshotPage = []openapi.Param{
	{Name: "limit", Kind: openapi.Whole, Max: 1000, Description: "Maximum length of the page, 1 to 1000; 0 is the " +
		"default, 100."},
	pageAfter(proto.SnapshotPrefix, "snapshot"),
}

func (e *edge) snapshotRows() []row {
	const one = "/v1/containers/{id}"
	taking := also(inContainer, 409, 501, 507) // 501: the disk or the host cannot
	return []row{
		{"POST", one + "/snapshots", mayTake(e.createSnapshot).created(), openapi.Operation{ID: "createSnapshot",
			Summary: "Keep all files of a container as they are now.", Fails: taking,
			Description: "The workspace and what the container has written elsewhere, together and as of one moment. " +
				"Commands go on; they are frozen for some milliseconds. A stopped container is not started. Needs " +
				"btrfs, which the daemon has in a file of its own unless the host cannot."}},
		{"GET", one + "/snapshots", getIn(e, e.listContainerSnapshots), openapi.Operation{ID: "listContainerSnapshots",
			Summary: "List the snapshots of a container, newest first.", Fails: inContainer, Query: snapshotPage}},
		{"GET", "/v1/snapshots", get(e.listSnapshots), openapi.Operation{ID: "listSnapshots",
			Summary: "List snapshots, newest first.", Fails: basic,
			Query: append([]openapi.Param{
				{Name: "label", Repeat: true, Pattern: "^[^=]+=", Description: "key=value that a snapshot must have. " +
					"May be repeated; all must match."},
				{Name: "container", Description: "Only snapshots of the container with this ID, which may be gone."},
			}, snapshotPage...)}},
		{"GET", "/v1/snapshots/{id}", get(e.getSnapshot), openapi.Operation{ID: "getSnapshot",
			Summary: "Describe a snapshot.", Fails: namesItem}},
		{"DELETE", "/v1/snapshots/{id}", get(e.deleteSnapshot), openapi.Operation{ID: "deleteSnapshot",
			Summary: "Remove a snapshot. Containers that were made of it stay.", Fails: also(namesItem, 409)}},
		{"GET", "/v1/snapshots/{id}/archive", get(e.exportSnapshot), openapi.Operation{ID: "exportSnapshot",
			Summary: "Get a snapshot as an OCI image archive.", Fails: also(namesItem, 501, 507),
			Description: "The layers of the container's image, and one each of what it has written elsewhere and of " +
				"its workspace. Imported as an image, here or by another daemon, new containers begin with both.",
			Query:   []openapi.Param{{Name: "name", Description: "Name of the image; default snapshot:NAME."}},
			Answers: answers(http.StatusOK, raw(tarType))}},
		{"POST", "/v1/snapshots/{id}/image", mayTake(e.commitSnapshot), openapi.Operation{ID: "commitSnapshot",
			Summary: "Make an image of a snapshot.", Admin: true, Description: linesMore,
			Answers: answers(http.StatusOK, []openapi.Content{{Media: jsonlines.Media, Of: imageLine{}}}),
			Fails:   also(namesItem, 403, 501, 503, 504, 507)}},
		{"POST", one + "/restore", take(e.restoreContainer), openapi.Operation{ID: "restoreContainer",
			Summary: "Give a container the files of a snapshot in place of its own.", Fails: taking,
			Description: "Its processes end, and its files are those of the snapshot from the next use on, which " +
				"starts the next generation. It keeps its ID, environment, limits and lease."}},
		{"POST", one + "/fork", mayTake(e.forkContainer).created(), openapi.Operation{ID: "forkContainer",
			Summary: "Make copies of a container.", Fails: also(taking, 429, 503, 504),
			Description: "Each copy has the container's files as of one moment, and its environment, secrets, tools, " +
				"labels, network, limits and lease, but no processes and no name. If one cannot be made, none is."}},
	}
}

func (e *edge) createSnapshot(c *call, req proto.CreateSnapshot) (made proto.Snapshot, err error) {
	s, err := e.session(c)
	if err != nil {
		return made, err
	}
	return s.Snapshot(c.ctx(), req)
}

func (e *edge) listContainerSnapshots(c *call, s *session.Session) (page[proto.Snapshot], error) {
	return e.snapshotsOf(c, session.SnapshotFilter{Container: s.ID()})
}

// snapshotsOf returns the page of snapshots that the query asks for.
func (e *edge) snapshotsOf(c *call, f session.SnapshotFilter) (page[proto.Snapshot], error) {
	f.After, f.Limit = c.query.Get("after"), int(c.whole("limit"))
	data, more, err := e.Sessions.Snapshots().List(c.owner, f)
	return listPart(data, more, err, func(s *proto.Snapshot) *string { return &s.ID })
}

func (e *edge) listSnapshots(c *call) (none page[proto.Snapshot], err error) {
	labels, err := c.labels()
	if err != nil {
		return none, err
	}
	return e.snapshotsOf(c, session.SnapshotFilter{Container: c.query.Get("container"), Labels: labels})
}

func (e *edge) getSnapshot(c *call) (proto.Snapshot, error) {
	return e.Sessions.Snapshots().Get(c.owner, c.id())
}

func (e *edge) deleteSnapshot(c *call) (deletion, error) {
	gone, err := e.Sessions.DeleteSnapshot(c.ctx(), c.owner, c.id())
	return deletion{gone.ID, true}, err
}

func (e *edge) exportSnapshot(c *call) (any, error) {
	return nil, e.Sessions.WriteSnapshot(c.ctx(), c.owner, c.id(), c.query.Get("name"), &archiveBody{c: c})
}

// An archiveBody is the body of an answer that is an archive. Until it has begun, the answer can still be an error.
type archiveBody struct {
	c     *call
	begun bool
}

func (a *archiveBody) Write(b []byte) (int, error) {
	if !a.begun {
		rawBody(a.c.w.Header(), tarType)
		a.begun = true
	}
	return a.c.Write(b)
}

// The name of an image to make of a snapshot.
type commit struct {
	Name string `json:"name,omitempty" schema:"image"` // Default snapshot:NAME.
}

func (e *edge) commitSnapshot(c *call, req commit) (any, error) {
	return nil, e.reportProgress(c, func(report func(session.ImageProgress)) (session.Image, error) {
		return e.Sessions.CommitSnapshot(c.ctx(), c.owner, c.id(), req.Name, report)
	})
}

func (e *edge) restoreContainer(c *call, req proto.RestoreContainer) (now proto.Container, err error) {
	s, err := e.session(c)
	if err != nil {
		return now, err
	}
	err = s.Restore(c.ctx(), req.Snapshot)
	return s.Info(), err
}

func (e *edge) forkContainer(c *call, req proto.ForkContainer) (none page[proto.Container], err error) {
	s, err := e.session(c)
	if err != nil {
		return none, err
	}
	forks, err := s.Fork(c.ctx(), req.Count)
	var made []proto.Container
	for _, fork := range forks {
		made = append(made, fork.Info())
	}
	return list(made, err)
}
