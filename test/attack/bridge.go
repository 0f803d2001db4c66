package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"berth/client"
	"berth/proto"

	"github.com/gorilla/websocket"
)

// Group 48: tools that code in a container calls. The code must not reach tools that are not on its list or that
// belong to others. The list is the owner's decision about code that a model wrote. What enforces it is the parsing
// of the code's requests.
var _ = register(
	attemptsIn(Case{
		Group: 48, Name: "bridge/names",
		Tries: "call tools that are not on the list by aliases, other spellings, other scripts, paths, names of the " +
			"namespace and of its parts",
		Wants: "each is a PermissionError or a ValueError, and nobody is asked to answer it",
	}, asBoth, toolNameAttempts, oneTool),
	attemptsIn(Case{
		Group: 48, Name: "bridge/paths",
		Tries: "ask the server that code finds for the API: approvals, the registry, other containers, keys, " +
			"metrics, by odd paths, methods, absolute URLs, upgrades and CONNECT",
		Wants: "each is refused",
	}, asBoth, toolPathAttempts, oneTool),
	attemptsIn(Case{
		Group: 48, Name: "bridge/keys",
		Tries: "call without a token, with one in another place, two of them, one of another form, and the API's " +
			"own headers",
		Wants: "401, or the request is refused as a whole",
	}, asBoth, toolKeyAttempts, oneTool),
	attemptsIn(Case{
		Group: 48, Name: "bridge/bodies",
		Tries: "send inputs, batches, bodies and heads that are too large, nested too deep, cut, with names twice, " +
			"with fields that a call has not",
		Wants: "each is refused, before it is read to its end",
	}, asBoth, toolBodyAttempts, oneTool),
	attempts(Case{
		Group: 48, Name: "bridge/without",
		Tries: "find the server from a container without tools, on every address of loopback",
		Wants: "nobody answers",
	}, asBoth, noToolsAttempts),
	Case{
		Group: 48, Name: "bridge/tokens", Inside: true,
		Tries: "use the token of a command of another container, and of one that has ended",
		Wants: "401",
		Run:   foreignTokens,
	},
	Case{
		Group: 48, Name: "bridge/approvals", Inside: true,
		Tries: "approve one call twenty times at once, use its approval for another call and for another input, " +
			"approve it from inside, and as another tenant",
		Wants: "one approval, one call made",
		Run:   replayedApprovals,
	},
	Case{
		Group: 48, Name: "bridge/slow", Inside: true,
		Tries: "open 2,000 connections that say nothing, half a request, half a body, or read no answer, and see " +
			"whether a neighbour is served",
		Wants: "the neighbour's calls and the daemon's answers are as quick as before",
		Run:   slowToolClients,
	},
)

// toolsAddr is where a container finds tools. toolName is the one tool on its list; no client serves it.
const (
	toolsAddr = "127.0.0.1:3129"
	toolName  = "allowed_tool"
)

func oneTool(context.Context, *Target) (proto.CreateContainer, error) {
	return proto.CreateContainer{CodeTools: proto.CodeTools{Allow: []proto.AllowedTool{{Name: toolName},
		{Name: "pay", Approval: proto.ApprovalReview}}}}, nil
}

// toolToken returns the token of the command that runs the probe.
func toolToken() string { return os.Getenv("BERTH_TOOLS_TOKEN") }

