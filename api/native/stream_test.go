package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/state/audit"
	"berth/test/sessiontest"
)

// An sse is one event as it came.
type sse struct {
	id, name string
	proto.Event
}

// events reads server-sent events until the stream ends.
func sseEvents(t *testing.T, r io.Reader) (list []sse) {
	t.Helper()
	next := eventReader(t, r)
	for {
		ev, ok := next()
		if !ok {
			return list
		}
		list = append(list, ev)
	}
}

// eventReader reads them one by one.
func eventReader(t *testing.T, r io.Reader) func() (sse, bool) {
	lines := bufio.NewReader(r)
	return func() (ev sse, ok bool) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return ev, false
			}
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch key {
			case "id":
				ev.id = value
			case "event":
				ev.name = value
			case "data":
				if err := json.Unmarshal([]byte(value), &ev.Event); err != nil {
					t.Fatalf("%v in %s", err, value)
				}
			case "":
				if ev.name != string(ev.Type) {
					t.Fatalf("event %q holds %q", ev.name, ev.Type)
				}
				return ev, true
			}
		}
	}
}

// output puts the events of a stream together and checks that offsets leave no hole but gaps.
func output(t *testing.T, list []sse, stream string, from int64) (text string, gaps int64) {
	t.Helper()
	at := from
	for _, ev := range list {
		switch {
		case ev.Type == proto.EventGap && ev.Stream == stream:
			if ev.Offset != at {
				t.Fatalf("gap at %d, expected %d", ev.Offset, at)
			}
			gaps += ev.Until - ev.Offset
			at = ev.Until
		case string(ev.Type) == stream:
			if ev.Offset != at {
				t.Fatalf("%s at %d, expected %d", stream, ev.Offset, at)
			}
			piece := ev.Data + string(ev.DataBase64)
			text += piece
			at += int64(len(piece))
		}
	}
	return text, gaps
}

