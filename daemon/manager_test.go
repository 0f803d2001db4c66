package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/test/daemontest"
)

// A serviceManager receives what a daemon says by sd_notify(3).
type serviceManager struct {
	t    *testing.T
	conn *net.UnixConn
}

// manage makes the daemons of this test believe that a service manager has started them.
func manage(t *testing.T, watchdog time.Duration) *serviceManager {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	return &serviceManager{t, conn}
}

// await returns the messages up to the first that begins with first.
func (m *serviceManager) await(first string) (seen []string) {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatalf("waiting for %s: %v; there were %q", first, err, seen)
		}
		if seen = append(seen, string(buf[:n])); strings.HasPrefix(seen[len(seen)-1], first) {
			return seen
		}
	}
}

// TestServiceManagerAndReload runs a daemon as systemd does: it waits for READY=1, reloads by SIGHUP, and stops it.
func TestServiceManagerAndReload(t *testing.T) {
	m := manage(t, 2*time.Second)
	file := filepath.Join(t.TempDir(), "berth.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("warm-max = 0\nmax-execs = 7\nidle-timeout = '7m'\n")
	d := &server{bare(t, "--config", file)}

	seen := m.await("READY=1")
	if status, _, err := d.Do("GET", "/v1/info", nil); err != nil || status != 200 {
		t.Errorf("ready, and a request gets %d, %v", status, err)
	}
	if all := strings.Join(seen, "|"); !strings.Contains(all, "STATUS=taking over the containers|") ||
		!strings.HasSuffix(all, "READY=1\nSTATUS=serving at "+d.URL) {
		t.Errorf("it said %q", seen)
	}
	for range 2 { // one sign in each half of the time
		m.await("WATCHDOG=1")
	}
	if info := call[struct {
		Idle int `json:"idle_timeout_seconds"`
	}](t, d, 200, "GET", "/v1/info", ""); info.Idle != 7*60 {
		t.Errorf("%+v", info)
	}

	reload := func() {
		t.Helper()
		if err := syscall.Kill(d.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		seen := m.await("RELOADING=1")
		var at int64
		_, err := fmt.Sscanf(seen[len(seen)-1], "RELOADING=1\nMONOTONIC_USEC=%d", &at)
		var now unix.Timespec
		if terr := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); terr != nil || err != nil ||
			time.Duration(now.Nano()-at*1000).Abs() > time.Minute {
			t.Errorf("%q: %v, %v", seen[len(seen)-1], err, terr)
		}
		m.await("READY=1")
	}
	if got := upload(t, d, 2000); got != 200 {
		t.Fatalf("without a quota a file gets %d", got)
	}
	write("warm-max = 0\nfile-quota-bytes = 1000\nmax-execs = 8\nidle-timeout = '7m'\n")
	if shown := shownConfig(t, d); shown["file-quota-bytes"] != "0 reload 1000" ||
		shown["max-execs"] != "7 restart 8" || shown["exec-timeout"] != `"5m"  ` ||
		shown["idle-timeout"] != `"7m0s"  ` {
		t.Errorf("before the reload: %q", shown)
	}
	reload()
	if got := upload(t, d, 2000); got != 400 {
		t.Errorf("with a quota of 1000 bytes, 2000 get %d", got)
	}
	if shown := shownConfig(t, d); shown["file-quota-bytes"] != "1000  " || shown["max-execs"] != "7 restart 8" {
		t.Errorf("after the reload: %q", shown)
	}
	if !strings.Contains(d.Log(), `keep their old values until then" settings=max-execs`) {
		t.Error("the log does not name what needs a restart")
	}

	// Another key of an upstream is in the same file.
	keyFile := filepath.Join(t.TempDir(), "keys")
	asked := make(chan string, 1)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("X-Api-Key")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],`+
			`"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`)
	}))
	t.Cleanup(model.Close)
	const ask = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`
	call[any](t, d, 404, "POST", "/v1/messages", ask)
	kept := "warm-max = 0\nfile-quota-bytes = 1000\nmax-execs = 8\nidle-timeout = '7m'\n"
	write(kept + "upstream = ['" + model.URL + "']\nupstream-keys = '" + keyFile + "'\n")
	for _, key := range []string{"first-key", "second-key"} {
		if err := os.WriteFile(keyFile, []byte("*="+key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		reload()
		call[any](t, d, 200, "POST", "/v1/messages", ask)
		if got := <-asked; got != key {
			t.Errorf("the upstream got the key %q, not %q", got, key)
		}
	}
	if err := os.Chmod(keyFile, 0o644); err != nil {
		t.Fatal(err)
	}
	write("file-quota-bytes = 5000\nupstream = ['" + model.URL + "']\nupstream-keys = '" + keyFile + "'\n")
	reload()
	if got := upload(t, d, 2000); got != 400 {
		t.Errorf("what came with an open file of keys was applied: %d", got)
	}
	call[any](t, d, 200, "POST", "/v1/messages", ask)
	if got := <-asked; got != "second-key" {
		t.Errorf("after a failed reload the upstream got the key %q", got)
	}

	write("file-quota-bytes = 0\nmax-exec = 9\nwarm-max = \"many\"\n")
	reload()
	if got := upload(t, d, 2000); got != 400 {
		t.Errorf("a file with faults was applied: %d", got)
	}
	for _, want := range []string{":2: max-exec: there is no such setting; did you mean max-execs?", ":3: warm-max: "} {
		if !strings.Contains(d.Log(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}

	d.Stop(syscall.SIGTERM)
	m.await("STOPPING=1")
	if _, err := os.Stat(filepath.Join(d.Dir, "config.json")); !os.IsNotExist(err) {
		t.Errorf("the ended daemon has left its settings: %v", err)
	}
}

// upload stores a file of a size, and returns the status of the answer.
func upload(t *testing.T, d *server, size int) int {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "x.bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("POST", d.URL+"/v1/files", &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", d.Key)
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("anthropic-beta", "files-api-2025-04-14")
	req.Header.Set("Content-Type", form.FormDataContentType())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// shownConfig returns what `berth config show` says about each setting: the value, and what the file has.
func shownConfig(t *testing.T, d *server) map[string]string {
	t.Helper()
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, "config", "show", "--json", "--data", d.Dir).Output()
	var list []struct{ Key, Value, Needs, Next string }
	if err != nil || json.Unmarshal(out, &list) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shown := make(map[string]string)
	for _, s := range list {
		shown[s.Key] = s.Value + " " + s.Needs + " " + s.Next
	}
	return shown
}
