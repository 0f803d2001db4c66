package gateway

import (
	"context"
	"encoding/json"
	"net/http"

	"berth/gateway/upstream"
	"berth/proto"
	"berth/session"
)

// A box is the container of a turn.
type box struct {
	s      *session.Session // nil: none was needed so far
	made   bool             // for this turn
	skills json.RawMessage  // that it has, resolved; nil: none were asked for
}

// ref names the container in answers and errors; nil: there is none.
func (b *box) ref() *proto.ContainerRef {
	if b.s == nil {
		return nil
	}
	ref := b.s.Ref()
	return &ref
}

// raw is the container of a message.
func (b *box) raw() json.RawMessage {
	if b.s == nil {
		return json.RawMessage("null")
	}
	ref := b.s.Ref()
	skills := b.skills
	if skills == nil {
		skills = json.RawMessage("null")
	}
	return object{}.with("id", ref.ID).with("expires_at", ref.ExpiresAt).with("skills", skills).raw()
}

// find is the container that a request names.
func (g *Gateway) find(q *query) (b box, err error) {
	if q.box.ID == "" {
		return b, nil
	}
	s, err := g.cfg.Sessions.Get(q.Owner, q.box.ID)
	if err != nil {
		return b, refuseContainer(err)
	}
	return box{s: s}, nil
}

// boxOf is the container that a turn begins with: the one that its request names, or that an earlier daemon made for
// it. That one may be gone since.
func (t *turn) boxOf() (box, error) {
	if t.rec == nil || t.rec.Container == "" {
		return t.g.find(t.q)
	}
	s, err := t.g.cfg.Sessions.Get(t.q.Owner, t.rec.Container)
	if s == nil {
		return box{}, err
	}
	return box{s: s, made: t.rec.Made}, nil
}

// house gives the turn the container that it begins with. One that an earlier try of it has made stays: nobody else
// knows of that, and each try would leave one behind. If it is gone, or its time is over, it makes room for another.
func (t *turn) house() (err error) {
	if s := t.box.s; s != nil {
		if _, err := t.g.cfg.Sessions.Get(t.q.Owner, s.ID()); err == nil {
			return nil
		}
		if t.box.made && !t.heard {
			t.g.discard(s)
		}
	}
	t.box, err = t.boxOf()
	return err
}

// need is the container, made if there is none.
func (t *turn) need(ctx context.Context) (*session.Session, error) {
	if t.box.s != nil {
		return t.box.s, nil
	}
	s, err := t.g.cfg.Sessions.Create(ctx, t.q.Owner, proto.CreateContainer{})
	if err != nil {
		return nil, err
	}
	t.box.s, t.box.made = s, true
	return s, nil
}

// discard deletes a container that nobody ever heard of.
func (g *Gateway) discard(s *session.Session) {
	err := g.cfg.Sessions.Delete(context.Background(), s.Owner(), s.ID(), false)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		g.cfg.Log.Warn("deleting the container of a turn that was given up; it goes when it expires", "container",
			s.ID(), "error", err)
	}
}

// furnish puts the files of a request into the container, and gives the files' paths there. What a request gives now
// must be there; a file of an earlier turn that was deleted since is only not put there again.
func (t *turn) furnish(ctx context.Context) (names map[string]string, err error) {
	ids, now, err := t.q.uploads()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	var stored []string
	for _, id := range ids {
		f, err := t.g.cfg.Files.Get(ctx, t.q.Owner, id)
		if err == nil && f.ExpiresAt != nil && !f.ExpiresAt.After(t.began) {
			err = proto.Errorf(proto.Expired, "", id, "File `%s` has expired; upload it again.", id)
		}
		if err == nil {
			stored = append(stored, id)
		} else if now[id] {
			return nil, err
		}
	}
	s, err := t.need(ctx)
	if err != nil {
		return nil, err
	}
	release, err := s.Hold(ctx, stored)
	if err != nil {
		return nil, err
	}
	release()
	return t.g.cfg.Jobs.Inputs(s)
}

// count answers a request that counts what the first round of a turn would send. No container is made for it.
func (g *Gateway) count(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query) error {
	if _, err := g.find(q); err != nil {
		return err
	}
	ids, _, err := q.uploads()
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, id := range ids {
		if f, err := g.cfg.Files.Get(ctx, q.Owner, id); err == nil {
			names[id] = proto.InputDir + "/" + f.Filename
		}
	}
	h, err := newHistory(q.messages, names)
	if err != nil {
		return err
	}
	if err := g.describe(ctx, q); err != nil {
		return err
	}
	for _, c := range h.pending(q.last) {
		h.answer(upstreamID(c.id), abandoned(upstreamID(c.id)))
	}
	return g.pass(ctx, w, up, q.Owner, upstream.Request{Path: q.Path, Query: q.Query, Header: q.header(),
		Body: q.upstreamBody(h, true)})
}