// tell sends a request to the server and returns the status and the body of its answer. Status 0 means that the
// connection was closed without an answer.
func tell(request string) (status int, body string, err error) {
	c, err := net.DialTimeout("tcp", toolsAddr, 5*time.Second)
	if err != nil {
		return 0, "", moot("there is no server: %v", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return 0, err.Error(), nil
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, string(data), nil
}

// posted returns a request with these calls and the command's token.
func posted(body string) string {
	return fmt.Sprintf("POST /v1/calls HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+
		"%s\r\nContent-Length: %d\r\n\r\n%s", toolToken(), len(body), body)
}

// heldOff converts an answer to the result of an attempt: any error is a refusal.
func heldOff(request string) error {
	status, body, err := tell(request)
	switch {
	case err != nil:
		return err
	case status == 0 || status >= 400:
		return fmt.Errorf("refused: %d", status)
	}
	return through("%d %.200s", status, body)
}

// toolNames are other spellings of the tool on the list, and names that are not on it.
var toolNames = []string{
	"Allowed_tool", "ALLOWED_TOOL", "allowed_tool ", " allowed_tool", "allowed_tool\x00", "allowed_tool\n",
	"allowed-tool", "allowed_tool/", "./allowed_tool", "../allowed_tool", "allowed_tool/../pay",
	"tools.allowed_tool", "tools", "tools.tools", "Tools", "ａllowed_tool", "аllowed_tool", "allowed_to\u200bol",
	"allowed_tool\u0301", "allowed\u005ftool2", "allowed_tool?", "allowed_tool#x", "allowed_tool;pay", "*", ".*",
	"allowed_too?", "",
	"__class__", "__getattr__", "constructor", "__proto__", "toString", "register", "approve", "serve", "call",
	"other_tool", "container.delete", "%61llowed_tool", strings.Repeat("a", 4000),
}

func toolNameAttempts() (all []attempt) {
	for _, name := range toolNames {
		all = append(all, attempt{fmt.Sprintf("%.40q", name), func() error {
			body, _ := json.Marshal(map[string]any{
				"calls": []any{map[string]any{"id": "1", "tool": name, "input": map[string]any{}}}})
			status, answer, err := tell(posted(string(body)))
			switch {
			case err != nil:
				return err
			case status == 0 || status >= 400:
				return fmt.Errorf("refused: %d", status)
			}
			for _, kind := range []string{"PermissionError", "ValueError"} {
				if strings.Contains(answer, `"type":"`+kind+`"`) {
					return errors.New("refused: " + kind)
				}
			}
			return through("%d %.200s", status, answer)
		}})
	}
	return all
}

func toolPathAttempts() (all []attempt) {
	const call = "call_0000000000000000000000"
	for _, line := range []string{
		"GET /", "GET /v1/tools/", "GET //v1/tools", "GET /v1/./tools", "GET /v1/containers/../tools",
		"GET /v1/tools?all=1", "GET /v1/tools#", "GET /v1%2ftools", "GET /V1/tools", "HEAD /v1/tools", "POST /v1/tools",
		"PUT /v1/tools", "DELETE /v1/tools",
		"GET /v1/calls", "OPTIONS /v1/calls", "OPTIONS *", "TRACE /v1/calls", "GET /v1/containers",
		"POST /v1/containers", "GET /v1/keys", "GET /v1/audit", "GET /metrics", "GET /healthz", "GET /v1/openapi.json",
		"GET /debug/pprof/",
		"POST /v1/calls/" + call + "/approve", "POST /v1/containers/x/tool_calls/" + call + "/approve",
		"POST /v1/tools/../containers/x/tool_calls/" + call + "/approve", "POST /v1/calls/..;/approve",
		"GET http://127.0.0.1/v1/keys", "GET http://127.0.0.1:3129/v1/tools", "GET https://example.com/v1/tools",
		"CONNECT 127.0.0.1:8080", "CONNECT /v1/tools", "PRI *", "GET /v1/containers/x/tools",
	} {
		all = append(all, attempt{line, func() error {
			return heldOff(line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer " +
				toolToken() + "\r\nContent-Length: 0\r\n\r\n")
		}})
	}
	all = append(all, attempt{"an upgrade", func() error {
		return heldOff("GET /v1/containers/x/tools HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " +
			"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
			"AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer " + toolToken() + "\r\n\r\n")
	}})
	return all
}

func toolKeyAttempts() (all []attempt) {
	token := toolToken()
	for what, header := range map[string]string{
		"nothing": "", "an empty one": "Authorization: Bearer \r\n", "basic": "Authorization: Basic " + token + "\r\n",
		"lower case": "Authorization: bearer " + token + "\r\n", "no scheme": "Authorization: " + token + "\r\n",
		"two":           "Authorization: Bearer " + token + "\r\nAuthorization: Bearer x\r\n",
		"two of it":     "Authorization: Bearer " + token + "\r\nAuthorization: Bearer " + token + "\r\n",
		"as an API key": "X-Api-Key: " + token + "\r\n",
		"a cookie":      "Cookie: token=" + token + "\r\n", "a list": "Authorization: Bearer " + token +
			", Bearer x\r\n",
		"cut": "Authorization: Bearer " + strings.TrimSuffix(token, token[max(0, len(token)-1):]) +
			"\r\n",
		"its command alone":  "Authorization: Bearer " + strings.Split(token+".", ".")[0] + "\r\n",
		"a container's name": "Authorization: Bearer root\r\n",
	} {
		all = append(all, attempt{what, func() error {
			return heldOff("GET /v1/tools HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + "\r\n")
		}})
	}
	return all
}

func toolBodyAttempts() (all []attempt) {
	add := func(what, request string) {
		all = append(all, attempt{what, func() error { return heldOff(request) }})
	}
	one := func(input string) string { return `{"calls":[{"id":"1","tool":"allowed_tool","input":` + input + `}]}` }
	batch := func(n int, input string) string {
		return `{"calls":[` + strings.Repeat(`{"id":"1","tool":"allowed_tool","input":`+input+`},`, n) +
			`{"id":"2","tool":"allowed_tool","input":{}}]}`
	}
	for what, body := range map[string]string{
		"an input of 2 MiB": one(`{"a":"` + strings.Repeat("x", 2<<20) + `"}`), "17 MiB": batch(
			17, `{"a":"`+strings.Repeat("x", 1<<20-64)+`"}`), "65 calls": batch(64, "{}"), "a deep input": one(
			strings.Repeat("[", 5000) + strings.Repeat("]", 5000)),
		"a name twice":           `{"calls":[{"id":"1","tool":"other","tool":"allowed_tool","input":{}}]}`,
		"calls twice":            `{"calls":[],"calls":[]}`,
		"another field":          `{"calls":[{"id":"1","tool":"allowed_tool","input":{},"container":"x"}]}`,
		"fields in another case": `{"Calls":[{"ID":"1","Tool":"allowed_tool"}]}`, "no JSON": "calls", "an array": "[]",
		"something behind it": `{"calls":[]}{"calls":[]}`,
		"no UTF-8":            "{\"calls\":[{\"id\":\"1\",\"tool\":\"\xff\",\"input\":{}}]}",
		"a long id":           `{"calls":[{"id":"` + strings.Repeat("1", 65) + `","tool":"allowed_tool","input":{}}]}`,
		"an id with a path":   `{"calls":[{"id":"../1","tool":"allowed_tool","input":{}}]}`,
	} {
		add(what, posted(body))
	}
	auth := "Authorization: Bearer " + toolToken() + "\r\n"
	add("a long head", "GET /v1/tools HTTP/1.1\r\nHost: x\r\n"+auth+"X: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	add("two lengths", "POST /v1/calls HTTP/1.1\r\nHost: x\r\n"+auth+"Content-Length: 12\r\nContent-Length: "+
		"13\r\n\r\n{\"calls\":[]}")
	add("a length and chunks of another", "POST /v1/calls HTTP/1.1\r\nHost: x\r\n"+auth+
		"Transfer-Encoding: identity\r\nContent-Length: 12\r\n\r\n{\"calls\":[]}")
	return all
}

func noToolsAttempts() (all []attempt) {
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "localhost"} {
		all = append(all, attempt{host, func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(host, "3129"), 3*time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err
		}})
	}
	return all
}

// tokenOf returns the token of a command that keeps running, or of one that has ended if over is true.
func (t *Target) tokenOf(ctx context.Context, container string, over bool) (string, error) {
	if over {
		return t.Output(ctx, container, "", `echo "$BERTH_TOOLS_TOKEN"`)
	}
	if _, err := t.Launch(ctx, container,
		proto.Cmd{
			Command: `umask 0; echo "$BERTH_TOOLS_TOKEN" >/workspace/.token; mv /workspace/.token /workspace/token; sleep 300`, Background: true}); err != nil {
		return "", err
	}
	return t.Output(ctx, container, "", "until [ -e /workspace/token ]; do sleep 0.05; done; cat /workspace/token")
}

// foreignTokens tries tokens of other containers, and tokens that are no longer valid.
func foreignTokens(ctx context.Context, t *Target) (string, error) {
	req, _ := oneTool(ctx, t)
	mine, err := t.Container(ctx, req)
	if err != nil {
		return "", err
	}
	other, err := t.Container(ctx, req)
	if err != nil {
		return "", err
	}
	live, err := t.tokenOf(ctx, other.ID, false)
	if err != nil {
		return "", err
	}
	dead, err := t.tokenOf(ctx, mine.ID, true)
	if err != nil {
		return "", err
	}
	const ask = `exec 3<>/dev/tcp/127.0.0.1/3129; printf 'GET /v1/tools HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n' >&3 TOKEN; head -1 <&3 | cut -d' ' -f2`
	for what, token := range map[string]string{"another container's": live, "an ended command's": dead} {
		if status, err := t.Output(ctx, mine.ID, "", strings.ReplaceAll(ask, "TOKEN", token)); err != nil ||
			status != "401" {
			return "", Breached("%s token was answered %s %v", what, status, err)
		}
	}
	if status, err := t.Output(ctx, other.ID, "", strings.ReplaceAll(ask, "TOKEN", live)); err != nil ||
		status != "200" {
		return "", fmt.Errorf("its own token is worth nothing either, so this shows nothing: %s %w", status,
			errors.Join(err))
	}
	return "both were refused, and the same token was good where it belongs", nil
}

// servePay serves the tool pay of a container from this program. It answers each call at once and sends its ID to
// made.
func (t *Target) servePay(ctx context.Context, container string, made chan<- string) (*websocket.Conn, error) {
	d := websocket.Dialer{HandshakeTimeout: 30 * time.Second, TLSClientConfig: rawTransport.TLSClientConfig}
	c, _, err := d.DialContext(ctx, "ws"+strings.TrimPrefix(strings.TrimRight(t.Host, "/"), "http")+"/v1/containers/"+
		container+"/tools", http.Header{"X-Api-Key": {t.Key}})
	if err != nil {
		return nil, err
	}
	type message struct {
		Type   string `json:"type"`
		CallID string `json:"call_id,omitempty"`
		Tools  any    `json:"tools,omitempty"`
		Result any    `json:"result,omitempty"`
	}
	if err := c.WriteJSON(message{Type: "serve", Tools: []any{map[string]any{"name": "pay"}}}); err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() {
		for {
			var m message
			err := c.ReadJSON(&m)
			if m.Type == "serving" || err != nil {
				select {
				case served <- err:
				default:
				}
			}
			if err != nil {
				return
			}
			if m.Type == "call" {
				made <- m.CallID
				_ = c.WriteJSON(message{Type: "result", CallID: m.CallID, Result: "paid"})
			}
		}
	}()
	return c, <-served
}

// parkedCalls waits until n calls wait for approval.
func (t *Target) parkedCalls(ctx context.Context, container string, n int) (ids []string, err error) {
	for {
		list, err := t.ToolCalls(ctx, container, client.CallFilter{State: "parked"})
		if err != nil || len(list) == n {
			for _, one := range list {
				ids = append(ids, one.ID)
			}
			return ids, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// payments makes two calls of pay, and repeats the second one with another input.
const payments = `ask() { body="{\"calls\":[{\"id\":\"$1\",\"tool\":\"pay\",\"input\":{\"to\":\"$2\"}}]}"; exec 3<>/dev/tcp/127.0.0.1/3129
printf 'POST /v1/calls HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s' "$BERTH_TOOLS_TOKEN" ${#body} "$body" >&3; grep -a '"id"' <&3; }
ask one me & sleep 0.2; ask two me & sleep 0.5; ask one you; wait`

// replayedApprovals approves one of two calls repeatedly, and expects that it is made once.
func replayedApprovals(ctx context.Context, t *Target) (string, error) {
	req, _ := oneTool(ctx, t)
	con, err := t.Container(ctx, req)
	if err != nil {
		return "", err
	}
	made := make(chan string, 100)
	socket, err := t.servePay(ctx, con.ID, made)
	if err != nil {
		return "", err
	}
	defer socket.Close()
	e, err := t.Launch(ctx, con.ID, proto.Cmd{Command: payments, Background: true})
	if err != nil {
		return "", err
	}
	ids, err := t.parkedCalls(ctx, con.ID, 2)
	if err != nil {
		return "", err
	}
	path := "/v1/containers/" + con.ID + "/tool_calls/" + ids[1] + "/approve"
	if n, err := t.Neighbour(ctx); err == nil {
		if a, err := n.ask(ctx, http.MethodPost, path, nil, nil); err != nil ||
			a.refused("another tenant's approval", proto.NotFound) != nil {
			return "", Breached("another tenant approved: %d %v", a.status, err)
		}
	}
	won, err := t.approveMany(ctx, path, 20)
	if err != nil || won != 1 {
		return "", Breached("%d of 20 approvals of one call were taken: %v", won, err)
	}
	if got := <-made; got != ids[1] {
		return "", Breached("the approval of %s had %s made", ids[1], got)
	}
	if left, err := t.parkedCalls(ctx, con.ID, 1); err != nil || left[0] != ids[0] {
		return "", Breached("the other call does not wait any more: %v %v", left, err)
	}
	if _, err := t.ask(ctx, http.MethodPost, "/v1/containers/"+con.ID+"/tool_calls/"+ids[0]+"/refuse", nil,
		nil); err != nil {
		return "", err
	}
	res, err := t.Wait(ctx, con.ID, e.ID)
	if err != nil {
		return "", err
	}
	if len(made) > 0 || res.Result.Result == nil || strings.Count(res.Result.Result.Stdout, "paid") != 1 {
		return "", Breached("more than one call was made: %+v", res.Result.Result)
	}
	return "one of 20 approvals was taken, one call was made", nil
}

func (t *Target) approveMany(ctx context.Context, path string, n int) (won int, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			a, one := t.ask(ctx, http.MethodPost, path, nil, bytes.NewReader(nil))
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, one); a.status == http.StatusOK {
				won++
			}
		})
	}
	wg.Wait()
	return won, err
}

