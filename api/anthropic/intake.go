package anthropic

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"berth/proto"
)

// Limits for the bodies of Messages requests that are held at once, in bytes: of all owners, and of one.
const (
	maxHeld      = 512 << 20
	maxHeldOwner = maxHeld / 2
)

// maxIntakeWait is how long a request waits for others to end before it is refused.
const maxIntakeWait = 30 * time.Second

// An intake bounds the bodies that are held at once. Each costs about three times its size.
type intake struct {
	mu      sync.Mutex // guards the fields below
	held    int64
	byOwner map[string]int64
	freed   chan struct{} // closed when a body is released; nil: no request waits
}

// readBody reads the body of a request once there is room for it. The caller calls release when it does not need the
// body any more.
func (in *intake) readBody(r *http.Request, owner string) (body []byte, release func(), err error) {
	size := r.ContentLength
	if size < 0 || size > maxMessages {
		size = maxMessages
	}
	if err := in.take(r.Context(), owner, size); err != nil {
		return nil, nil, err
	}
	release = sync.OnceFunc(func() { in.release(owner, size) })
	if r.ContentLength >= 0 && r.ContentLength <= maxMessages { // one piece, without growing
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(r.Body)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

// take waits until there is room for a body.
func (in *intake) take(ctx context.Context, owner string, size int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxIntakeWait, proto.Errorf(proto.Unavailable, "", "",
		"Too many large requests are being answered; try again later, or send less at once."))
	defer cancel()
	for {
		in.mu.Lock()
		if in.held+size <= maxHeld && in.byOwner[owner]+size <= maxHeldOwner {
			if in.byOwner == nil {
				in.byOwner = map[string]int64{}
			}
			in.held, in.byOwner[owner] = in.held+size, in.byOwner[owner]+size
			in.mu.Unlock()
			return nil
		}
		if in.freed == nil {
			in.freed = make(chan struct{})
		}
		freed := in.freed
		in.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (in *intake) release(owner string, size int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held -= size
	if in.byOwner[owner] -= size; in.byOwner[owner] == 0 {
		delete(in.byOwner, owner)
	}
	if in.freed != nil {
		close(in.freed)
		in.freed = nil
	}
}
