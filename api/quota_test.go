package api_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// refused fails the test unless an answer is a 429 that says when to come back, and returns after how many seconds.
func refused(t *testing.T, res *http.Response, text string) int {
	t.Helper()
	n, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if res.StatusCode != http.StatusTooManyRequests || err != nil || n < 1 {
		t.Fatalf("%d %v, Retry-After %q", res.StatusCode, text, res.Header.Get("Retry-After"))
	}
	return n
}

// change sets bounds of a guest's key.
func (g guest) change(t *testing.T, c proto.QuotaChange) {
	t.Helper()
	if _, err := g.h.Keys.Change(g.id, proto.ChangeKey{Quota: &c}); err != nil {
		t.Fatal(err)
	}
}

func TestSessionQuota(t *testing.T) {
	h := newHouse(t, session.Config{})
	g, other := h.guest(t, proto.CreateKey{Owner: "ann", Quota: proto.Quota{Sessions: 2}}),
		h.guest(t, proto.CreateKey{Owner: "ann"})
	do[proto.Container](t, g, "POST", "/v1/containers", "")
	do[proto.Container](t, g, "POST", "/v1/containers", "")
	for _, path := range []string{"/v1/containers", "/v1/exec", "/v1/tool_use"} {
		body := map[string]string{"/v1/exec": `{"command": "true"}`, "/v1/tool_use": bodies["useTool"]}[path]
		res, text := g.send(t, "POST", path, body)
		if n := refused(t, res, text); n != 60 || !strings.Contains(text, `"retry_after_seconds":60`) {
			t.Errorf("%s: after %d s: %s", path, n, text)
		}
	}
	do[proto.Container](t, other, "POST", "/v1/containers", "") // another key of the same owner has its own
	if u := do[proto.KeyStatus](t, g, "GET", "/v1/keys/self", nil).Usage; u.Sessions != 2 {
		t.Errorf("usage: %+v", u)
	}
	h.Reopen(t)
	if n := h.Sessions.KeySessions(g.id); n != 2 {
		t.Errorf("after a restart: %d", n)
	}
}

// A place that is given back can be taken again; a bound below what there is refuses more and ends nothing.
func TestSessionQuotaMoves(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Quota: proto.Quota{Sessions: 3}})
	var ids []string
	for range 3 {
		ids = append(ids, do[proto.Container](t, g, "POST", "/v1/containers", "").ID)
	}
	one := int64(1)
	g.change(t, proto.QuotaChange{Sessions: &one})
	for _, id := range ids {
		if c := do[proto.Container](t, g, "GET", "/v1/containers/"+id, nil); c.State != proto.StateRunning {
			t.Errorf("%+v", c)
		}
		res, text := g.send(t, "POST", "/v1/containers", "")
		refused(t, res, text)
		do[any](t, g, "DELETE", "/v1/containers/"+id, nil)
	}
	do[proto.Container](t, g, "POST", "/v1/containers", `{"max_lifetime_seconds": 30}`)
	res, text := g.send(t, "POST", "/v1/containers", "")
	if n := refused(t, res, text); n > 30 { // when the first one expires
		t.Errorf("after %d s", n)
	}
	none := int64(0)
	g.change(t, proto.QuotaChange{Sessions: &none})
	do[proto.Container](t, g, "POST", "/v1/containers", "")
}

