// Package fleeting creates and deletes containers that live for one run of code. No client knows them.
package fleeting

import (
	"context"
	"log/slog"
	"time"

	"berth/proto"
	"berth/session"
)

// lifetime is longer than any run may take. It deletes the container if the daemon has crashed.
const lifetime = 25 * time.Hour

// Create creates a container for an owner. The caller deletes it with Delete.
func Create(ctx context.Context, sessions *session.Sessions, owner string, req proto.CreateContainer) (
	*session.Session, error) {
	req.Fleeting, req.MaxLifetimeSeconds = true, int64(lifetime/time.Second)
	return sessions.Create(ctx, owner, req)
}

// Delete deletes a container, also after ctx has ended.
func Delete(ctx context.Context, sessions *session.Sessions, s *session.Session, log *slog.Logger) {
	err := sessions.Delete(context.WithoutCancel(ctx), s.Owner(), s.ID(), false)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		log.Error("deleting a container that code ran in; a sweep will try again", "container", s.ID(), "error", err)
	}
}
