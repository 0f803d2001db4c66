package attack

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"berth/proto"
)

// Ports of containers lead from outside into a container, past the API. What is behind them is code that a model wrote,
// and it must not get more than a request; neither may those who only know an ID.
var _ = register(
	// Behind the daemon's own ports in a container are its network with its secrets, and tools.
	Case{
		Group: 36, Name: "ports/own",
		Tries: "reach the egress proxy and the tools of a container from outside: by path, tunnel, host name and the " +
			"headers of E2B's SDKs, with odd spellings, and by making them public",
		Wants: "each is refused, and nothing is made public",
		Run:   ownPorts,
	},
	Case{
		Group: 41, Name: "ports/keys",
		Tries: "have the daemon hand a credential to the application in a container: an API key in each of its " +
			"places and spellings, a signed URL, its cookie, the headers of E2B's SDKs",
		Wants: "the application gets the request, and none of them",
		Run:   keysAtPorts,
	},
	Case{
		Group: 35, Name: "ports/tenants",
		Tries: "use, list, sign for, publish and withdraw a port of another tenant's container, by path, host name, " +
			"header, and with credentials for a port of one's own",
		Wants: "each is refused, and the application gets no request",
		Run:   foreignPorts,
	},
)

// echoPort is where echoServer listens.
const echoPort = "8000"

// echoServer answers each request with its head, after a mark.
const echoServer = `
import http.server
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = repr(("echo", self.path, self.headers.items())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), App)
print("listening", flush=True)
server.serve_forever()`

// echoMark begins each answer of the application.
const echoMark = "('echo', "

// echo makes a container with the application and returns the host name of its port; "" if the daemon has no domain.
func (t *Target) echo(ctx context.Context, req proto.CreateContainer) (con proto.Container, host string, err error) {
	if con, err = t.Container(ctx, req); err != nil {
		return con, "", err
	}
	e, err := t.Launch(ctx, con.ID, proto.Cmd{Argv: []string{"python3", "-c", echoServer}, TimeoutSeconds: 600})
	if err != nil {
		return con, "", err
	}
	if _, err := t.firstLine(ctx, con.ID, e.ID); err != nil {
		return con, "", err
	}
	list, err := t.Ports(ctx, con.ID)
	if err != nil {
		return con, "", err
	}
	for _, p := range list {
		if u, err := url.Parse(p.URL); err == nil && fmt.Sprint(p.Port) == echoPort {
			host = u.Host
		}
	}
	return con, host, nil
}

// visit makes a request with nothing but these headers, pairs of name and value. host "" is the daemon's own.
func (t *Target) visit(ctx context.Context, method, host, path string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(t.Host, "/")+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := rawTransport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return answer{res.StatusCode, res.Header, data, err != nil}, nil
}

// A doorway is one request to a port.
type doorway struct {
	method, host, path string
	header             []string
}

// closed returns a Breach unless each doorway is refused.
func (t *Target) closed(ctx context.Context, all []doorway) error {
	for _, d := range all {
		got, err := t.visit(ctx, d.method, d.host, d.path, d.header...)
		if err != nil {
			return err
		}
		if got.status < 400 || got.status == http.StatusInternalServerError ||
			strings.Contains(string(got.body), echoMark) {
			return Breached("%s %s %s %v was answered %d %.200s", d.method, d.host, d.path, d.header, got.status,
				got.body)
		}
	}
	return nil
}

// withPort returns the host name of another port of the same container; "" without a domain.
func withPort(host, port string) string {
	if _, rest, ok := strings.Cut(host, "-"); ok {
		return port + "-" + rest
	}
	return ""
}

// sandboxHeaders are those of E2B's SDKs for a port of a container.
func sandboxHeaders(container, port string) []string {
	return []string{"E2b-Sandbox-Id", proto.HostID(container), "E2b-Sandbox-Port", port}
}

func ownPorts(ctx context.Context, t *Target) (string, error) {
	req, err := oneTool(ctx, t)
	if err != nil {
		return "", err
	}
	con, host, err := t.echo(ctx, req)
	if err != nil {
		return "", err
	}
	at, key := "/v1/containers/"+con.ID, []string{"X-Api-Key", t.Key}
	var all []doorway
	for _, port := range []string{"3129", "3128", "03129", "+3129", "3129%20", "%33129", "68665", "3129.0"} {
		all = append(all, doorway{"GET", "", at + "/ports/" + port + "/v1/calls", key},
			doorway{"POST", "", at + "/ports/" + port + "/v1/calls", key},
			doorway{"GET", "", at + "/tunnel?port=" + port, key},
			doorway{"POST", "", at + "/ports/" + port + "/url", key},
			doorway{"PUT", "", at + "/public-ports/" + port, key})
		if strings.ContainsAny(port, "+%") {
			continue // no host name and no header has these
		}
		all = append(all, doorway{"GET", "", "/v1/calls", append(sandboxHeaders(con.ID, port), key...)})
		if host != "" {
			all = append(all, doorway{"GET", withPort(host, port), "/v1/calls", key})
		}
	}
	if err := t.closed(ctx, all); err != nil {
		return "", err
	}
	now, err := t.Client.Container(ctx, con.ID)
	if err != nil {
		return "", err
	}
	if !now.PublicPorts.IsZero() {
		return "", Breached("public are %s", now.PublicPorts)
	}
	return fmt.Sprintf("%d ways were refused", len(all)), nil
}