// However many ask at once, none gets a place that is not there.
func TestSessionQuotaUnderCrowd(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Quota: proto.Quota{Sessions: 4}})
	statuses := make(chan int, 16)
	var wg sync.WaitGroup
	for range cap(statuses) {
		wg.Go(func() {
			res, _ := g.send(t, "POST", "/v1/containers", "")
			statuses <- res.StatusCode
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	if count[http.StatusCreated] != 4 || count[http.StatusTooManyRequests] != 12 {
		t.Errorf("%v", count)
	}
}

func TestDaemonsOwnBounds(t *testing.T) {
	h := newHouse(t, session.Config{MaxSessions: 1, MaxExecs: 1})
	g := h.guest(t, proto.CreateKey{})
	at := "/v1/containers/" + do[proto.Container](t, g, "POST", "/v1/containers", `{"max_lifetime_seconds": 3600}`).ID
	res, text := g.send(t, "POST", "/v1/containers", "")
	if n := refused(t, res, text); n != 60 {
		t.Errorf("containers: after %d s", n)
	}
	do[proto.Exec](t, g, "POST", at+"/exec", `{"command": "sleep 1000", "background": true}`)
	res, text = g.send(t, "POST", at+"/exec", `{"command": "true"}`)
	refused(t, res, text)
}

func TestStorageQuota(t *testing.T) {
	h := newHouse(t, session.Config{})
	g, other := h.guest(t, proto.CreateKey{Owner: "ann", Quota: proto.Quota{StorageBytes: 1000}}),
		h.guest(t, proto.CreateKey{Owner: "ann"})
	stored := do[struct{ ID string }](t, g, "POST", "/v1/files", fileForm(t, 600)).ID
	over := func(n int, what string) {
		t.Helper()
		res, text := g.send(t, "POST", "/v1/files", fileForm(t, n))
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(text, "storage_quota_exceeded") ||
			!strings.Contains(text, "1000 bytes of this API key") {
			t.Errorf("%s: %d %s", what, res.StatusCode, text)
		}
	}
	over(401, "one byte too many")
	do[any](t, g, "POST", "/v1/files", fileForm(t, 400)) // to the last byte
	over(1, "full")
	do[any](t, other, "POST", "/v1/files", fileForm(t, 5000))
	// What its commands produce counts too, and a command is not failed for it.
	x := do[proto.ExecResult](t, g, "POST", "/v1/exec", `{"command": "echo 12345 > $OUTPUT_DIR/out.txt"}`)
	if x.Result.Result == nil || len(x.Result.Result.Content) != 0 || !strings.Contains(fmt.Sprint(x.Notes), "quota") {
		t.Errorf("outputs over quota: %+v %v", x.Result, x.Notes)
	}
	if u := do[proto.KeyStatus](t, g, "GET", "/v1/keys/self", nil).Usage; u.StorageBytes != 1000 {
		t.Errorf("usage: %+v", u)
	}
	do[any](t, other, "DELETE", "/v1/files/"+stored, nil) // by any key of the owner
	at := "/v1/containers/" + x.Container.ID
	y := do[proto.ExecResult](t, g, "POST", at+"/exec", `{"command": "echo 12345 > $OUTPUT_DIR/out.txt"}`)
	if y.Result.Result == nil || len(y.Result.Result.Content) != 1 {
		t.Errorf("with room again: %+v %v", y.Result, y.Notes)
	}
	if u := h.Files.KeyUsage(g.id); u != 406 {
		t.Errorf("%d bytes", u)
	}
	small := int64(10)
	g.change(t, proto.QuotaChange{StorageBytes: &small})
	if res, _ := g.send(t, "POST", "/v1/files", fileForm(t, 1)); res.StatusCode != http.StatusBadRequest {
		t.Errorf("lowered below use: %d", res.StatusCode)
	}
	h.Reopen(t)
	if u := h.Files.KeyUsage(g.id); u != 406 {
		t.Errorf("after a restart: %d bytes", u)
	}
}

// Parallel uploads cannot pass the bound together.
func TestStorageQuotaUnderCrowd(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Quota: proto.Quota{StorageBytes: 1000}})
	f := fileForm(t, 300)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() { g.send(t, "POST", "/v1/files", f) })
	}
	wg.Wait()
	if u := h.Files.KeyUsage(g.id); u != 900 {
		t.Errorf("%d bytes", u)
	}
}

const burn = `{"command": "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done"}`

