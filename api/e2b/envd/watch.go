package envd

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"

	"berth/api/e2b/connectrpc"
	"berth/proto"
	"berth/session/filework"
)

const (
	maxWatchers = 64     // that are polled, of one sandbox
	maxPending  = 10_000 // events that a watcher keeps until it is polled
)

// A watchRequest asks for the changes in a directory. Clients may spell names as protobuf does.
type watchRequest struct {
	Path       string `json:"path"`
	Recursive  bool   `json:"recursive"`
	Entry      bool   `json:"includeEntry"`
	EntrySnake bool   `json:"include_entry"`
}

// A fileEvent is one change.
type fileEvent struct {
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"`
	Entry *entry `json:"entry,omitempty"`
}

// Messages of a watch.
type watchEvent struct {
	Start      *struct{}  `json:"start,omitempty"`
	Filesystem *fileEvent `json:"filesystem,omitempty"`
	Keepalive  *struct{}  `json:"keepalive,omitempty"`
}

var eventTypes = map[proto.FileEventType]string{
	proto.FileCreated: "EVENT_TYPE_CREATE", proto.FileWritten: "EVENT_TYPE_WRITE",
	proto.FileRemoved: "EVENT_TYPE_REMOVE", proto.FileRenamed: "EVENT_TYPE_RENAME",
	proto.FileAttributes: "EVENT_TYPE_CHMOD",
}

var errWatchEnded = errors.New("the watch has ended")

// open begins a watch. dir is what it watches.
func (b box) open(ctx context.Context, in watchRequest) (w *filework.Watch, dir string, err error) {
	if dir, err = b.path(ctx, in.Path); err != nil {
		return nil, "", err
	}
	fi, err := b.resolve(ctx, dir)
	if err != nil {
		return nil, "", b.s.HideError(err)
	}
	if fi.Type != proto.TypeDirectory {
		return nil, "", proto.Invalid("path", "path is not a directory: %s", dir)
	}
	w, err = filework.OpenWatch(ctx, b.s.Files, b.user, dir, in.Recursive, in.Entry || in.EntrySnake)
	return w, dir, b.s.HideError(err)
}

// events calls each for the changes of a watch. Lost changes end it with an error.
func (b box) events(ctx context.Context, w *filework.Watch, dir string, each func(fileEvent) error) error {
	return w.Events(dir, func(ev proto.FileEvent) error {
		if ev.Type == proto.FileOverflow {
			return proto.Errorf(proto.TooMany, "", dir, "there were too many changes at a time, and some were "+
				"lost; list the directory and watch it again")
		}
		kind, ok := eventTypes[ev.Type]
		if !ok || ev.Name == "" { // the start, and changes of the directory itself
			return nil
		}
		out := fileEvent{Name: ev.Name, Type: kind}
		if ev.Entry != nil {
			e := b.entry(ctx, *ev.Entry)
			out.Entry = &e
		}
		return each(out)
	})
}

// watchDir sends changes until the client goes, or the time limit of the request.
func (b box) watchDir(w http.ResponseWriter, r *http.Request) error {
	type message struct {
		watchEvent
	}
	limit, wrong := connectrpc.Timeout(r)
	return connectrpc.ServerStream(w, r, watchEvent{Keepalive: &struct{}{}}, func(ctx context.Context, in watchRequest,
		s *connectrpc.Stream) error {
		if wrong != nil {
			return wrong
		}
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		watch, dir, err := b.open(ctx, in)
		if err != nil {
			return err
		}
		defer watch.Close()
		if err := s.Send(message{watchEvent{Start: &struct{}{}}}); err != nil {
			return err
		}
		err = b.events(ctx, watch, dir, func(ev fileEvent) error {
			return s.Send(message{watchEvent{Filesystem: &ev}})
		})
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return proto.Errorf(proto.TimedOut, "", "", "the watch reached its time limit")
		}
		if err == nil && !b.cfg.Gone(b.s) { // the directory is gone: nothing more will come
			<-ctx.Done()
		}
		return b.broken(cmp.Or(err, ctx.Err(), errWatchEnded))
	})
}

