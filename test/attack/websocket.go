package attack

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"berth/proto"

	"github.com/gorilla/websocket"
)

// Group 42: the live websocket. One connection carries commands, input and output of a container. So it must be
// protected as well as all routes together.
var _ = register(
	// Browsers let any page open a websocket to any host, without a preflight (CWE-1385). Only the origin identifies
	// the page.
	Case{
		Group: 42, Name: "websocket/foreign-origin",
		Tries: "connect as a web page of another origin would, with the right key, from null, from a sibling " +
			"domain, with two origins, under a rebound name",
		Wants: "403",
		Run:   foreignOrigin,
	},
	// A handshake is a GET in which browsers cannot set headers. Keys in URLs would be tempting as a workaround.
	Case{
		Group: 42, Name: "websocket/no-key",
		Tries: "connect without a key, with one in a cookie, in the query, and with a wrong one as subprotocol",
		Wants: "401",
		Run:   socketWithoutKey,
	},
	// Each costs the daemon one or two goroutines and buffers. The limit must come from memory and be small, instead
	// of a number that is soon reached.
	Case{
		Group: 42, Name: "websocket/idle-flood", Alone: true,
		Tries: "hold thousands of websockets open that say nothing",
		Wants: "a command runs as it did before, and all of them can be closed",
		Run:   idleFlood,
	},
	// Each ping is answered. If a client does not read, answers pile up unless writing has a limit. In HTTP/2 that
	// was CVE-2019-9512.
	Case{
		Group: 42, Name: "websocket/ping-flood",
		Tries: "send 200,000 pings and read no answer",
		Wants: "the connection is held up or cut, and the daemon answers others",
		Run:   pingFlood,
	},
	// The client chooses the length of a frame in eight bytes, and a compressed frame may be a bomb.
	Case{
		Group: 42, Name: "websocket/huge-frames",
		Tries: "announce a frame of 1 GiB and of 2^63 bytes; send fragments that never end; send a compressed frame " +
			"that nobody agreed on; control frames that are too long; unmasked frames",
		Wants: "the connection is closed before more than a few megabytes are read",
		Run:   hugeFrames,
	},
	// An invalid message is a bug of the client, and must not end the commands on the same connection.
	Case{
		Group: 42, Name: "websocket/bad-messages",
		Tries: "messages that are no JSON, deep, of unknown types, with fields of other types, with other " +
			"containers' commands",
		Wants: "each is answered with an error event and the connection stays",
		Run:   badMessages,
	},
)

// dialLive opens the live websocket with exactly this header. The library's dialer can set any Origin, which a
// browser cannot.
func (t *Target) dialLive(ctx context.Context, container string, header http.Header, query string) (*websocket.Conn,
	*http.Response, error) {
	d := websocket.Dialer{HandshakeTimeout: 30 * time.Second, TLSClientConfig: rawTransport.TLSClientConfig}
	return d.DialContext(ctx, "ws"+strings.TrimPrefix(strings.TrimRight(t.Host, "/"), "http")+"/v1/containers/"+
		container+"/live"+query, header)
}

// refusedSocket returns a Breach unless a handshake is refused with this status.
func (t *Target) refusedSocket(ctx context.Context, container, what string, header http.Header, query string,
	status int) error {
	conn, res, err := t.dialLive(ctx, container, header, query)
	if err == nil {
		_ = conn.Close()
		return Breached("%s: the websocket opened", what)
	}
	if !errors.Is(err, websocket.ErrBadHandshake) {
		return err
	}
	if res.StatusCode != status {
		return Breached("%s: answered %d rather than %d", what, res.StatusCode, status)
	}
	return nil
}

