package librechat

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api"
	"berth/proto"
	"berth/session"
	"berth/tools/bridge"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/provider"
)

// programDriver runs a program in Python.
//
//go:embed program.py
var programDriver string

// Bounds of programs.
const (
	maxTools      = 100              // of one program
	defaultBudget = 60 * time.Second // between two requests, if a request names none
	maxBudget     = 5 * time.Minute
	longestRun    = 12 * time.Hour // of a program with all its waiting
)

// holderName is the name of a program's tools in the bridge.
const holderName = "librechat"

// requestHeader names a request, for a client that cancels it.
const requestHeader = "X-Librechat-Code-Request-Id"

// A programRequest starts a program, or gives one that waits the results of its calls.
type programRequest struct {
	run
	Tools   []tool       `json:"tools"`
	Token   string       `json:"continuation_token"`
	Results []toolResult `json:"tool_results"`
}

// A tool is a function that the client answers. Older clients call its parameters so, too.
type tool struct {
	Name       string `json:"name"`
	Parameters struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	} `json:"parameters"`
}

// A toolResult is the client's answer to a call.
type toolResult struct {
	CallID  string          `json:"call_id"`
	Result  json.RawMessage `json:"result"`
	IsError bool            `json:"is_error"`
	Message string          `json:"error_message"`
}

// A toolCall is a call that the client answers.
type toolCall struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// A programAnswer is the answer to a request for a program: its calls, or its result.
type programAnswer struct {
	Status string     `json:"status"` // tool_call_required, completed or error
	Token  string     `json:"continuation_token,omitempty"`
	Calls  []toolCall `json:"tool_calls,omitempty"`
	Error  string     `json:"error,omitempty"`
	*answer
	SessionID string `json:"session_id"`
}

// A program is code that runs on while its client answers its calls. Between two requests only programs knows it. It
// ends with the daemon.
type program struct {
	owner, token string
	session      string            // as clients spell it
	names        map[string]string // of tools, by that of the function
	exec         *session.Exec
	provider     *bridge.ProviderSession
	batches      chan []provider.Call
	done         chan struct{} // closed when result or err is set
	result       answer
	err          error
	end          context.CancelFunc // of what listens to it

	serving chan struct{} // holds a token: the right to serve it
	// guarded by serving
	waiting []toolCall
	idle    *time.Timer // ends it if its client does not come back
}

// programs are those that run, by owner and token, and the requests that a client may cancel.
type programs struct {
	mu       sync.Mutex
	closed   bool
	running  map[string]*program
	requests map[string]context.CancelFunc
	all      sync.WaitGroup
}

// program starts a program or goes on with one.
func (e *Edge) program(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	var q programRequest
	if err := read(r, &q); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if id := r.Header.Get(requestHeader); id != "" {
		release, err := e.programs.name(c.Owner, id, cancel)
		if err != nil {
			return err
		}
		defer release()
	}
	p, err := e.findProgram(ctx, c.Owner, q)
	if err != nil {
		return err
	}
	defer func() { <-p.serving }()
	api.Note(ctx, p.exec.ID())
	a, err := e.await(ctx, p, q.budget())
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, a)
}

// findProgram starts a program, or finds that of the token and passes the results on. The caller has the right to
// serve it.
func (e *Edge) findProgram(ctx context.Context, owner string, q programRequest) (*program, error) {
	if q.Token == "" {
		return e.startProgram(ctx, owner, q)
	}
	if len(q.Results) == 0 {
		return nil, proto.Invalid("tool_results", "tool_results must have a result for each call that waits")
	}
	p := e.programs.find(owner, q.Token)
	if p == nil {
		return nil, proto.Errorf(proto.NotFound, "", q.Token, "Execution not found or expired: start the program again")
	}
	select {
	case p.serving <- struct{}{}:
	default:
		return nil, proto.Errorf(proto.Conflict, "", q.Token, "another request goes on with this program; wait for "+
			"its answer")
	}
	if err := p.give(q.Results); err != nil {
		<-p.serving
		return nil, err
	}
	return p, nil
}

// budget is how long the program may run before the answer.
func (q *programRequest) budget() time.Duration {
	if q.Timeout == 0 {
		return defaultBudget
	}
	return min(time.Duration(q.Timeout*float64(time.Millisecond)), maxBudget)
}

