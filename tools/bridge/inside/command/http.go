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

	"berth/tools/bridge/inside/arguments"
)

// Bounds of an answer.
const (
	maxHeadLine = 8 << 10 // bytes
	maxFields   = 64
	maxBody     = 16 << 20 // bytes of a list or a result
)

// How long requests to a daemon that is away are retried, and the longest pause between two tries.
const (
	patience     = 5 * time.Minute
	longestPause = time.Second
)

// The clock; tests replace it.
var now, sleep = time.Now, time.Sleep

const permissionError = "PermissionError"

// A failure is the daemon's description of a failed call.
type failure struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Type + ": " + f.Message }

var (
	// errBroken means that the connection ended before the answer was complete, or that the daemon stops or starts.
	errBroken  = errors.New("the connection to the daemon broke")
	errNotHTTP = errors.New("the daemon did not answer in HTTP")
)

// listTools asks for the tools.
func (r Run) listTools() ([]arguments.Tool, error) {
	var list struct {
		Tools []arguments.Tool `json:"tools"`
	}
	body, err := r.request("GET", "/v1/tools", nil)
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	return list.Tools, err
}

// callTool makes a call and returns its result.
func (r Run) callTool(name string, input any) (json.RawMessage, error) {
	type call struct {
		ID    string `json:"id"`
		Tool  string `json:"tool"`
		Input any    `json:"input"`
	}
	var id [16]byte
	_, _ = rand.Read(id[:])                         // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a random UUID
	one := call{fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), name, input}
	body, err := json.Marshal(map[string][]call{"calls": {one}})
	if err != nil {
		return nil, err
	}
	line, err := r.request("POST", "/v1/calls", body)
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

// request makes a request, and repeats it if the connection breaks: the daemon knows a call by its ID. A connection
// that lasted for longer than a pause has waited for an answer, which may take a day. Its failure is a new one, and has
// all of the patience again.
func (r Run) request(method, path string, body []byte) ([]byte, error) {
	var since time.Time // the first of the consecutive failures
	var pause time.Duration
	for {
		began := now()
		got, err := r.try(method, path, body)
		if !errors.Is(err, errBroken) {
			return got, err
		}
		ended := now()
		if since.IsZero() || ended.Sub(began) > longestPause {
			since, pause = ended, longestPause/32
		}
		if ended.Sub(since) > patience {
			return nil, err
		}
		pause = min(2*pause, longestPause)
		sleep(pause)
	}
}

// try makes a request over a connection of its own and returns the body of the answer.
func (r Run) try(method, path string, body []byte) ([]byte, error) {
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
	_, _ = c.Write(req.Bytes()) // an answer that came before gives the reason
	return readAnswer(bufio.NewReader(c))
}

// readAnswer reads a response and returns its body.
func readAnswer(r *bufio.Reader) ([]byte, error) {
	first, err := readLine(r)
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(first, " ")
	status, err := strconv.Atoi(rest[:min(len(rest), 3)])
	if err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return nil, errNotHTTP
	}
	in, err := readFields(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	case len(body) > maxBody:
		return nil, errors.New("the daemon answered more than a result can have")
	case status != 200:
		return nil, refusal(status, body)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, errBroken
	}
	return body, nil
}

// readFields reads the head of a response and returns its body.
func readFields(r *bufio.Reader) (body io.Reader, err error) {
	body = r
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
			body = &chunkedBody{r: r}
		case name == "content-length":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, errNotHTTP
			}
			body = &sizedBody{r, n}
		}
	}
	return nil, errNotHTTP
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
	return "", errNotHTTP
}

// refusal is the error of a response with another status than 200.
func refusal(status int, body []byte) error {
	var answer struct{ Error failure }
	_ = json.Unmarshal(body, &answer) // it may be no JSON at all
	f := &answer.Error
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

// A sizedBody has a length, and is broken if it ends before.
type sizedBody struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (s *sizedBody) Read(b []byte) (int, error) {
	if s.left <= 0 {
		return 0, io.EOF
	}
	n, err := s.r.Read(b[:min(int64(len(b)), s.left)])
	if s.left -= int64(n); err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// A chunkedBody comes in chunks, each behind a line with its size.
type chunkedBody struct {
	r    *bufio.Reader
	left int64 // of the chunk
	over bool
}

// Read implements io.Reader.
func (c *chunkedBody) Read(b []byte) (int, error) {
	for c.left == 0 {
		if c.over {
			return 0, io.EOF
		}
		line, err := readLine(c.r)
		if err != nil {
			return 0, err
		}
		if line == "" { // the end of the previous chunk
			continue
		}
		size, _, _ := strings.Cut(line, ";")
		if c.left, err = strconv.ParseInt(strings.TrimSpace(size), 16, 63); err != nil || c.left < 0 {
			return 0, errNotHTTP
		}
		c.over = c.left == 0
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left)])
	if c.left -= int64(n); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
