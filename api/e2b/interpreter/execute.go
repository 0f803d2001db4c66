package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/session"
)

const (
	// silence is after how long without an event the client hears that the cell still runs.
	silence = 5 * time.Second
	// linger is how long a piece of a line waits for the next one.
	linger = 30 * time.Millisecond
	// longestLine is how much of a line waits, in bytes.
	longestLine = 64 << 10
	// longestCell is the longest time limit that the core takes, in seconds. Clients have limits of their own.
	longestCell = 24 * 60 * 60
)

// errGone ends the execution in a sandbox that is gone.
var errGone error = proto.Errorf(proto.Unavailable, "", "", "the sandbox has ended")

// An execution asks for a cell.
type execution struct {
	Code     string             `json:"code"`
	Context  string             `json:"context_id"`
	Language string             `json:"language"`
	Env      map[string]*string `json:"env_vars"`
}

// cell returns the cell without what is null in its environment.
func (x execution) cell() proto.Cell {
	c := proto.Cell{Code: x.Code, TimeoutSeconds: longestCell, Env: map[string]string{}}
	for name, value := range x.Env {
		if value != nil {
			c.Env[name] = *value
		}
	}
	return c
}

// Events of a cell, a line each.
type (
	countEvent struct {
		Type  string `json:"type"`
		Count int    `json:"execution_count"`
	}
	outputEvent struct {
		Type      string `json:"type"`
		Text      string `json:"text"`
		Timestamp string `json:"timestamp"`
	}
	errorEvent struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}
	plainEvent struct {
		Type string `json:"type"`
	}
)

// execute runs a cell and sends its events as they come. When the client goes, the cell is interrupted.
func (p *Interpreter) execute(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	var ask execution
	if err := read(r, &ask); err != nil {
		return textError(http.StatusBadRequest, err)
	}
	if ask.Context != "" && ask.Language != "" {
		return textError(http.StatusBadRequest, proto.Invalid("language", "Only one of context_id or language can be "+
			"provided"))
	}
	id, err := p.ensure(r.Context(), s, ask)
	if err != nil {
		return err
	}
	lines := &lineWriter{w: w}
	lines.open()
	defer lines.stop()
	done, err := p.Code.Cell(r.Context(), s.Owner(), s.ID(), id, ask.cell(), lines.progress)
	switch {
	case r.Context().Err() != nil || p.Gone(s): // the answer breaks off, also if the interpreter's end was told first
		return cmp.Or(err, errGone)
	case err != nil:
		known := proto.AsError(s.HideError(err))
		err = lines.send(errorEvent{"error", string(known.Code), known.Message, known.Message})
	case done.ErrorDetail != nil:
		d := done.ErrorDetail
		err = lines.send(errorEvent{"error", d.Name, d.Message, cmp.Or(d.Traceback, done.Error)})
	}
	if err != nil {
		return err
	}
	return lines.send(plainEvent{"end_of_execution"})
}

// ensure returns the context of a cell, and makes it if it is a default one.
func (p *Interpreter) ensure(ctx context.Context, s *session.Session, ask execution) (id string, err error) {
	id = ask.Context
	language, ok := ownName(ask.Language)
	if id == "" && !ok {
		return "", textError(http.StatusInternalServerError, noLanguage(ask.Language))
	}
	if id == "" {
		id = defaultPrefix + language
	}
	_, err = p.Code.Get(s.Owner(), s.ID(), id)
	if err == nil {
		return id, nil
	}
	if len(id) > len(defaultPrefix) && id[:len(defaultPrefix)] == defaultPrefix {
		if language, ok = ownName(id[len(defaultPrefix):]); ok {
			err = p.make(ctx, s, id, language, "")
			if proto.CodeOf(err) == proto.AlreadyExists { // another cell made it meanwhile
				err = nil
			}
			if err != nil {
				return "", textError(http.StatusInternalServerError, s.HideError(err))
			}
			return id, nil
		}
	}
	return "", contextError(s.HideError(err))
}

// A lineWriter sends events as lines of JSON.
type lineWriter struct {
	w http.ResponseWriter

	mu    sync.Mutex
	timer *time.Timer
	over  bool
	err   error

	kind string // stdout or stderr: the stream of text
	text string // output that is not sent yet: the rest of its line may follow
	wait *time.Timer
}

// open sends the headers at once, and begins to watch for silence.
func (l *lineWriter) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.Header().Set("Content-Type", "application/json")
	l.w.Header().Set("X-Accel-Buffering", "no")
	l.w.WriteHeader(http.StatusOK)
	l.err = http.NewResponseController(l.w).Flush()
	l.timer = time.AfterFunc(silence, func() {
		_ = l.send(plainEvent{"keepalive"}) // a client that has gone is noticed by the cell
	})
}

func (l *lineWriter) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.timer.Stop()
	if l.wait != nil {
		l.wait.Stop()
	}
}

// send sends an event now.
func (l *lineWriter) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.flush(); err != nil {
		return err
	}
	return l.write(data)
}

// print sends output, joined with what follows soon up to the end of the line: programs write a line in pieces.
func (l *lineWriter) print(kind, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind != l.kind {
		if err := l.flush(); err != nil {
			return err
		}
	}
	l.kind, l.text = kind, l.text+text
	if strings.HasSuffix(l.text, "\n") || len(l.text) > longestLine {
		return l.flush()
	}
	if l.wait == nil {
		l.wait = time.AfterFunc(linger, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			_ = l.flush() // as in open
		})
	}
	l.wait.Reset(linger)
	return l.err
}

// flush sends output that waits. Called with mu held.
func (l *lineWriter) flush() error {
	if l.text == "" {
		return l.err
	}
	data, err := json.Marshal(outputEvent{l.kind, l.text, time.Now().UTC().Format(time.RFC3339Nano)})
	if l.text = ""; err != nil {
		return err
	}
	return l.write(data)
}

// write sends a line. Called with mu held.
func (l *lineWriter) write(data []byte) error {
	if l.over || l.err != nil {
		return l.err
	}
	l.timer.Reset(silence)
	if _, l.err = l.w.Write(append(data, '\n')); l.err == nil {
		l.err = http.NewResponseController(l.w).Flush()
	}
	return l.err
}

// progress sends an event of a cell.
func (l *lineWriter) progress(p proto.Progress) error {
	switch p.Type {
	case proto.ProgressStart:
		return l.send(countEvent{"number_of_executions", p.ExecutionCount})
	case string(proto.EventStdout), string(proto.EventStderr):
		text := p.Data
		if text == "" {
			text = string(p.DataBase64)
		}
		return l.print(p.Type, text)
	case proto.ProgressDisplay:
		return l.send(resultOf(*p.Display))
	}
	return nil
}