func TestEventsOfACommand(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	res, body := s.do(t, "POST", at+"/exec", `{"command":"echo one; echo two >&2; printf '\\xff'; exit 4"}`, "Accept",
		"application/json;q=0.1, text/event-stream")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != eventType {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	list := sseEvents(t, strings.NewReader(body))
	first, last := list[0], list[len(list)-1]
	if first.Type != proto.EventStart || first.Exec == nil || first.id != "0-0" || last.Type != proto.EventExit ||
		last.id != "5-4-end" {
		t.Fatalf("%s", body)
	}
	if text, _ := output(t, list, "stdout", 0); text != "one\n\xff" {
		t.Errorf("stdout %q", text)
	}
	if text, _ := output(t, list, "stderr", 0); text != "two\n" {
		t.Errorf("stderr %q", text)
	}
	typed := must[proto.ExecResult](t, s, "GET", at+"/execs/"+first.ExecID+"/result", nil)
	same(t, *last.Result, typed)
}

// same compares results but for the expiry, which moves with every use.
func same(t *testing.T, a, b proto.ExecResult) {
	t.Helper()
	a.Container.ExpiresAt, b.Container.ExpiresAt = proto.Time{}, proto.Time{}
	ta, _ := json.Marshal(a)
	tb, _ := json.Marshal(b)
	if string(ta) != string(tb) {
		t.Errorf("the last event's result is not the typed one:\n%s\n%s", ta, tb)
	}
}

// What fails before the command has started is an ordinary error, not an empty stream.
func TestErrorsBeforeTheFirstEvent(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	for path, body := range map[string]string{at + "/exec": `{"command":""}`, at + "/exec?x=1": `{"command":"true"}`,
		unknownContainer + "/exec": `{"command":"true"}`} {
		res, text := s.do(t, "POST", path, body, "Accept", eventType)
		if res.StatusCode < 400 || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
	x := s.run(t, at, "true").Exec.ID
	for _, id := range []string{"x", "1", "1-", "-1-2", "1-2-3", "1-2-en", "99999999999999999999-0"} {
		if res, _ := s.do(t, "GET", at+"/execs/"+x+"/events", nil, "Last-Event-ID", id); res.StatusCode != 400 {
			t.Errorf("Last-Event-ID %s: %d", id, res.StatusCode)
		}
	}
}

// A client that lost its connection after any event goes on behind it and gets each byte once.
func TestLastEventID(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.run(t, at, `for i in 1 2 3 4 5 6; do printf "öut$i"; printf "err$i\n" >&2; sleep 0.01; done`).Exec.ID
	_, body := s.do(t, "GET", at+"/execs/"+x+"/events", nil)
	all := sseEvents(t, strings.NewReader(body))
	want, _ := output(t, all, "stdout", 0)
	wantErr, _ := output(t, all, "stderr", 0)
	if want != "öut1öut2öut3öut4öut5öut6" || len(all) < 6 {
		t.Fatalf("%d events, %q", len(all), want)
	}
	had := session.Cursor{}
	for i, ev := range all {
		switch ev.Type {
		case proto.EventStdout:
			had.Stdout = ev.Offset + int64(len(ev.Data))
		case proto.EventStderr:
			had.Stderr = ev.Offset + int64(len(ev.Data))
		}
		if have := fmt.Sprintf("%d-%d", had.Stdout, had.Stderr); strings.TrimSuffix(ev.id, endMark) != have {
			t.Errorf("event %d has the ID %s where a client has %s", i, ev.id, have)
		}
		res, body := s.do(t, "GET", at+"/execs/"+x+"/events", nil, "Last-Event-ID", ev.id)
		if ev.Type == proto.EventExit {
			if res.StatusCode != http.StatusNoContent {
				t.Errorf("behind the end: %d %s", res.StatusCode, body)
			}
			continue
		}
		var out, errs int64
		fmt.Sscanf(ev.id, "%d-%d", &out, &errs)
		rest := sseEvents(t, strings.NewReader(body))
		text, _ := output(t, rest, "stdout", out)
		texterr, _ := output(t, rest, "stderr", errs)
		if want[:out]+text != want || wantErr[:errs]+texterr != wantErr || rest[len(rest)-1].Type != proto.EventExit {
			t.Errorf("from event %d, %s: %q %q", i, ev.id, text, texterr)
		}
		_, again := s.do(t, "GET", fmt.Sprintf("%s/execs/%s/events?stdout_offset=%d&stderr_offset=%d", at, x, out,
			errs), nil)
		if again != body {
			t.Errorf("by offsets: %s", again)
		}
	}
}

// Output arrives while the command runs, a character is never split, and a late joiner gets it all.
func TestLiveEvents(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: `while read -r l; do printf "$l"; done`, OpenStdin: true})
	ex := at + "/execs/" + x.ID
	res, err := s.client.Do(s.request(t, t.Context(), "GET", ex+"/events", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	next := eventReader(t, res.Body)
	if ev, _ := next(); ev.Type != proto.EventStart || ev.Exec.State != proto.ExecRunning {
		t.Fatalf("%+v", ev)
	}
	must[written](t, s, "POST", ex+"/stdin", "first\n")
	if ev, _ := next(); ev.Data != "first" || ev.id != "5-0" {
		t.Fatalf("%+v", ev)
	}
	must[written](t, s, "POST", ex+"/stdin", `a\xc3`+"\n")
	if ev, _ := next(); ev.Data != "a" || ev.id != "6-0" {
		t.Fatalf("half a character: %+v", ev)
	}
	must[written](t, s, "POST", ex+"/stdin?close=true", `\xa9`+"\n")
	if ev, _ := next(); ev.Data != "é" || ev.Offset != 6 || ev.id != "8-0" {
		t.Fatalf("the whole character: %+v", ev)
	}
	if ev, _ := next(); ev.Type != proto.EventExit || ev.Result.Result.Result.Stdout != "firstaé" {
		t.Fatalf("%+v", ev)
	}
	if ev, more := next(); more {
		t.Errorf("after the exit: %+v", ev)
	}
	_, body := s.do(t, "GET", ex+"/events", nil)
	if text, _ := output(t, sseEvents(t, strings.NewReader(body)), "stdout", 0); text != "firstaé" {
		t.Errorf("a late joiner: %q", text)
	}
}

// A stream ends with its client, and the command that it follows does not.
func TestStreamsEndWhenTheClientLeaves(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: "echo up; sleep 1000"})
	for _, path := range []string{"/events", "/logs?follow=true", "/result?wait_seconds=1000"} {
		ctx, cancel := context.WithCancel(t.Context())
		req := s.request(t, ctx, "GET", at+"/execs/"+x.ID+path, nil)
		if strings.HasPrefix(path, "/result") {
			go func() {
				if res, err := s.client.Do(req); err == nil {
					res.Body.Close()
				}
			}()
		} else {
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
		}
		cancel()
		s.done.wait()
	}
	if got := must[proto.Exec](t, s, "GET", at+"/execs/"+x.ID, nil); got.State != proto.ExecRunning {
		t.Errorf("%+v", got)
	}
}

// What a slow reader misses is told, with the right numbers.
func TestGapsAreTold(t *testing.T) {
	s := siteWith(t, session.Config{}, func(*Config) {})
	at := s.container(t)
	res := must[proto.ExecResult](t, s, "POST", at+"/exec", proto.Cmd{Command: "head -c 5000000 /dev/zero | tr '\\0' y",
		MaxOutputBytes: 100_000})
	_, body := s.do(t, "GET", at+"/execs/"+res.Exec.ID+"/events", nil)
	text, gaps := output(t, sseEvents(t, strings.NewReader(body)), "stdout", 0)
	if int64(len(text))+gaps != 5_000_000 || gaps < 4_000_000 || strings.Trim(text, "y") != "" {
		t.Errorf("%d bytes and %d missing", len(text), gaps)
	}
}