// watchers are those that are polled.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
	wg  sync.WaitGroup
}

// A watcher keeps the changes of a watch until a client asks for them.
type watcher struct {
	container string
	cancel    context.CancelFunc
	done      chan struct{} // closed when it has ended

	mu      sync.Mutex
	pending []fileEvent
	err     error // changes were lost
}

type (
	watcherRef struct {
		ID      string `json:"watcherId"`
		IDSnake string `json:"watcher_id,omitempty"`
	}
	eventsAnswer struct {
		Events []fileEvent `json:"events,omitempty"`
	}
)

// createWatcher begins a watch that lives until it is removed, or its sandbox ends.
func (b box) createWatcher(ctx context.Context, in watchRequest) (out watcherRef, err error) {
	if err := b.watchers.room(b.s.ID()); err != nil {
		return out, err
	}
	live, cancel := context.WithCancel(proto.WithCaller(b.ctx, proto.CallerOf(ctx)))
	watch, dir, err := b.open(live, in)
	if err != nil {
		cancel()
		return out, err
	}
	one := &watcher{container: b.s.ID(), cancel: cancel, done: make(chan struct{})}
	id := b.watchers.add(one)
	b.watchers.wg.Go(func() {
		defer close(one.done)
		defer cancel()
		defer watch.Close()
		err := b.events(live, watch, dir, one.keep)
		one.mu.Lock()
		defer one.mu.Unlock()
		if proto.CodeOf(err) == proto.TooMany {
			one.err = err
		}
	})
	return watcherRef{ID: id}, nil
}

// keep adds a change to those that a client has not asked for yet.
func (w *watcher) keep(ev fileEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) >= maxPending {
		return proto.Errorf(proto.TooMany, "", "", "the watcher was not asked for %d changes; make another one",
			maxPending)
	}
	w.pending = append(w.pending, ev)
	return nil
}

// room fails if a sandbox has all the watchers that it may have.
func (ws *watchers) room(container string) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := 0
	for _, w := range ws.all {
		if w.container == container {
			n++
		}
	}
	if n >= maxWatchers {
		return proto.Errorf(proto.TooMany, "", "", "the sandbox has %d watchers; remove one first", maxWatchers)
	}
	return nil
}

func (ws *watchers) add(w *watcher) (id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[string]*watcher{}
	}
	id = "w" + proto.NewID("")
	ws.all[id] = w
	return id
}

// find returns the watcher of a sandbox, and forgets it if asked.
func (ws *watchers) find(container string, ref watcherRef, forget bool) (*watcher, error) {
	id := ref.ID + ref.IDSnake
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[id]
	if w == nil || w.container != container {
		return nil, proto.Errorf(proto.NotFound, "", "", "watcher with id %.80q not found", id)
	}
	if forget {
		delete(ws.all, id)
	}
	return w, nil
}

func (b box) watcherEvents(_ context.Context, in watcherRef) (out eventsAnswer, err error) {
	w, err := b.watchers.find(b.s.ID(), in, false)
	if err != nil {
		return out, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Events, w.pending = w.pending, nil
	if len(out.Events) == 0 {
		err = w.err
	}
	return out, err
}

func (b box) removeWatcher(_ context.Context, in watcherRef) (none nothing, err error) {
	w, err := b.watchers.find(b.s.ID(), in, true)
	if err == nil {
		w.cancel()
	}
	return none, err
}

// Forget ends the watchers of a sandbox, and waits for that.
func (a *Agent) Forget(container string) {
	var ended []*watcher
	a.watchers.mu.Lock()
	for id, w := range a.watchers.all {
		if w.container == container {
			w.cancel()
			ended = append(ended, w)
			delete(a.watchers.all, id)
		}
	}
	a.watchers.mu.Unlock()
	for _, w := range ended {
		<-w.done
	}
}