// slowToolClients holds connections open and checks the effect on others.
func slowToolClients(ctx context.Context, t *Target) (string, error) {
	req, _ := oneTool(ctx, t)
	if err := t.besideSlow(ctx, req, "slow-callers", "quick-calls"); err != nil {
		return "", err
	}
	return "the neighbour's calls were answered, and so was the API", nil
}

var (
	// slow-callers opens connections and keeps them until it is killed.
	_ = addProbe("slow-callers", func([]string) (any, error) {
		head := "POST /v1/calls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + toolToken() +
			"\r\nContent-Length: 1000000\r\n\r\n"
		return holdOpen(toolsAddr, 2000, "", "GET /v1/tools HTTP/1.1\r\nX: ", head,
			head+`{"calls":[{"id":"1","tool":"allowed_tool","input":{"a":"`), nil
	})
	// quick-calls makes a call that is refused, ten times, and fails if one takes too long.
	_ = addProbe("quick-calls", func([]string) (any, error) {
		for range 10 {
			began := time.Now()
			status, body, err := tell(posted(`{"calls":[{"id":"1","tool":"other","input":{}}]}`))
			if took := time.Since(began); err != nil || status != http.StatusOK ||
				!strings.Contains(body, "PermissionError") || took > 5*time.Second {
				return nil, fmt.Errorf("after %s: %d %s %w", took, status, body, err)
			}
		}
		return "quick", nil
	})
)
