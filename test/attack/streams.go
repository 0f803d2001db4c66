package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/proto"
)

// Group 45: readers of streams. Readers of a command's output have their own speed. The daemon buffers the output, so
// a slow reader must not block the command.
var _ = register(
	// A full pipe blocks its writer. If the daemon waited for its readers, any of them could block any command.
	Case{
		Group: 45, Name: "streams/slow-readers",
		Tries: "have twenty streams of commands that write 16 MiB each, and read none of them",
		Wants: "the commands end, and another one runs meanwhile: nobody waits for a reader and nothing piles up",
		Run:   slowReaders,
	},
	// With an offset a client continues after a disconnect. If it is rounded or used for another stream, bytes are
	// repeated or lost.
	Case{
		Group: 45, Name: "streams/odd-offsets",
		Tries: "go on from offsets that are behind, ahead, negative, beyond 2^63, in IDs of other streams",
		Wants: "what there is from there on, or a refusal by name; never bytes of another offset",
		Run:   oddOffsets,
	},
	// If two readers shared a position, each would get half of the output.
	Case{
		Group: 45, Name: "streams/two-readers",
		Tries: "read one stream from two connections at different speeds, and cut one of them",
		Wants: "the other one gets every byte",
		Run:   twoReaders,
	},
)

// stream runs a command on a new connection, which returns events, and reads nothing. When the socket's buffers are
// full, no more data is transferred.
func (t *Target) stream(ctx context.Context, container, script string) (close func(), err error) {
	conn, err := t.Dial(ctx, 2*time.Minute)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(proto.Cmd{Command: script, TimeoutSeconds: 60})
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "POST /v1/containers/%s/exec HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nAccept: "+
		"text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		container, t.Key, len(body), body)
	return func() { _ = conn.Close() }, err
}

// slowReaders lets each command create a file when it has written everything.
func slowReaders(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const readers = 20
	for i := range readers {
		hangUp, err := t.stream(ctx, con.ID, fmt.Sprintf("head -c 16777216 /dev/zero | tr '\\0' x; touch done.%d", i))
		if err != nil {
			return "", err
		}
		defer hangUp()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		n, err := t.Output(ctx, con.ID, "", "ls done.* 2>/dev/null | wc -l")
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(n) == fmt.Sprint(readers) {
			return fmt.Sprintf("all %d commands wrote everything and ended", readers), nil
		}
		if time.Now().After(deadline) {
			return "", Breached("after a minute only %s of %d commands have got rid of their output", n, readers)
		}
	}
}

// oddOffsets uses invalid offsets in forms that some parsers accept as numbers.
func oddOffsets(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	res, err := t.Bash(ctx, con.ID, "printf 0123456789")
	if err != nil {
		return "", err
	}
	at := "/v1/containers/" + con.ID + "/execs/" + res.Exec.ID
	// "!" means a refusal.
	for offset, want := range map[string]string{
		"0": "0123456789", "3": "3456789", "10": "",
		"11": "!", "9223372036854775807": "!",
		"-1": "!", "9223372036854775808": "!", "1e1": "!", "0x1": "!", "+1": "!", " 1": "!", "": "!",
	} {
		a, err := t.ask(ctx, "GET", at+"/logs", url.Values{"stream": {"stdout"}, "offset": {offset}}, nil)
		if err != nil {
			return "", err
		}
		refused := (a.status == http.StatusBadRequest || a.status == http.StatusRequestedRangeNotSatisfiable) &&
			a.code() == proto.InvalidArgument
		if want == "!" && !refused || want != "!" && (a.status != http.StatusOK || string(a.body) != want) {
			return "", Breached("offset %q was answered %d %.200q", offset, a.status, a.body)
		}
	}
	// An ID has two offsets; each of these looks similar.
	for _, id := range []string{"x", "-1--1", "0-0-0", "99999999999999999999-0", "0-0-end-end", "0-0\x00",
		strings.Repeat("1", 5000) + "-0", "exec_0-0"} {
		a, err := t.ask(ctx, "GET", at+"/events", nil, nil, "Last-Event-ID", strings.ReplaceAll(id, "\x00", ";"))
		if err != nil {
			return "", err
		}
		if err := a.refused(fmt.Sprintf("Last-Event-ID %.40q", id), proto.InvalidArgument); err != nil {
			return "", err
		}
	}
	return "what there is, or refused by name", nil
}

// twoReaders follows a stream of 1200 bytes while it is written.
func twoReaders(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const script = "for i in $(seq 1 200); do printf '%05d\\n' $i; sleep 0.005; done"
	e, err := t.Launch(ctx, con.ID, proto.Cmd{Command: script, Background: true, TimeoutSeconds: 60})
	if err != nil {
		return "", err
	}
	at := strings.TrimRight(t.Host, "/") + "/v1/containers/" + con.ID + "/execs/" + e.ID +
		"/logs?follow=true&stream=stdout"
	var whole []byte
	for i := range 2 {
		req, err := http.NewRequestWithContext(ctx, "GET", at, nil)
		if err != nil {
			return "", err
		}
		req.Header = t.KeyHeader()
		res, err := rawTransport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		if i == 0 { // reads one line and disconnects
			// A buffer of 16 bytes, so that this program does not read ahead.
			if _, err := bufio.NewReaderSize(res.Body, 16).ReadString('\n'); err != nil {
				return "", err
			}
			_ = res.Body.Close()
			continue
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(res.Body); err != nil {
			return "", Breached("the second reader was cut off: %v", err)
		}
		whole = b.Bytes()
	}
	if len(whole) != 1200 || !bytes.HasPrefix(whole, []byte("00001\n")) || !bytes.HasSuffix(whole, []byte("00200\n")) {
		return "", Breached("the second reader has %d bytes of 1200", len(whole))
	}
	return "the second reader has every byte", nil
}
