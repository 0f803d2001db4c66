package librechat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"berth/api"
	"berth/proto"
	"berth/session"
	"berth/session/fleeting"
)

// A run asks for a run of code.
type run struct {
	Lang     string    `json:"lang"`
	Language string    `json:"language"` // in requests for programs, in place of lang
	Code     string    `json:"code"`
	Args     []string  `json:"args"`
	Files    []fileRef `json:"files"`
	UserID   string    `json:"user_id"`
	Timeout  float64   `json:"timeout"` // milliseconds; 0 is the daemon's limit of a command
	// Hint names what runs share a container, such as a conversation; "": this run has one of its own
	Hint string `json:"runtime_session_hint"`
}

// maxTimeout is the longest time limit that a request may ask for.
const maxTimeout = time.Hour

// check refuses what no container is made for.
func (q *run) check() error {
	switch {
	case strings.TrimSpace(q.Code) == "":
		return proto.Invalid("code", "Missing required field: code")
	case len(q.Code) > proto.MaxCode:
		return proto.Errorf(proto.TooLarge, "", "code", "the code has %d bytes; %d is the limit; upload a file, and "+
			"have the code read that", len(q.Code), proto.MaxCode)
	case !(q.Timeout >= 0 && q.Timeout <= float64(maxTimeout/time.Millisecond)):
		return proto.Invalid("timeout", "timeout must be from 0 to %d milliseconds", maxTimeout/time.Millisecond)
	case len(q.Hint) > maxHint:
		return proto.Invalid("runtime_session_hint", "runtime_session_hint has %d bytes; %d is the limit", len(q.Hint),
			maxHint)
	}
	return nil
}

// maxHint bounds a hint, in bytes.
const maxHint = 1024

// An answer is what a run is answered with. The status, message and signal are those of the sandbox that the hosted
// service runs code in.
type answer struct {
	SessionID string    `json:"session_id"`
	Stdout    string    `json:"stdout"`
	Stderr    string    `json:"stderr"`
	Files     []fileRef `json:"files"`
	Deleted   []string  `json:"deleted_files,omitempty"`
	Delivery  *delivery `json:"artifact_delivery,omitempty"`
	Code      *int      `json:"code"`
	Signal    *string   `json:"signal"`
	Message   *string   `json:"message"`
	Status    *string   `json:"status"`
	WallTime  int64     `json:"wall_time"` // milliseconds
	// of a run with a hint: the container, and whether it was there before
	RuntimeSession string `json:"runtime_session_id,omitempty"`
	RuntimeStatus  string `json:"runtime_status,omitempty"`
}

// A box is a container with a working directory that is ready for a run.
type box struct {
	s       *session.Session
	inputs  []input
	before  snapshot
	hinted  bool
	reused  bool
	release func() // lets the next run into the container, or removes it
}

// exec runs code and answers with its output and files.
func (e *Edge) exec(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	var q run
	if err := read(r, &q); err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	lang, err := languageOf(q.Lang)
	if err != nil {
		return err
	}
	ctx := r.Context()
	b, err := e.open(ctx, c.Owner, q)
	if err != nil {
		return err
	}
	defer b.release()
	api.Note(ctx, b.s.ID())
	if err := b.writeCode(ctx, lang, q.Code); err != nil {
		return err
	}
	res, err := b.s.Run(ctx, proto.Cmd{Argv: lang.command(q.Code, q.Args), Cwd: dataDir, Env: environment,
		TimeoutSeconds: q.Timeout / 1000, Shown: lang.names[0] + ": " + q.Code})
	if err != nil {
		return err
	}
	a, err := e.finish(ctx, b, lang, res)
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, a)
}

// environment is that of code: modules beside it are found, and leave no files that would count as its own.
var environment = map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg",
	"LIBRECHAT_CODE_DATA_DIR": dataDir}

