package command

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// What is read at most, in bytes.
const (
	maxHeadLine = 8 << 10
	maxFields   = 64
	maxBody     = 16 << 20 // a list, or a result
)

// How long a daemon that does not answer is tried again since it last did, and how long a pause between two tries
// becomes.
const (
	patience     = 5 * time.Minute
	longestPause = time.Second
)

// The clock that it waits by. Only tests have one of their own.
var now, sleep = time.Now, time.Sleep

const permissionError = "PermissionError"

// A failure is what the daemon says of a call that failed.
type failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Type + ": " + f.Message }

// errBroken says that a connection ended before all was answered, or that the daemon is on its way out or in.
var errBroken = errors.New("the connection to the daemon broke")

// list asks for the tools.
func (r Run) list() ([]tool, error) {
	var list struct {
		Tools []tool `json:"tools"`
	}
	body, err := r.insist("GET", "/v1/tools", nil)
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	return list.Tools, err
}

// ask makes a call.
func (r Run) ask(name string, input any) (json.RawMessage, error) {
	type call struct {
		ID    string `json:"id"`
		Tool  string `json:"tool"`
		Input any    `json:"input"`
	}
	one := call{newID(), name, input}
	body, err := json.Marshal(map[string][]call{"calls": {one}})
	if err != nil {
		return nil, err
	}
	line, err := r.insist("POST", "/v1/calls", body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		ID     string          `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  *failure        `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.ID != one.ID {
		return nil, errors.New("the daemon answered another call")
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return answer.Result, nil
}

// newID is a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// insist makes a request, again if the connection breaks: the daemon knows a call by its ID.
func (r Run) insist(method, path string, body []byte) ([]byte, error) {
	var all tries
	for {
		began := now()
		got, err := r.once(method, path, body)
		if !errors.Is(err, errBroken) {
			return got, err
		}
		pause, again := all.failed(began, now())
		if !again {
			return nil, err
		}
		sleep(pause) // there is nothing to wait for: the other side is away
	}
}

// tries are those of one request that failed one right after the other.
type tries struct {
	since time.Time     // the first of them failed
	pause time.Duration // before the next
}

// failed counts one more, and says how long to wait for the next, unless it was tried for long enough. One that had
// its connection for longer than a pause waited for its answer, which may take a day: whatever broke it is new, and
// has all of the patience again.
func (t *tries) failed(began, ended time.Time) (pause time.Duration, again bool) {
	if t.since.IsZero() || ended.Sub(began) > longestPause {
		*t = tries{ended, longestPause / 32}
	}
	t.pause = min(2*t.pause, longestPause)
	return t.pause, ended.Sub(t.since) <= patience
}

// once makes a request and gives back what was answered. The connection is for it alone.
func (r Run) once(method, path string, body []byte) ([]byte, error) {
	host, ok := strings.CutPrefix(r.URL, "http://")
	if !ok {
		return nil, errors.New("this command has no tools: BERTH_TOOLS is not in its environment")
	}
	host = strings.TrimSuffix(host, "/")
	c, err := net.Dial("tcp", host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	defer c.Close()
	var req bytes.Buffer
	fmt.Fprintf(&req, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n", method, path,
		host, r.Token)
	if body != nil {
		fmt.Fprintf(&req, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	req.WriteString("\r\n")
	req.Write(body)
	_, _ = c.Write(req.Bytes()) // what was answered before says why it could not be sent
	return readAnswer(bufio.NewReader(c))
}

// readAnswer reads a response.
func readAnswer(r *bufio.Reader) ([]byte, error) {
	first, err := readLine(r)
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(first, " ")
	status, err := strconv.Atoi(rest[:min(len(rest), 3)])
	if err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return nil, errors.New("the daemon did not answer in HTTP")
	}
	in, err := readFields(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	if len(body) > maxBody {
		return nil, errors.New("the daemon answered more than a result can have")
	}
	if status != 200 {
		return nil, refusal(status, body)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errBroken
	}
	return body, nil
}

// readFields reads the head, and gives what the body can be read from.
func readFields(r *bufio.Reader) (io.Reader, error) {
	var body io.Reader = r
	for range maxFields {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		name, value, _ := strings.Cut(strings.ToLower(line), ":")
		switch value = strings.TrimSpace(value); {
		case line == "":
			return body, nil
		case name == "transfer-encoding" && value == "chunked":
			body = &chunks{r: r}
		case name == "content-length":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, errors.New("the daemon did not answer in HTTP")
			}
			body = &measured{r, n}
		}
	}
	return nil, errors.New("the daemon did not answer in HTTP")
}

func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for len(line) <= maxHeadLine {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return strings.TrimRight(string(line), "\r\n"), nil
		}
		if err != bufio.ErrBufferFull {
			return "", fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	return "", errors.New("the daemon did not answer in HTTP")
}

// refusal is the error of a response that is none of calls.
func refusal(status int, body []byte) error {
	var said struct{ Error failure }
	_ = json.Unmarshal(body, &said) // it may be no JSON at all
	f := &said.Error
	if f.Message == "" {
		f.Message = fmt.Sprintf("the daemon answered with status %d", status)
	}
	switch {
	case status == 429, status == 503:
		return fmt.Errorf("%w: %s", errBroken, f.Message)
	case strings.HasSuffix(f.Type, "Error"):
	case status == 401, status == 403:
		f.Type = permissionError
	case status == 400, status == 413:
		f.Type = "ValueError"
	default:
		f.Type = "RuntimeError"
	}
	return f
}

// A measured body has a length, and is broken if it ends before.
type measured struct {
	r    io.Reader
	left int64
}

func (m *measured) Read(b []byte) (int, error) {
	if m.left <= 0 {
		return 0, io.EOF
	}
	n, err := m.r.Read(b[:min(int64(len(b)), m.left)])
	if m.left -= int64(n); err == io.EOF && m.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunks are a body that comes in such.
type chunks struct {
	r    *bufio.Reader
	left int64
	over bool
}

func (c *chunks) Read(b []byte) (int, error) {
	for c.left == 0 {
		if c.over {
			return 0, io.EOF
		}
		line, err := readLine(c.r)
		if err != nil {
			return 0, err
		}
		if line == "" { // the end of the chunk before it
			continue
		}
		size, _, _ := strings.Cut(line, ";")
		if c.left, err = strconv.ParseInt(strings.TrimSpace(size), 16, 63); err != nil || c.left < 0 {
			return 0, errors.New("the daemon did not answer in HTTP")
		}
		c.over = c.left == 0
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left)])
	if c.left -= int64(n); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
