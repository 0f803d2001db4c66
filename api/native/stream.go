package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"berth/api"
	"berth/api/live"
	"berth/proto"
	"berth/session"
)

// streamExec sends the events of a new command.
func streamExec(c *call, x *session.Exec) error {
	err := followExec(c, x, session.Cursor{})
	if err != nil {
		live.Abandon(c.ctx(), x)
	}
	return err
}

func (e *edge) execEvents(c *call) (any, error) {
	x, err := e.exec(c)
	if err != nil {
		return nil, err
	}
	from, err := c.resumePosition()
	if err != nil {
		return nil, err
	}
	if from == nil { // the client had the end; this status tells an EventSource not to reconnect
		c.w.WriteHeader(http.StatusNoContent)
		return nil, nil
	}
	if err := x.CheckCursor(*from); err != nil {
		return nil, err
	}
	return nil, followExec(c, x, *from)
}

// followExec sends the events of a command until its exit. The ID of each event is a position for Last-Event-ID.
func followExec(c *call, x *session.Exec, from session.Cursor) error {
	es := api.NewEventStream(c.w, c.r)
	defer es.Close()
	// The position covers both streams, since an event has one ID.
	at := from
	err := x.Follow(es.Context(), from, func(ev proto.Event) error {
		advance(&at, ev)
		return es.SendID(eventID(at, ev), string(ev.Type), ev)
	})
	switch {
	case err != nil && api.IsDraining(c.ctx()):
		return nil // a reconnecting client continues after its last event
	case es.Context().Err() != nil:
		return context.Canceled
	}
	return err
}

// advance moves a position past an event.
func advance(at *session.Cursor, ev proto.Event) {
	// One of the two is empty. DataBase64 holds the raw bytes here.
	end := ev.Offset + int64(len(ev.Data)+len(ev.DataBase64))
	stream := string(ev.Type)
	if ev.Type == proto.EventGap {
		stream, end = ev.Stream, ev.Until
	}
	switch stream {
	case proto.Stdout.String():
		at.Stdout = end
	case proto.Stderr.String():
		at.Stderr = end
	}
}

// endMark is the suffix of the ID of an exit event.
const endMark = "-end"

// eventID encodes how many bytes of stdout and stderr a client has after this event.
func eventID(at session.Cursor, ev proto.Event) string {
	id := fmt.Sprintf("%d-%d", at.Stdout, at.Stderr)
	if ev.Type == proto.EventExit {
		id += endMark
	}
	return id
}

// resumePosition returns where a client wants to continue: Last-Event-ID, which reconnecting clients send, or the
// offsets of the query. It returns nil for a position after the end.
func (c *call) resumePosition() (*session.Cursor, error) {
	last := c.r.Header.Get("Last-Event-ID")
	if last == "" {
		return &session.Cursor{Stdout: c.whole("stdout_offset"), Stderr: c.whole("stderr_offset")}, nil
	}
	offsets, ended := strings.CutSuffix(last, endMark)
	out, errs, ok := strings.Cut(offsets, "-")
	// ParseUint refuses negative offsets, which would pass for a place before the beginning.
	stdout, err1 := strconv.ParseUint(out, 10, 63)
	stderr, err2 := strconv.ParseUint(errs, 10, 63)
	if !ok || err1 != nil || err2 != nil {
		return nil, badEventID(last)
	}
	if ended {
		return nil, nil
	}
	return &session.Cursor{Stdout: int64(stdout), Stderr: int64(stderr)}, nil
}

func badEventID(last string) error {
	return proto.Invalid(lastEvent.Name, "Last-Event-ID %.80q is not the ID of an event of this stream; leave it out "+
		"to begin at the start.", last)
}

// A logWriter writes the output of a command as it is. Positions count bytes of each stream from 0.
type logWriter struct {
	c      *call
	rc     *http.ResponseController
	stream string // "stdout", "stderr", or "both"
	follow bool
	begun  bool
	exact  bool      // the client counts bytes, so no note may stand between them
	tail   *lineTail // holds back output up to goal, of which only the last lines are wanted; nil: does not
	at     session.Cursor
	goal   session.Cursor // the end of the output at the time of the request
}

// errLogCut ends a followed log when the daemon shuts down. After the first byte it breaks the connection.
var errLogCut = proto.Errorf(proto.Unavailable, "", "", "The daemon is shutting down; follow the log again when it "+
	"is back, from the offset that you have.")

// logStart is the header with the offset of the first byte, if it is not the requested one.
const logStart = "Berth-Log-Start"