// open returns the container of a run with its inputs in place. The caller calls release.
func (e *Edge) open(ctx context.Context, owner string, q run) (*box, error) {
	inputs, err := e.inputs(ctx, owner, q.Files)
	if err != nil {
		return nil, err
	}
	b, err := e.container(ctx, owner, q)
	if err != nil {
		return nil, err
	}
	b.inputs = inputs
	if err = b.makeData(ctx); err == nil {
		err = e.place(ctx, b.s, inputs)
	}
	if err == nil {
		b.before, err = look(ctx, b.s)
	}
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// container makes a container for one run, or finds that of the hint. Runs in one container take turns.
func (e *Edge) container(ctx context.Context, owner string, q run) (*box, error) {
	if q.Hint == "" {
		s, err := fleeting.Create(ctx, e.cfg.Sessions, owner, proto.CreateContainer{})
		if err != nil {
			return nil, err
		}
		return &box{s: s, release: func() { fleeting.Delete(ctx, e.cfg.Sessions, s, e.cfg.Log) }}, nil
	}
	name := hintedName(q)
	unlock, err := e.locks.Lock(ctx, owner+"\x00"+name)
	if err != nil {
		return nil, err
	}
	s, reused, err := e.cfg.Sessions.CreateOnce(ctx, owner, proto.CreateContainer{Name: name, Existing: true})
	if err != nil {
		unlock()
		return nil, err
	}
	return &box{s: s, hinted: true, reused: reused, release: unlock}, nil
}

// hintedName is the name of the container of a hint. Users of one application have containers of their own.
func hintedName(q run) string {
	sum := sha256.Sum256([]byte(q.UserID + "\x00" + q.Hint))
	return "librechat-" + hex.EncodeToString(sum[:16])
}

// makeData makes the working directory, unless it is there.
func (b *box) makeData(ctx context.Context) error {
	if b.reused {
		if fi, err := b.s.Stat(ctx, proto.UserDefault, dataDir); err == nil && fi.Type == proto.TypeDirectory {
			return nil
		}
	}
	res, err := b.s.Run(ctx, proto.Cmd{Argv: []string{"sh", "-c", makeData}, User: proto.UserRoot, Cwd: "/",
		Shown: "make " + dataDir})
	if err != nil {
		return err
	}
	if end := res.Exec.End; end.Reason != proto.EndExit || end.ReturnCode != 0 {
		return proto.Errorf(proto.Unsupported, "", dataDir, "image %s has no sh, mkdir or chown to make %s with; have "+
			"the daemon use an image that has them, such as base, by --image", b.s.Info().Image, dataDir)
	}
	return nil
}

// writeCode writes the file with the code.
func (b *box) writeCode(ctx context.Context, lang language, code string) error {
	_, err := b.s.WriteFile(ctx, proto.UserDefault, dataDir+"/"+lang.file(), session.WriteOptions{Mode: 0o644},
		strings.NewReader(code))
	return err
}

// finish collects what a run has left, and describes it.
func (e *Edge) finish(ctx context.Context, b *box, lang language, res proto.ExecResult) (answer, error) {
	a := answer{SessionID: spellSession(b.s.ID()), Files: []fileRef{},
		WallTime: res.Exec.Duration(time.Time{}).Milliseconds()}
	switch {
	case res.Result.Result != nil:
		a.Stdout, a.Stderr = res.Result.Result.Stdout, res.Result.Result.Stderr
	case res.Partial != nil:
		a.Stdout, a.Stderr = res.Partial.Stdout, res.Partial.Stderr
	}
	end := res.Exec.End
	if end.ReturnCode == 127 && (end.Reason == proto.EndNotStarted || a.Stderr == lang.lack()+"\n") {
		return a, lang.missing(b.s.Info().Image)
	}
	a.describeEnd(*end)
	if b.hinted {
		a.RuntimeSession, a.RuntimeStatus = a.SessionID, "new"
		if b.reused {
			a.RuntimeStatus = "reused"
		}
		e.removeCode(ctx, b, lang)
	}
	o, err := e.collect(ctx, b.s, b.inputs, b.before)
	if err != nil {
		o.notes = append(o.notes, dataDir+" could not be read: "+proto.AsError(err).Message)
	}
	if o.files != nil {
		a.Files = o.files
	}
	a.Deleted, a.Delivery = o.deleted, o.delivery
	for _, note := range append(o.notes, res.Notes...) {
		a.note(note)
	}
	return a, nil
}

// removeCode removes the code from a container that is kept. What stays is hidden, and the next run replaces it.
func (e *Edge) removeCode(ctx context.Context, b *box, lang language) {
	for _, name := range []string{lang.file(), mainFile + ".mjs"} {
		err := b.s.RemoveFile(ctx, proto.UserDefault, dataDir+"/"+name, false)
		if err != nil && proto.CodeOf(err) != proto.NotFound {
			e.cfg.Log.Warn("removing code after its run", "container", b.s.ID(), "error", err)
		}
	}
}

// note adds a line for the model to standard error.
func (a *answer) note(text string) {
	if a.Stderr != "" && !strings.HasSuffix(a.Stderr, "\n") {
		a.Stderr += "\n"
	}
	a.Stderr += text + "\n"
}

// ends are what the hosted service says of ends that the code did not choose: a status and a message.
var ends = map[proto.EndReason][2]string{
	proto.EndTimeout: {"TO", "Time limit exceeded"}, proto.EndOutOfMemory: {"RE", "Out of memory"},
	proto.EndSignal: {"SG", "Caught signal"}, proto.EndDiskQuota: {"RE", "Disk quota exceeded"},
	proto.EndPIDLimit: {"RE", "Process limit exceeded"}, proto.EndOutputLimit: {"OL", "stdout length exceeded"},
}

// describeEnd says how the code ended. Clients that show output alone learn it from standard error.
func (a *answer) describeEnd(end proto.End) {
	if end.Signal != "" {
		a.Signal = &end.Signal
	}
	code := end.ReturnCode
	said, known := ends[end.Reason]
	switch {
	case end.Reason == proto.EndExit:
		a.Code = &code
		if code != 0 {
			status := "RE"
			a.Status = &status
		}
		return
	case !known:
		said = [2]string{"XX", "Execution failed or timed out"}
	}
	a.Status, a.Message = &said[0], &said[1]
	text := said[1]
	if end.Message != "" {
		text += ": " + end.Message
	}
	a.note(text)
}