// startProgram starts a program in a container.
func (e *Edge) startProgram(ctx context.Context, owner string, q programRequest) (p *program, err error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	asked := q.Language
	if asked == "" {
		asked = q.Lang
	}
	if asked == "" {
		asked = "py"
	}
	lang, err := languageOf(asked)
	if err != nil {
		return nil, err
	}
	functions, err := functionsOf(q.Tools, lang)
	if err != nil {
		return nil, err
	}
	b, err := e.open(ctx, owner, q.run)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.release()
		}
	}()
	if err := b.writeCode(ctx, lang, q.Code); err != nil {
		return nil, err
	}
	p = &program{owner: owner, session: spellSession(b.s.ID()), names: map[string]string{},
		batches: make(chan []provider.Call), done: make(chan struct{}), serving: make(chan struct{}, 1)}
	p.serving <- struct{}{}
	return p, e.launch(ctx, p, b, lang, q, functions)
}

// launch starts the command of a program, and what listens to it.
func (e *Edge) launch(ctx context.Context, p *program, b *box, lang language, q programRequest,
	functions []function) error {
	offered := make([]provider.Tool, len(functions))
	for i, f := range functions {
		p.names[f.name] = f.tool
		offered[i] = provider.Tool{Name: f.name, Async: true}
	}
	var err error
	if p.provider, err = e.cfg.Bridge.Provide(p.owner, b.s.ID(), holderName, offered, e.cfg.HoldTime); err != nil {
		return err
	}
	detached, end := context.WithCancel(context.WithoutCancel(ctx))
	cmd := proto.Cmd{Argv: programCommand(lang, functions), Cwd: dataDir, Env: environment,
		TimeoutSeconds: longestRun.Seconds(), Shown: lang.names[0] + ": " + q.Code}
	if p.exec, err = b.s.Exec(detached, cmd); err != nil {
		end()
		p.provider.Close()
		return err
	}
	p.end, p.token = end, spell(proto.ExecPrefix, p.exec.ID())
	p.idle = time.AfterFunc(longestRun, func() { e.forget(p, "its client did not come back") })
	if !e.programs.add(p) {
		p.exec.Cancel(proto.EndStopped, "the daemon shuts down")
	}
	e.programs.all.Go(func() { p.receiveCalls(detached) })
	e.programs.all.Go(func() {
		defer close(p.done)
		defer b.release()
		defer p.provider.Close()
		var res proto.ExecResult
		if res, p.err = p.exec.Finish(detached); p.err == nil {
			p.result, p.err = e.finish(detached, b, lang, res)
		}
	})
	return nil
}