func (e *edge) execLogs(c *call) (any, error) {
	x, err := e.exec(c)
	if err != nil {
		return nil, err
	}
	l, err := newLogWriter(c, x.Info())
	if err != nil {
		return nil, err
	}
	// A 416, not a 400: the offset is well-formed and behind the output.
	if err := x.CheckCursor(l.asked()); err != nil {
		return nil, api.WithStatus(http.StatusRequestedRangeNotSatisfiable, proto.AsError(err))
	}
	ctx, cancel := api.UntilDraining(c.ctx())
	defer cancel()
	if !l.follow {
		cancel() // then Follow returns the present output and ends where it would wait
	}
	err = x.Follow(ctx, l.at, l.event)
	cut := errors.Is(err, context.Canceled) && c.ctx().Err() == nil
	switch {
	case cut && l.follow:
		return nil, errLogCut // a normal end would mean that this is all
	case cut || errors.Is(err, errHaveAll):
		err = nil
	}
	if err == nil {
		err = l.endTail()
	}
	if err == nil {
		l.begin(0)
	}
	return nil, err
}

func newLogWriter(c *call, info proto.Exec) (*logWriter, error) {
	l := &logWriter{
		c: c, rc: http.NewResponseController(c.w), stream: c.query.Get("stream"), follow: c.flag("follow"),
		exact: c.query.Has("offset"),
		goal:  session.Cursor{Stdout: info.StdoutBytes, Stderr: info.StderrBytes},
	}
	offset := c.whole("offset")
	if lines := int(c.whole("tail")); lines > 0 {
		if l.exact {
			return nil, proto.Invalid("tail", "The query has both offset and tail; send one of them.")
		}
		l.tail = &lineTail{lines: lines}
	}
	switch l.stream {
	case "stdout":
		l.at = session.Cursor{Stdout: offset, Stderr: unreachedOffset}
	case "stderr":
		l.at = session.Cursor{Stdout: unreachedOffset, Stderr: offset}
	default:
		l.stream = "both"
		if l.exact {
			return nil, proto.Invalid("offset",
				"offset counts the bytes of one stream; set stream to stdout or stderr.")
		}
	}
	return l, nil
}

// asked returns the requested position in the requested stream.
func (l *logWriter) asked() (at session.Cursor) {
	if l.at.Stdout != unreachedOffset {
		at.Stdout = l.at.Stdout
	}
	if l.at.Stderr != unreachedOffset {
		at.Stderr = l.at.Stderr
	}
	return at
}

// unreachedOffset is an offset that no stream reaches, so that nothing of the stream is read.
const unreachedOffset = 1<<63 - 1

// errHaveAll ends a follower that has all requested output.
var errHaveAll = errors.New("enough")

// event writes the output of one event, or a note about missing output.
func (l *logWriter) event(ev proto.Event) error {
	advance(&l.at, ev)
	switch ev.Type {
	case proto.EventStart:
		return l.start()
	case proto.EventStdout, proto.EventStderr:
		if err := l.write(ev.Data, ev.DataBase64); err != nil {
			return err
		}
	case proto.EventGap:
		if l.tail != nil && l.stream != "both" {
			l.tail.kept = nil // the lines before are not the last ones in a row
			break
		}
		if !l.begun && l.stream != "both" {
			l.begin(ev.Until)
			return nil
		}
		if l.exact {
			// the client counts bytes: it asks again from here and learns where the output continues
			return errHaveAll
		}
		if err := l.write(proto.OutputTruncated(ev.Until-ev.Offset), nil); err != nil {
			return err
		}
	}
	if l.at.Stdout < l.goal.Stdout || l.at.Stderr < l.goal.Stderr {
		return nil
	}
	// Without this, a plain read of a command that writes endlessly would not end.
	if !l.follow {
		return errHaveAll
	}
	return l.endTail()
}

// endTail writes the lines that were held back. What comes next is written at once.
func (l *logWriter) endTail() error {
	if l.tail == nil {
		return nil
	}
	kept := l.tail.last()
	l.tail = nil
	if l.stream != "both" {
		at := l.asked() // of the other stream, nothing
		l.begin(at.Stdout + at.Stderr - int64(len(kept)))
	}
	return l.write("", kept)
}

// start sends the header to a follower if no output has done so yet.
func (l *logWriter) start() error {
	if !l.follow || l.at.Stdout < l.goal.Stdout || l.at.Stderr < l.goal.Stderr {
		return nil
	}
	if api.IsDraining(l.c.ctx()) {
		return errLogCut // the status can still be sent
	}
	l.begin(0)
	return l.rc.Flush()
}

// begin sends the header once. A start of 0 is the requested one.
func (l *logWriter) begin(start int64) {
	if l.begun {
		return
	}
	l.begun = true
	h := l.c.w.Header()
	rawBody(h, octets)
	h.Set("X-Accel-Buffering", "no")
	if start > 0 {
		h.Set(logStart, strconv.FormatInt(start, 10))
	}
	if l.follow {
		api.NoteStarted(l.c.ctx())
	}
	l.c.w.WriteHeader(http.StatusOK)
}

// Followers get each piece at once; for others full buffers are better.
func (l *logWriter) write(text string, data []byte) error {
	if len(data) == 0 {
		data = []byte(text)
	}
	if l.tail != nil {
		l.tail.add(data)
		return nil
	}
	l.begin(0)
	if _, err := l.c.Write(data); err != nil || !l.follow {
		return err
	}
	return l.rc.Flush()
}