func keysAtPorts(ctx context.Context, t *Target) (string, error) {
	con, host, err := t.echo(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	spelled := "e2b_" + hex.EncodeToString([]byte(t.Key))
	at := "/v1/containers/" + con.ID + "/ports/" + echoPort + "/x"
	secrets := []string{t.Key, spelled}
	all := []doorway{}
	for _, key := range []string{t.Key, spelled} {
		for _, header := range [][]string{{"X-Api-Key", t.Key, "Authorization", "Bearer " + key},
			{"Authorization", "Bearer " + t.Key, "X-Api-Key", key},
			{"X-Api-Key", t.Key, "Authorization", "bearer  " + key},
			{"X-Api-Key", t.Key, "Sec-Websocket-Protocol", "mine, berth.key." + key}} {
			all = append(all, doorway{"GET", "", at, header})
			if host != "" {
				all = append(all, doorway{"GET", host, "/x", header})
			}
		}
	}
	if host != "" {
		made, err := t.SignPort(ctx, con.ID, 8000, 0)
		if err != nil && proto.CodeOf(err) != proto.PermissionDenied {
			return "", err
		}
		if _, token, ok := strings.Cut(made.URL, "berth_token="); ok {
			secrets = append(secrets, token)
			all = append(all, doorway{"POST", host, "/x?a=1&berth_token=" + token, nil},
				doorway{"POST", host, "/x?berth%5ftoken=" + token + "&berth_token=" + token, nil},
				doorway{"GET", host, "/x", []string{"Cookie", "a=1; berth-port=" + token + "; __Host-berth-port=" +
					token, "Referer", "http://" + host + "/?berth_token=" + token}},
				doorway{"GET", host, "/x?berth_token=" + token, []string{"X-Api-Key", t.Key, "E2b-Traffic-Access-Token",
					token}})
		}
	}
	reached := 0
	for _, d := range all {
		got, err := t.visit(ctx, d.method, d.host, d.path, d.header...)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(got.body), echoMark) {
			reached++
		}
		for _, s := range secrets {
			if strings.Contains(string(got.body), s) {
				return "", Breached("with %s %s %v, the application gets a credential: %.500s", d.method, d.path,
					d.header, got.body)
			}
		}
	}
	if reached == 0 {
		return "", fmt.Errorf("no request of %d reached the application", len(all))
	}
	return fmt.Sprintf("%d of %d requests reached the application, without a credential", reached, len(all)), nil
}

func foreignPorts(ctx context.Context, t *Target) (string, error) {
	neighbour, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	victim, host, err := neighbour.echo(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	own, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	at, key := "/v1/containers/"+victim.ID, []string{"X-Api-Key", t.Key}
	all := []doorway{{"GET", "", at + "/ports", key}, {"GET", "", at + "/ports/" + echoPort + "/", key},
		{"GET", "", at + "/tunnel?port=" + echoPort, key}, {"POST", "", at + "/ports/" + echoPort + "/url", key},
		{"PUT", "", at + "/public-ports/" + echoPort, key}, {"PUT", "", at + "/public-ports/all", key},
		{"DELETE", "", at + "/public-ports/" + echoPort, key}, {"GET", "", at + "/ports/" + echoPort + "/", nil},
		{"GET", "", "/v1/containers/" + own.ID + "/ports/../../" + victim.ID + "/ports/" + echoPort + "/", key},
		{"GET", "", "/x", sandboxHeaders(victim.ID, echoPort)},
		{"GET", "", "/x", append(sandboxHeaders(victim.ID, echoPort), key...)},
		{"GET", "", "/x", append(sandboxHeaders(victim.ID, echoPort), "E2b-Traffic-Access-Token", t.Key)}}
	if host != "" {
		all = append(all, doorway{"GET", host, "/", key}, doorway{"GET", host, "/", nil},
			doorway{"GET", strings.ToUpper(host), "/", key},
			doorway{"GET", host, "/", sandboxHeaders(own.ID, echoPort)},
			doorway{"GET", host, "/", append(sandboxHeaders(victim.ID, echoPort), key...)})
		// A signed URL for the same port of a container of one's own.
		made, err := t.SignPort(ctx, own.ID, 8000, 0)
		if err != nil && proto.CodeOf(err) != proto.PermissionDenied {
			return "", err
		}
		if _, token, ok := strings.Cut(made.URL, "berth_token="); ok {
			all = append(all, doorway{"POST", host, "/?berth_token=" + token, nil},
				doorway{"GET", host, "/?berth_token=" + token, nil},
				doorway{"GET", host, "/", []string{"Cookie", "berth-port=" + token + "; __Host-berth-port=" + token}})
		}
	}
	if err := t.closed(ctx, all); err != nil {
		return "", err
	}
	now, err := neighbour.Client.Container(ctx, victim.ID)
	if err != nil {
		return "", err
	}
	if !now.PublicPorts.IsZero() {
		return "", Breached("another tenant made %s public", now.PublicPorts)
	}
	return fmt.Sprintf("%d ways were refused", len(all)), nil
}