func TestCPUQuota(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Owner: "ann", Quota: proto.Quota{CPUSecondsPerDay: 0.05}})
	other := h.guest(t, proto.CreateKey{Owner: "ann"})
	at := "/v1/containers/" + do[proto.Container](t, g, "POST", "/v1/containers", "").ID
	do[proto.ExecResult](t, other, "POST", at+"/exec", burn) // who starts it pays, not whose container it is
	do[proto.ExecResult](t, g, "POST", at+"/exec", burn)
	spent := do[proto.KeyStatus](t, g, "GET", "/v1/keys/self", nil).Usage.CPUSecondsToday
	if spent < 0.05 {
		t.Fatalf("%v CPU seconds were charged", spent)
	}
	do[proto.Container](t, g, "POST", at+"/stop", "")
	for _, r := range []struct{ path, body string }{{at + "/exec", `{"command": "true"}`},
		{at + "/exec", `{"command": "true", "shell": "main"}`}} {
		res, text := g.send(t, "POST", r.path, r.body)
		midnight := time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)).Seconds()
		if n := refused(t, res, text); float64(n) < midnight-5 || float64(n) > midnight+5 ||
			res.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("after %d s; midnight is in %v: %v", n, midnight, res.Header)
		}
	}
	if c := do[proto.Container](t, g, "GET", at, nil); c.State != proto.StateStopped {
		t.Errorf("a refused command started the container: %s", c.State)
	}
	do[proto.ExecResult](t, other, "POST", at+"/exec", `{"command": "true"}`)
	h.Reopen(t)
	if got := h.Keys.CPUSeconds(g.id); got != spent {
		t.Errorf("after a restart: %v, not %v", got, spent)
	}
	if err := h.Keys.MayRun(g.id); proto.CodeOf(err) != proto.TooMany {
		t.Errorf("after a restart: %v", err)
	}
}

// A guest says how much CPU time a command took, and is not trusted to.
func TestChargesAreBounded(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{})
	x := do[proto.ExecResult](t, g, "POST", "/v1/exec", strings.TrimSuffix(strings.Replace(burn, "40000", "150000", 1),
		"}")+`, "create": {"limits": {"cpus": 0.01}}}`)
	said, most := x.Exec.End.CPUSeconds, 0.01*x.Exec.Duration(time.Time{}).Seconds()+0.1
	if said <= most {
		t.Fatalf("the guest, which heeds no limit here, reports %v CPU seconds; the test needs more than %v", said,
			most)
	}
	if got := h.Keys.CPUSeconds(g.id); got <= 0 || got > most+1e-6 {
		t.Errorf("charged %v for a command that reports %v; a hundredth of a CPU gives %v", got, said, most)
	}
}

// Both dialects say how long to wait.
func TestRateQuota(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Quota: proto.Quota{RequestsPerSecond: 0.01, Burst: 2}})
	for range 2 {
		do[any](t, g, "GET", "/v1/info", nil)
	}
	for path, word := range map[string]string{"/v1/info": `"code":"too_many_requests"`,
		"/v1/files": `"type":"rate_limit_error"`, "/v1/containers/container_none": "too_many"} {
		res, text := g.send(t, "GET", path, nil)
		if n := refused(t, res, text); n < 60 || n > 100 || !strings.Contains(text, word) {
			t.Errorf("%s: after %d s: %s", path, n, text)
		}
	}
	if res, _ := g.send(t, "GET", "/healthz", nil); res.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %d", res.StatusCode)
	}
	if res, _ := (guest{h: h, secret: sessiontest.Secret}).send(t, "GET", "/v1/info",
		nil); res.StatusCode != http.StatusOK {
		t.Errorf("another key: %d", res.StatusCode)
	}
}

// A command that outlives the daemon is paid for by who started it, too.
func TestCPUOfCommandsThatOutliveTheDaemon(t *testing.T) {
	h := newHouse(t, session.Config{})
	g := h.guest(t, proto.CreateKey{Owner: "ann"})
	id := do[proto.Container](t, g, "POST", "/v1/containers", "").ID
	x := do[proto.Exec](t, g, "POST", "/v1/containers/"+id+"/exec", `{"background": true,
		"command": "until [ -e /workspace/go ]; do sleep 0.05; done; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done"}`)
	h.Reopen(t)
	s, err := h.Sessions.Get("ann", id)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.FindExec(x.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteFile(t.Context(), proto.UserDefault, "/workspace/go", session.WriteOptions{}, strings.NewReader(
		"")); err != nil {
		t.Fatal(err)
	}
	res, err := again.Wait(t.Context())
	if err != nil || res.Exec.End.Reason != proto.EndExit {
		t.Fatalf("%+v %v", res.Exec.End, err)
	}
	if got := h.Keys.CPUSeconds(g.id); got < 0.01 || got != res.Exec.End.CPUSeconds {
		t.Errorf("charged %v of %v CPU seconds", got, res.Exec.End.CPUSeconds)
	}
}