// foreignOrigin uses the right key, as a page might have it. The origin alone must be a reason to refuse.
func foreignOrigin(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(t.Host)
	if err != nil {
		return "", err
	}
	// Names that begin or end like the host's own are for checks that compare parts of the text.
	origins := []string{"https://attacker.example", "null", "http://" + u.Host + ".attacker.example",
		"http://attacker.example/" + u.Host, "http://" + u.Host + "@attacker.example", "file://", "://", ""}
	tries := make([]http.Header, 0, len(origins)+2)
	for _, origin := range origins {
		tries = append(tries, http.Header{"Origin": {origin}})
	}
	// DNS rebinding: the page's own name leads to the daemon, so that both headers have it.
	tries = append(tries, http.Header{"Origin": {"http://attacker.example"}, "Host": {"attacker.example"}},
		http.Header{"Origin": {"http://" + u.Host, "https://attacker.example"}})
	for _, try := range tries {
		h := t.KeyHeader()
		maps.Copy(h, try)
		if err := t.refusedSocket(ctx, con.ID, fmt.Sprintf("origin %q", try), h, "",
			http.StatusForbidden); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d origins, all 403", len(tries)), nil
}

// socketWithoutKey tries invalid keys in all places of a handshake.
func socketWithoutKey(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	for what, h := range map[string]http.Header{
		"no key":         nil,
		"a cookie":       {"Cookie": {"X-Api-Key=" + t.Key}},
		"a wrong key":    {"X-Api-Key": {t.Key + "x"}},
		"subprotocol":    {"Sec-Websocket-Protocol": {"berth.v1, berth.key.AAAA"}},
		"no base64":      {"Sec-Websocket-Protocol": {"berth.v1, berth.key.!!!!"}},
		"the key itself": {"Sec-Websocket-Protocol": {"berth.v1, " + t.Key}},
	} {
		if err := t.refusedSocket(ctx, con.ID, what, h, "", http.StatusUnauthorized); err != nil {
			return "", err
		}
	}
	return "all 401", t.refusedSocket(ctx, con.ID, "the query", nil, "?key="+t.Key, http.StatusUnauthorized)
}

// connections returns how many connections this program may hold: at most 10,000, or 1,000 in a quick run. The daemon
// is started with the same or a higher limit on open files. Half of the limit is left for the rest of this program.
func (t *Target) connections() int {
	most := 10_000
	if t.Quick {
		most = 1_000
	}
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 500
	}
	return min(most, int(lim.Cur)/2)
}

// idleFlood opens that many connections and sends nothing.
func idleFlood(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	var open []*websocket.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range t.connections() {
		c, res, err := t.dialLive(ctx, con.ID, t.KeyHeader(), "")
		if err != nil && res != nil && (res.StatusCode == http.StatusTooManyRequests ||
			res.StatusCode == http.StatusServiceUnavailable) {
			break // the daemon refused it, which is also right
		}
		if err != nil {
			return "", Breached("after %d websockets: %v", len(open), err)
		}
		open = append(open, c)
	}
	if err := t.alive(ctx, con.ID); err != nil {
		return "", err
	}
	return fmt.Sprintf("with %d open a command still ran", len(open)), nil
}

// rawSocket opens a websocket whose frames the caller writes itself.
func (t *Target) rawSocket(ctx context.Context, container string, limit time.Duration, extra string) (net.Conn, error) {
	conn, err := t.Dial(ctx, limit)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "GET /v1/containers/%s/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+
		"websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Api-Key: %s\r\n%s\r\n",
		container, t.Key, extra)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// A small buffer, so that no frame is read together with the answer's header.
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.Join(fmt.Errorf("the handshake was not answered as it should: %w", err), conn.Close())
	}
	// With compression, a small frame could become a large message.
	if res.Header.Get("Sec-WebSocket-Extensions") != "" {
		return nil, errors.Join(Breached("it agreed to %q", res.Header.Get("Sec-WebSocket-Extensions")), conn.Close())
	}
	return conn, nil
}

// pingFlood writes pings of the largest size, and never reads.
func pingFlood(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	conn, err := t.rawSocket(ctx, con.ID, 20*time.Second, "")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// 0x89 is a complete ping with 125 bytes, the maximum of a control frame.
	ping := append([]byte{0x89, 0x80 | 125, 0, 0, 0, 0}, make([]byte, 125)...)
	burst := []byte(strings.Repeat(string(ping), 100))
	sent := 0
	for ; sent < 200_000; sent += 100 {
		_ = conn.SetWriteDeadline(time.Now().Add(3 * time.Second))
		if _, err := conn.Write(burst); err != nil {
			break // blocked or cut
		}
	}
	return fmt.Sprintf("%d pings were taken; a command ran meanwhile", sent), t.alive(ctx, con.ID)
}

// tooMuch is a size in bytes that no message may reach: the limit for a message is 2 MiB.
const tooMuch = 16 << 20

