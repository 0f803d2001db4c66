package native

import (
	"berth/proto"
	"berth/session"
)

// watch begins to follow what others run in the container: what runs now, from its beginning, and
// whatever begins from now on.
// A second call does nothing: the message and the query key may both ask for it.
func (l *live) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching {
		return
	}
	l.watching = true
	for id := range l.following {
		l.own[id] = true // it may end, and no longer be among those followed, before the watcher comes by
	}
	l.wg.Go(l.watchAll)
}

// It ends with the socket, whose context NextExecs waits on. Commands that ended before are left
// out: their logs can be asked for.
func (l *live) watchAll() {
	seen, first := 0, true
	for {
		fresh, n, err := l.s.NextExecs(l.ctx, seen)
		if err != nil || !l.settle() {
			return
		}
		for _, x := range fresh {
			if first && x.Info().State == proto.ExecEnded {
				continue // before this watch
			}
			if !l.watchOne(x) {
				return
			}
		}
		seen, first = n, false
	}
}

// settle waits until every exec that this socket was about to begin has an ID, so that it can be told
// from those of others.
func (l *live) settle() bool {
	l.mu.Lock()
	var pending []chan struct{}
	for begun := range l.starting {
		pending = append(pending, begun)
	}
	l.mu.Unlock()
	for _, begun := range pending {
		select {
		case <-begun:
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// watchOne follows an exec of somebody else, when there is a place for it. False: the socket has ended.
func (l *live) watchOne(x *session.Exec) bool {
	l.mu.Lock()
	own := l.own[x.ID()]
	delete(l.own, x.ID())
	l.mu.Unlock()
	if own || !l.claim(x.ID()) {
		return true
	}
	select {
	case l.seats <- struct{}{}:
	case <-l.ctx.Done():
		return false
	}
	l.wg.Go(func() {
		defer func() { <-l.seats }()
		_ = l.follow(x, session.Cursor{}, message{})
	})
	return true
}
