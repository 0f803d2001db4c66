// Package interpreter is the code interpreter of a sandbox as E2B's clients know it, on port 49999. It is served by the
// daemon: a context is one of package code, and a request runs a cell there.
//
//	interpreter.go  contexts
//	execute.go      a cell: its events, a line of JSON each
//	result.go       what code shows, by media type
//
// Each language has a default context, made by the first cell that names none.
package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"berth/api"
	"berth/code"
	"berth/proto"
	"berth/session"
)

// An Interpreter serves the interpreters of all sandboxes.
type Interpreter struct {
	Code *code.Runner
	// Gone reports whether a sandbox has ended or is paused. Its executions then break off.
	Gone func(*session.Session) bool
}

const (
	defaultPrefix = "default-" // begins the IDs of the default contexts
	home          = "/home/user"
	maxBody       = 8 << 20 // of a request, in bytes
)

// A contextInfo is a context.
type contextInfo struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// languages are the names that clients have for languages of package code that has others.
var languages = map[string]string{"js": "javascript", "ts": "typescript"}

// ownName returns the name of a language in package code, and whether there is one.
func ownName(asked string) (name string, ok bool) {
	name = strings.ToLower(cmp.Or(asked, "python"))
	for own, theirs := range languages {
		if name == theirs {
			name = own
		}
	}
	return name, slices.Contains(code.Languages(), name)
}

func describe(language, id, cwd string) contextInfo {
	return contextInfo{id, cmp.Or(languages[language], language), cmp.Or(cwd, home)}
}

// Serve serves one request to the interpreter of a sandbox. Clients show its errors as the texts that they are.
func (p *Interpreter) Serve(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	err := p.serve(w, r, s)
	var f textFailure
	if !errors.As(err, &f) {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(f.status)
	_, err = io.WriteString(w, proto.AsError(f.error).Message)
	return err
}

func (p *Interpreter) serve(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	id, verb, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/contexts/"), "/")
	one := strings.HasPrefix(r.URL.Path, "/contexts/") && id != ""
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/health":
		return api.JSON(w, http.StatusOK, "OK")
	case r.Method == http.MethodPost && r.URL.Path == "/execute":
		return p.execute(w, r, s)
	case r.Method == http.MethodGet && r.URL.Path == "/contexts":
		return p.list(w, s)
	case r.Method == http.MethodPost && r.URL.Path == "/contexts":
		return p.create(w, r, s)
	case r.Method == http.MethodPost && one && verb == "restart":
		return p.change(w, s, id, func() error {
			_, err := p.Code.Restart(r.Context(), s.Owner(), s.ID(), id)
			return err
		})
	case r.Method == http.MethodDelete && one && verb == "":
		return p.change(w, s, id, func() error { return p.Code.Delete(r.Context(), s.Owner(), s.ID(), id) })
	}
	return textError(http.StatusNotFound, proto.Errorf(proto.NotFound, "", "", "the interpreter has no %s %.80q",
		r.Method, r.URL.Path))
}

// read decodes the body of a request.
func read(r *http.Request, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return proto.Invalid("body", "reading the body: %v", err)
	}
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return proto.Invalid("body", "the body is not valid JSON: %v", err)
	}
	return nil
}

// list has the default contexts of Python and JavaScript first, whether or not they were used yet.
func (p *Interpreter) list(w http.ResponseWriter, s *session.Session) error {
	have, err := p.Code.List(s.Owner(), s.ID())
	if err != nil {
		return err
	}
	slices.SortStableFunc(have, func(a, b code.Context) int { return a.CreatedAt.Compare(b.CreatedAt.Time) })
	usual := []string{"python", "js"}
	out := []contextInfo{}
	for _, language := range usual {
		out = append(out, describe(language, defaultPrefix+language, home))
	}
	for _, c := range have {
		if !slices.ContainsFunc(out, func(o contextInfo) bool { return o.ID == c.Name }) {
			out = append(out, describe(c.Language, c.Name, c.Cwd))
		}
	}
	return api.JSON(w, http.StatusOK, out)
}

func (p *Interpreter) create(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	var ask struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := read(r, &ask); err != nil {
		return textError(http.StatusBadRequest, err)
	}
	language, ok := ownName(ask.Language)
	if !ok {
		return textError(http.StatusInternalServerError, noLanguage(ask.Language))
	}
	id := "c" + proto.NewID("")
	if err := p.make(r.Context(), s, id, language, ask.Cwd); err != nil {
		return textError(http.StatusInternalServerError, s.HideError(err))
	}
	return api.JSON(w, http.StatusOK, describe(language, id, ask.Cwd))
}

// theirNames lists the languages as clients call them.
func theirNames() []string {
	names := code.Languages()
	for i, n := range names {
		names[i] = cmp.Or(languages[n], n)
	}
	return names
}

func noLanguage(name string) error {
	return proto.Errorf(proto.Unsupported, "", "language", "there is no language %.80q; the languages are %s",
		name, strings.Join(theirNames(), ", "))
}

// make makes a context in a directory, by default the home of the user, or that of its job if there is no home.
func (p *Interpreter) make(ctx context.Context, s *session.Session, id, language, cwd string) error {
	ask := code.NewContext{Name: id, Language: language, Cwd: cmp.Or(cwd, home)}
	if cwd == "" {
		if fi, err := s.Stat(ctx, proto.UserDefault, home); err != nil || fi.Type != proto.TypeDirectory {
			ask.Cwd = ""
		}
	}
	_, err := p.Code.Create(ctx, s.Owner(), s.ID(), ask)
	return err
}

// change does something to a context. A default context that was not used yet is as after a restart.
func (p *Interpreter) change(w http.ResponseWriter, s *session.Session, id string, do func() error) error {
	err := do()
	if proto.CodeOf(err) == proto.NotFound && strings.HasPrefix(id, defaultPrefix) {
		if _, ok := ownName(strings.TrimPrefix(id, defaultPrefix)); ok {
			err = nil
		}
	}
	if err != nil {
		return contextError(s.HideError(err))
	}
	return api.JSON(w, http.StatusOK, nil)
}

// contextError gives an error about a context the status that clients look for.
func contextError(err error) error {
	if code := proto.CodeOf(err); code == proto.NotFound || code == proto.InvalidArgument {
		return textError(http.StatusNotFound, err)
	}
	return textError(http.StatusInternalServerError, err)
}

// A textFailure is an error whose answer is its message.
type textFailure struct {
	status int
	error
}

// Unwrap returns the cause.
func (f textFailure) Unwrap() error { return f.error }

func textError(status int, err error) error { return textFailure{status, err} }