// hugeFrames writes the beginning of a frame by hand and then sends data until the connection is cut.
func hugeFrames(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	long := func(n uint64) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, n), 0, 0, 0, 0)
	}
	piece := make([]byte, 1<<16)
	// A fragment that is not the last one: no FIN bit, and opcode 0 for a continuation.
	fragment := append([]byte{0x00, 0x80 | 126, 0xff, 0xff, 0, 0, 0, 0}, piece[:0xffff]...)
	for what, try := range map[string]struct{ first, rest []byte }{
		"a frame of 1 GiB":        {long(1 << 30), piece},
		"a frame of 2^63 bytes":   {long(1 << 63), piece},
		"a frame of 2^64-1 bytes": {long(1<<64 - 1), piece},
		"fragments without end":   {[]byte{0x01, 0x80, 0, 0, 0, 0}, fragment},
		// The first reserved bit marks it as compressed, which was not negotiated.
		"a compressed frame":              {[]byte{0xc1, 0x85, 0, 0, 0, 0, 0xaa, 0x56, 0xca, 0x48, 0xcd}, piece},
		"a ping of 64 KiB":                {[]byte{0x89, 0x80 | 126, 0xff, 0xff, 0, 0, 0, 0}, piece},
		"a frame without a mask":          {[]byte{0x81, 0x02, '{', '}'}, piece},
		"a continuation of nothing":       {[]byte{0x80, 0x80, 0, 0, 0, 0}, piece},
		"an opcode that does not exist":   {[]byte{0x83, 0x80, 0, 0, 0, 0}, piece},
		"a close frame with half a code":  {[]byte{0x88, 0x81, 0, 0, 0, 0, 3}, piece},
		"a message that is not UTF-8":     {[]byte{0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe, 0x81, 0x00}, piece},
		"random bytes instead of a frame": {randomBytes(64), piece},
	} {
		conn, err := t.rawSocket(ctx, con.ID, 15*time.Second, "Sec-WebSocket-Extensions: permessage-deflate; "+
			"client_max_window_bits\r\n")
		if err != nil {
			return "", err
		}
		sent, err := pour(conn, try.first, try.rest)
		_ = conn.Close()
		if err == nil {
			return "", Breached("%s: %d bytes were taken and the connection stayed", what, sent)
		}
		// A connection that accepts no more data but stays open uses resources for nothing.
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return "", Breached("%s: after %d bytes the connection neither went on nor ended", what, sent)
		}
	}
	return "each connection was closed, and nothing was compressed", t.alive(ctx, con.ID)
}

// pour writes first once and then rest repeatedly until the other side has closed the connection. It returns a nil
// error if the other side accepted too much.
func pour(conn net.Conn, first, rest []byte) (sent int, err error) {
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		if err == nil {
			err = io.EOF
		}
		closed <- err
	}()
	for p := first; sent < tooMuch; p = rest {
		n, err := conn.Write(p)
		if sent += n; err != nil {
			return sent, err
		}
		select {
		case err := <-closed:
			return sent, err
		default:
		}
	}
	return sent, nil
}

// randomBytes returns new random bytes each time.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// badMessages sends all messages on the same connection, which must survive them.
func badMessages(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	conn, _, err := t.dialLive(ctx, con.ID, t.KeyHeader(), "")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	tries := []string{
		"", "null", "[]", "{", "hello", `{"type":"exec"}`, `{"type":"nonsense"}`, `{"type":1}`,
		`{"type":"exec","cmd":null}`,
		`{"type":"exec","cmd":{"command":"true","command":"false"}}`,
		`{"type":"exec","cmd":{"command":"true"},"signal":"KILL"}`,
		`{"type":"signal","exec_id":"../../exec","signal":"KILL"}`,
		`{"type":"attach","exec_id":"exec_0000000000000000000000"}`,
		`{"type":"attach","exec_id":"x","stdout_offset":-1}`, `{"type":"resize","exec_id":"x","rows":70000,"cols":1}`,
		`{"type":"stdin","exec_id":"x","data":"a","data_base64":"YQ=="}`, `{"type":"watch","ref":"` + strings.Repeat(
			"r", 1000) + `"}`,
		strings.Repeat(`{"cmd":`, 20_000), `{"type":"exec","cmd":{"command":"` + "\xff\xfe" + `"}}`,
		`{"type":"exec","cmd":{"timeout_seconds":1e999,"command":"true"}}`,
	}
	if _, _, err := conn.ReadMessage(); err != nil { // the connection is ready
		return "", err
	}
	for _, text := range tries {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
			return "", Breached("%.60q ended the connection: %v", text, err)
		}
		_, data, err := conn.ReadMessage()
		if err != nil {
			return "", Breached("%.60q ended the connection: %v", text, err)
		}
		var ev proto.Event
		if err := json.Unmarshal(data, &ev); err != nil || ev.Type != proto.EventError || ev.Error == nil ||
			ev.Error.Code == proto.Internal {
			return "", Breached("%.60q was answered %.200s", text, data)
		}
	}
	return fmt.Sprintf("%d messages, each an error event", len(tries)), nil
}
