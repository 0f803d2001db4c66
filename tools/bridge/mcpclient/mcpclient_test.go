package mcpclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth/tools/bridge/mcpclient"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxBytes bounds the answers of these tests.
const maxBytes = 1 << 20

// badly has the ways in which a server answers a call of the tool bad.
var badly = map[string]func(w http.ResponseWriter, r *http.Request){
	"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
	"missing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
	"failed":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	"away":    func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusTemporaryRedirect) },
	"type":    func(w http.ResponseWriter, _ *http.Request) { says(w, "text/plain", "hello") },
	"no JSON": func(w http.ResponseWriter, _ *http.Request) { says(w, "application/json", "hello") },
	"empty":   func(w http.ResponseWriter, _ *http.Request) { says(w, "application/json", "") },
	"another": func(w http.ResponseWriter, _ *http.Request) {
		says(w, "application/json", `{"jsonrpc":"2.0","id":4711,"result":{"content":[]}}`)
	},
	"large": func(w http.ResponseWriter, _ *http.Request) {
		says(w, "application/json", `{"jsonrpc":"2.0","id":1,"result":"`+strings.Repeat("x", maxBytes)+`"}`)
	},
	"cut off": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		says(w, "application/json", `{"jsonrpc":`)
	},
	"late": func(w http.ResponseWriter, r *http.Request) {
		says(w, "application/json", `{"jsonrpc":`)
		<-r.Context().Done()
	},
	"events cut off": func(w http.ResponseWriter, _ *http.Request) {
		says(w, "text/event-stream", "id: 1\ndata:\n\n")
	},
	"events no field": func(w http.ResponseWriter, _ *http.Request) { says(w, "text/event-stream", "hello\n\n") },
	"events no JSON":  func(w http.ResponseWriter, _ *http.Request) { says(w, "text/event-stream", "data: hello\n\n") },
	"events large": func(w http.ResponseWriter, _ *http.Request) {
		says(w, "text/event-stream", "id: 1\ndata: "+strings.Repeat("x", maxBytes))
	},
}

func says(w http.ResponseWriter, kind, text string) {
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

// noLimit is a take that always has memory.
func noLimit(int) error { return nil }

// A server answers all tools but bad correctly. A call of hold signals entered, and returns after goOn.
type server struct {
	*mcpclient.Client
	entered, goOn chan struct{}
}

func newServer(t *testing.T, opts *mcp.StreamableHTTPOptions, bad func(http.ResponseWriter, *http.Request)) *server {
	t.Helper()
	s := &server{entered: make(chan struct{}, 1), goOn: make(chan struct{}, 2)}
	m := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	mcp.AddTool(m, &mcp.Tool{Name: "hold"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (
		*mcp.CallToolResult, any, error) {
		s.entered <- struct{}{}
		select {
		case <-s.goOn:
		case <-ctx.Done():
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "held"}}}, nil, nil
	})
	good := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, opts)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"name":"bad"`)) {
			bad(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		good.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	s.Client = mcpclient.New(mcpclient.Config{URL: web.URL, Client: client, MaxBytes: maxBytes})
	t.Cleanup(s.Close)
	return s
}

// hold calls hold, and sends its result.
func (s *server) hold(ctx context.Context) <-chan string {
	out := make(chan string, 1)
	go func() {
		result, refused, err := s.Call(ctx, "hold", []byte("{}"), noLimit)
		out <- fmt.Sprint(string(result), refused, err)
	}()
	return out
}

// A bad answer fails its own call alone. Other calls, under way or later, get their answers.
func TestOneBadAnswer(t *testing.T) {
	for kind, opts := range map[string]*mcp.StreamableHTTPOptions{"events": nil, "JSON": {JSONResponse: true},
		"no session": {Stateless: true}} {
		for name, bad := range badly {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				s := newServer(t, opts, bad)
				held := s.hold(ctx)
				<-s.entered
				patience := time.Minute
				if name == "late" {
					patience = 100 * time.Millisecond
				}
				short, stop := context.WithTimeout(ctx, patience)
				defer stop()
				if result, refused, err := s.Call(short, "bad", []byte("{}"), noLimit); err == nil || ctx.Err() != nil {
					t.Errorf("%s %s %v", result, refused, err)
				}
				next := s.hold(ctx)
				<-s.entered
				for range 2 {
					s.goOn <- struct{}{}
				}
				for _, got := range []string{<-held, <-next} {
					if got != `"held"<nil>` {
						t.Error(got)
					}
				}
			})
		}
	}
}

// A list that never ends is an error, whichever tools are wanted.
func TestEndlessList(t *testing.T) {
	page := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		switch asked.Method {
		case "initialize":
			says(w, "application/json", fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, asked.ID))
		case "tools/list":
			page++
			says(w, "application/json", fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"nextCursor":"%d","_meta":{"x":"%s"}}}`, asked.ID, page,
				strings.Repeat("x", maxBytes/4)))
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer web.Close()
	c := mcpclient.New(mcpclient.Config{URL: web.URL, Client: &http.Client{Transport: &http.Transport{}},
		MaxBytes: maxBytes})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if tools, err := c.Tools(ctx); err == nil || !strings.Contains(err.Error(), "too large") || page > 4 {
		t.Errorf("%v %v, %d pages", tools, err, page)
	}
}