// receiveCalls takes the calls of the program from the bridge.
func (p *program) receiveCalls(ctx context.Context) {
	for {
		batch, err := p.provider.Next(ctx)
		if err != nil {
			return
		}
		select {
		case p.batches <- batch:
		case <-p.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// await waits until the program calls tools or ends. A client that goes away, or cancels, ends it.
func (e *Edge) await(ctx context.Context, p *program, budget time.Duration) (programAnswer, error) {
	p.idle.Stop()
	timer := time.NewTimer(budget)
	defer timer.Stop()
	var batches <-chan []provider.Call
	if len(p.waiting) == 0 {
		batches = p.batches
	}
	for batches != nil {
		select {
		case batch := <-batches:
			for _, c := range batch {
				p.waiting = append(p.waiting, toolCall{c.ID, p.names[c.Tool], c.Input})
			}
			batches = nil
			continue
		case <-timer.C:
			p.exec.Cancel(proto.EndTimeout, fmt.Sprintf("it ran for %s", budget))
		case <-ctx.Done():
			p.exec.Cancel(proto.EndCanceled, "its client went away or canceled the request")
		case <-p.done:
		}
		<-p.done
		return e.settle(p)
	}
	select {
	case <-p.done: // its calls have waited too long
		return e.settle(p)
	default:
	}
	p.idle.Reset(e.cfg.HoldTime + maxBudget)
	return programAnswer{Status: "tool_call_required", Token: p.token, Calls: p.waiting, SessionID: p.session}, nil
}

// settle answers with the result of a program that has ended.
func (e *Edge) settle(p *program) (programAnswer, error) {
	e.forget(p, "")
	if p.err != nil {
		return programAnswer{}, p.err
	}
	a := programAnswer{Status: "completed", answer: &p.result, SessionID: p.session}
	switch {
	case p.result.Message != nil:
		a.Status, a.Error = "error", *p.result.Message
	case p.result.Code != nil && *p.result.Code != 0:
		a.Status, a.Error = "error", fmt.Sprintf("Sandbox exited with code %d", *p.result.Code)
	}
	return a, nil
}

// forget removes a program, and ends it if it runs.
func (e *Edge) forget(p *program, why string) {
	e.programs.remove(p)
	p.idle.Stop()
	select {
	case <-p.done:
	default:
		p.exec.Cancel(proto.EndCanceled, why)
	}
	p.end()
}

// give passes results to the program. The bridge refuses those that come too late.
func (p *program) give(results []toolResult) error {
	for _, res := range results {
		if !slices.ContainsFunc(p.waiting, func(c toolCall) bool { return c.ID == res.CallID }) {
			return proto.Invalid("tool_results", "call_id %.80q is not a call that waits", res.CallID)
		}
	}
	for _, res := range results {
		if res.IsError {
			message := res.Message
			if message == "" {
				message = "Tool execution failed"
			}
			_ = p.provider.Answer(res.CallID, nil, &codeapi.Failure{Type: codeapi.RuntimeError, Message: message})
		} else {
			if len(res.Result) == 0 {
				res.Result = json.RawMessage("null")
			}
			// The text of the result is a string for the bridge, so that the functions get exactly this value.
			text, err := json.Marshal(string(res.Result))
			if err != nil {
				return err
			}
			if err := p.provider.Answer(res.CallID, text, nil); proto.CodeOf(err) == proto.TooLarge {
				return err
			}
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(c toolCall) bool { return c.ID == res.CallID })
	}
	return nil
}

// cancelProgram ends the request of a client that bears an ID, and its program.
func (e *Edge) cancelProgram(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	var q struct {
		RequestID string `json:"request_id"`
	}
	if err := read(r, &q); err != nil {
		return err
	}
	if !requestID.MatchString(q.RequestID) {
		return proto.Invalid("request_id", "Invalid or missing request_id")
	}
	status, said := http.StatusOK, "already_completed"
	if e.programs.cancel(c.Owner, q.RequestID) {
		status, said = http.StatusAccepted, "cancellation_requested"
	}
	return api.JSON(w, status, map[string]string{"status": said})
}

// requestID is the form of IDs of requests.
var requestID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// A function is a tool as code calls it.
type function struct {
	name  string   // in the language
	tool  string   // as the client has it
	order []string // of its parameters: those that are required first
}

// reserved are the words that are no names of functions, in Python and in bash.
var reserved = map[string][]string{
	"py": strings.Fields("False None True and as assert async await break class continue def del elif else except " +
		"finally for from global if import in is lambda nonlocal not or pass raise return try while with yield"),
	"sh": strings.Fields("if then else elif fi case esac for while until do done in function select time coproc " +
		"declare typeset local readonly export unset"),
}

// notInName finds what no name of a function has.
var notInName = regexp.MustCompile(`[^A-Za-z0-9_]`)

// functionsOf returns the functions of tools, with the names that clients tell models.
func functionsOf(tools []tool, lang language) ([]function, error) {
	words, ok := reserved[lang.ext]
	switch {
	case !ok:
		return nil, proto.Invalid("language", "Unsupported language: %.40q cannot call tools; use python or bash",
			lang.names[0])
	case len(tools) == 0:
		return nil, proto.Invalid("tools", "Missing required field: tools (must be a non-empty array)")
	case len(tools) > maxTools:
		return nil, proto.Errorf(proto.TooLarge, "", "tools", "Too many tools provided (%d). Maximum is %d.",
			len(tools), maxTools)
	}
	separators := strings.NewReplacer("-", "_", " ", "_")
	if lang.ext == "sh" {
		separators = strings.NewReplacer("-", "_", " ", "_", ".", "_")
	}
	list, taken := make([]function, len(tools)), map[string]string{}
	for i, t := range tools {
		name := notInName.ReplaceAllString(separators.Replace(t.Name), "")
		if name != "" && name[0] >= '0' && name[0] <= '9' {
			name = "_" + name
		}
		if slices.Contains(words, name) {
			name += "_tool"
		}
		if other, is := taken[name]; is || name == "" || len(name) > 128 {
			return nil, proto.Invalid(fmt.Sprintf("tools.%d.name", i), "tool %.80q would be the function %.80q, which "+
				"is no name or that of tool %.80q; rename one", t.Name, name, other)
		}
		taken[name] = t.Name
		order, err := t.order()
		if err != nil {
			at := fmt.Sprintf("tools.%d.parameters.properties", i)
			return nil, proto.Invalid(at, "%s must be an object", at)
		}
		list[i] = function{name, t.Name, order}
	}
	return list, nil
}

// order returns the names of parameters as code may pass them without names.
func (t tool) order() (order []string, err error) {
	if len(t.Parameters.Properties) == 0 {
		return []string{}, nil
	}
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(t.Parameters.Properties, &properties); err != nil {
		return nil, err
	}
	order = []string{}
	for _, name := range t.Parameters.Required {
		if _, ok := properties[name]; ok {
			order = append(order, name)
		}
	}
	dec := json.NewDecoder(strings.NewReader(string(t.Parameters.Properties)))
	for _, err := dec.Token(); dec.More() && err == nil; {
		key, _ := dec.Token()
		var value json.RawMessage
		if err = dec.Decode(&value); err != nil {
			break
		}
		if name, ok := key.(string); ok && !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	return order, nil
}

// programCommand returns what runs a program with its functions.
func programCommand(lang language, functions []function) []string {
	file := dataDir + "/" + lang.file()
	look := "command -v " + lang.program + " >/dev/null || { echo '" + lang.lack() + "' >&2; exit 127; }\n"
	if lang.ext == "sh" {
		var text strings.Builder
		for _, f := range functions {
			// The name of a function has no character that a shell would see.
			fmt.Fprintf(&text, "%s() { tools %s \"${1:-{\\}}\"; }\n", f.name, f.name)
		}
		return []string{"sh", "-c", look + `exec bash -c "$1" "$0"`, file, text.String() + `. "$0"`}
	}
	specs := make([][2]any, len(functions))
	for i, f := range functions {
		specs[i] = [2]any{f.name, f.order}
	}
	text, _ := json.Marshal(specs) // cannot fail: strings
	return []string{"sh", "-c", look + `exec python3 -c "$1" "$0" "$2"`, file, programDriver, string(text)}
}

func (ps *programs) add(p *program) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.running == nil {
		ps.running = map[string]*program{}
	}
	ps.running[p.owner+"\x00"+p.token] = p
	return !ps.closed
}

func (ps *programs) find(owner, token string) *program {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.running[owner+"\x00"+token]
}

func (ps *programs) remove(p *program) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.running, p.owner+"\x00"+p.token)
}

// name lets a client cancel a request by an ID, until release is called.
func (ps *programs) name(owner, id string, cancel context.CancelFunc) (release func(), err error) {
	if !requestID.MatchString(id) {
		return nil, proto.Invalid(requestHeader, "Invalid programmatic request ID")
	}
	key := owner + "\x00" + id
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.requests[key] != nil {
		return nil, proto.Errorf(proto.Conflict, "", requestHeader, "Programmatic request ID is already in use")
	}
	if ps.requests == nil {
		ps.requests = map[string]context.CancelFunc{}
	}
	ps.requests[key] = cancel
	return func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		delete(ps.requests, key)
	}, nil
}

// cancel cancels a request, and reports whether there was one.
func (ps *programs) cancel(owner, id string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	cancel := ps.requests[owner+"\x00"+id]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// close ends all programs and waits for them.
func (ps *programs) close() {
	ps.mu.Lock()
	ps.closed = true
	var all []*program
	for _, p := range ps.running {
		all = append(all, p)
	}
	ps.mu.Unlock()
	for _, p := range all {
		p.idle.Stop()
		p.exec.Cancel(proto.EndStopped, "the daemon shuts down")
	}
	ps.all.Wait()
}
