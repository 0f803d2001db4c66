package attack_test

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"berth/client"
	"berth/proto"
)

// logLine is what each line of the daemon's log begins with; what an attacker wrote must not begin one.
var logLine = regexp.MustCompile(`^(time=\S+ level=(DEBUG|INFO|WARN|ERROR) msg=|berth: )`)

// What clients send does not forge lines of the daemon's log, reaches no terminal that shows it as an escape, and
// secrets are not in it. The daemon is the one of the other tests, so the log is as mixed as an operator's.
func TestLogsStayWhole(t *testing.T) {
	const secret = "s3cr3t-of-the-log-test"
	forged := "x\nlevel=ERROR msg=forged\r\n\x1b[31mred\x07{\"level\":\"ERROR\"}\u202e\u2028"
	c, err := client.New(client.Config{Host: target.URL, Key: target.Key})
	if err != nil {
		t.Fatal(err)
	}
	con, err := c.Create(t.Context(), proto.CreateContainer{Labels: map[string]string{"log": "plain"},
		Env: map[string]string{"TOKEN": secret}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Delete(t.Context(), con.ID, false)
	e, err := c.Launch(t.Context(), con.ID, proto.Cmd{Command: "echo " + secret + " '" + forged + "'",
		Env: map[string]string{"PASSWORD": secret}, Stdin: secret})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context(), con.ID, e.ID); err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer("\n", "%0a", "\r", "%0d", "\x1b", "%1b", "\x07", "%07", " ", "%20", "\"",
		"%22").Replace(forged)
	for _, path := range []string{"/v1/" + escaped, "/v1/containers/" + escaped, "/v1/containers?" + escaped + "=" +
		secret, "/v1/containers/" + con.ID + "/fs/stat?path=" + escaped, "/v1/info?key=" + secret} {
		req := "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: " + target.Key +
			"\r\nUser-Agent: \x1b[2Jforged\tlevel=ERROR\r\nReferer: " + secret + "\r\nX-Request-Id: forged-" + secret +
			"\r\n\r\n"
		if answer := exchange(t, req); !strings.HasPrefix(answer, "HTTP/1.1 4") {
			t.Errorf("%.60q: %.200s", path, answer)
		}
	}
	for _, body := range []string{`{"` + secret + `":1}`, "\x1b[31m", `{"image":"x\nlevel=ERROR msg=forged"}`,
		`{"labels":{"a\u001b[31m":"b"}}`} {
		if status, answer, err := target.Do("POST", "/v1/containers", strings.NewReader(body)); err != nil ||
			status < 400 || status >= 500 {
			t.Errorf("%.60q: %d %s %v", body, status, answer, err)
		}
	}
	// A request that is no HTTP is the server's own to log, in words that are not ours.
	exchange(t, "GET /\x1b[31m\x00 HTTP/1.1\r\n\x1b]0;forged\x07: x\r\n\r\n")
	if status, _, err := target.Do("GET", "/v1/info", nil); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}

	log := target.Log()
	if !strings.Contains(log, "msg=request") {
		t.Fatal("the log has no requests")
	}
	for line := range strings.SplitSeq(strings.TrimSpace(log), "\n") {
		if !logLine.MatchString(line) {
			t.Errorf("a line that the daemon did not begin: %.200q", line)
		}
		if strings.ContainsAny(line, "\x1b\x07\x00\r\u202e\u2028") {
			t.Errorf("control characters came through: %.200q", line)
		}
	}
	for _, word := range []string{secret, target.Key} {
		if i := strings.Index(log, word); i >= 0 {
			t.Errorf("a secret is in the log: %q", log[max(0, i-200):i])
		}
	}
}

// exchange sends bytes as they are and returns what comes back.
func exchange(t *testing.T, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(target.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Logf("after %d bytes: %v", len(answer), err)
	}
	return string(answer)
}