// When the daemon stops, a followed log does not end like a complete one, and new readers are asked to try again.
func TestFollowedLogEndsWithTheDaemon(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.launch(t, at, proto.Cmd{Command: "echo up; sleep 1000"})
	silent := s.launch(t, at, proto.Cmd{Command: "sleep 1000"})
	logs := func(exec string) string { return at + "/execs/" + exec + "/logs?follow=true&stream=stdout" }
	url, shutdown := s.listen(t)
	req := s.request(t, t.Context(), "GET", logs(x.ID), nil)
	req.URL.Host = strings.TrimPrefix(url, "http://")
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	up := make([]byte, 3)
	if _, err := io.ReadFull(res.Body, up); err != nil || string(up) != "up\n" {
		t.Fatalf("%q %v", up, err)
	}
	shutdown()
	if rest, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it ended as if it was complete: %q %v", rest, err)
	}
	res, body := s.do(t, "GET", logs(silent.ID), nil)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("while the daemon shuts down: %d %s", res.StatusCode, body)
	}
	if res, body := s.do(t, "GET", at+"/execs/"+x.ID+"/logs", nil); res.StatusCode != 200 || body != "up\n" {
		t.Errorf("what is there: %d %q", res.StatusCode, body)
	}
}

// answer sends a request, and returns the status, Retry-After and the body, or the error.
func (s *site) answer(req *http.Request) string {
	res, err := s.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After"), " ", string(body), err)
}

// Who waits for a command that goes on without the daemon is told how to come back: with the same request only if that
// does not run the command again.
func TestWaitingForACommandThatOutlivesTheDaemon(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	url, shutdown := s.listen(t)
	answers := map[string]chan string{"": make(chan string, 1), "mine": make(chan string, 1)}
	for key, answer := range answers {
		s.run(t, at, "mkfifo /tmp/up"+key)
		req := s.request(t, t.Context(), "POST", at+"/exec", proto.Cmd{Command: "echo up > /tmp/up" + key + "; sleep 1000",
			ReconnectSeconds: 60, IdempotencyKey: key})
		req.URL.Host = strings.TrimPrefix(url, "http://")
		go func() { answer <- s.answer(req) }()
		s.run(t, at, "cat /tmp/up"+key)
	}
	shutdown()
	if got := <-answers[""]; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "result of exec exec_") {
		t.Errorf("without a key: %s", got)
	}
	if got := <-answers["mine"]; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "same request gets its result") {
		t.Errorf("with a key: %s", got)
	}
}

// A command that is cut off by the end of the daemon is not told, nor remembered, as one whose client went away.
func TestCommandPastTheGraceOfAShutdown(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.run(t, at, "mkfifo /tmp/up")
	url, shutdown := s.listen(t)
	req := s.request(t, t.Context(), "POST", at+"/exec", proto.Cmd{Command: "echo up > /tmp/up; sleep 1000"})
	req.URL.Host = strings.TrimPrefix(url, "http://")
	answer := make(chan string, 1)
	go func() { answer <- s.answer(req) }()
	s.run(t, at, "cat /tmp/up")
	shutdown()
	if got := <-answer; !strings.HasPrefix(got, "503 1 ") || !strings.Contains(got, "shutting down") {
		t.Error(got)
	}
	s.Reopen(t)
	box, err := s.Sessions.Get(sessiontest.Owner, strings.TrimPrefix(at, "/v1/containers/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range box.Execs() {
		if info := x.Info(); strings.Contains(info.Command, "sleep") &&
			(info.End == nil || info.End.Reason != proto.EndStopped || info.End.Message != "the daemon was shut down") {
			t.Errorf("%+v", info.End)
		}
	}
}

// A client that comes back to the audit log goes on behind its last event, however far that is from the end.
func TestAuditGoesOnBehindTheLastEvent(t *testing.T) {
	stack := sessiontest.New(t, session.Config{})
	log, err := audit.Open(audit.Config{Dir: t.TempDir(), Ledger: stack.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	for range 10 {
		log.Append(proto.AuditEntry{Act: "container.create", Outcome: proto.AuditOK, Actor: "key_1"})
	}
	s := siteOver(t, stack, session.Config{}, func(cfg *Config) { cfg.Audit = log })
	for last, want := range map[string]string{"4": "id: 5\n", "": "id: 10\n"} {
		ctx, cancel := context.WithCancel(t.Context())
		res, err := s.client.Do(s.request(t, ctx, "GET", "/v1/audit?last=2", nil, "Accept", eventType, "Last-Event-ID",
			last))
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != want {
			t.Errorf("behind %q: %q %v", last, line, err)
		}
		cancel()
		res.Body.Close()
	}
}
