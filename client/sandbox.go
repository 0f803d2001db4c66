package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"berth/proto"
)

// A Sandbox is one container, with the calls that most programs need. The SDKs for Python and TypeScript have the same
// words. Everything else is a method of Client, with ID.
type Sandbox struct {
	ID   string
	Info proto.Container // as of the last answer that described it

	client *Client
}

// NewSandbox creates a container. The zero request makes one of the daemon's default image.
func (c *Client) NewSandbox(ctx context.Context, req proto.CreateContainer) (*Sandbox, error) {
	return c.sandbox(c.Create(ctx, req))
}

// Sandbox returns the container with that ID or name.
func (c *Client) Sandbox(ctx context.Context, ref string) (*Sandbox, error) {
	return c.sandbox(c.Container(ctx, ref))
}

func (c *Client) sandbox(info proto.Container, err error) (*Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return &Sandbox{ID: info.ID, Info: info, client: c}, nil
}

// Files returns its file system, with the rights of its usual user.
func (s *Sandbox) Files() FS { return s.client.FS(s.ID, proto.UserDefault) }

// Put stores data as the file path, whole or not at all.
func (f FS) Put(ctx context.Context, path string, data []byte) error {
	return f.c.Redo(ctx, func() error { // the same data leads to the same file
		_, err := f.Write(ctx, path, 0, bytes.NewReader(data), int64(len(data)))
		return err
	})
}

// Get returns the content of a file.
func (f FS) Get(ctx context.Context, path string) (data []byte, err error) {
	err = f.c.Redo(ctx, func() error {
		d, err := f.Read(ctx, path)
		if err != nil {
			return err
		}
		defer d.Close()
		data, err = io.ReadAll(d)
		return err
	})
	return data, err
}

// A CommandResult is a command that has ended. One that failed is no error.
type CommandResult struct {
	Stdout, Stderr string          // head and tail, if there is more than Cmd.MaxOutputBytes
	ReturnCode     int             // 128+n for signal n; -1 if unknown
	Reason         proto.EndReason // why it ended
	Files          []string        // IDs of stored files, made of those in $OUTPUT_DIR
	proto.ExecResult
}

// OK reports whether the command ended by itself with the code 0.
func (r CommandResult) OK() bool { return r.Reason == proto.EndExit && r.ReturnCode == 0 }

// commandResult returns res in short.
func commandResult(res proto.ExecResult) CommandResult {
	r := CommandResult{ExecResult: res, ReturnCode: -1, Reason: proto.EndLost}
	if end := res.Exec.End; end != nil {
		r.ReturnCode, r.Reason = end.ReturnCode, end.Reason
	}
	if res.Partial != nil {
		r.Stdout, r.Stderr = res.Partial.Stdout, res.Partial.Stderr
	}
	if ended := res.Result.Result; ended != nil {
		r.Stdout, r.Stderr = ended.Stdout, ended.Stderr
		for _, file := range ended.Content {
			r.Files = append(r.Files, file.FileID)
		}
	}
	return r
}

// workspace is where the commands and the code of a Sandbox begin, and relative paths of files.
const workspace = "/workspace"

// inWorkspace returns cmd with the working directory of a Sandbox, unless it names one in some way.
func inWorkspace(cmd proto.Cmd) proto.Cmd {
	if cmd.Cwd == "" && cmd.JobID == "" && cmd.Shell == "" {
		cmd.Cwd = workspace
	}
	return cmd
}

// Run runs a text in bash and waits for its end.
func (s *Sandbox) Run(ctx context.Context, command string) (CommandResult, error) {
	return s.RunTo(ctx, proto.Cmd{Command: command}, nil, nil)
}

// RunTo runs a command and waits for its end. Its output is also written to stdout and stderr as it comes, completely
// and once, unless they are nil.
func (s *Sandbox) RunTo(ctx context.Context, cmd proto.Cmd, stdout, stderr io.Writer) (CommandResult, error) {
	res, err := s.client.Stream(ctx, s.ID, inWorkspace(cmd), func(ev proto.Event) error {
		to := map[proto.EventType]io.Writer{proto.EventStdout: stdout, proto.EventStderr: stderr}[ev.Type]
		if to == nil {
			return nil
		}
		data := ev.DataBase64
		if data == nil {
			data = []byte(ev.Data)
		}
		_, err := to.Write(data)
		return err
	})
	if err != nil {
		return CommandResult{}, err
	}
	return commandResult(res), nil
}

// A Command is a command that runs in the background, or has run.
type Command struct {
	ID      string
	sandbox *Sandbox
}

// Start starts a command in the background. It goes on without its client.
func (s *Sandbox) Start(ctx context.Context, cmd proto.Cmd) (*Command, error) {
	x, err := s.client.Launch(ctx, s.ID, inWorkspace(cmd))
	if err != nil {
		return nil, err
	}
	return s.Command(x.ID), nil
}

// Command returns the command with that ID.
func (s *Sandbox) Command(id string) *Command { return &Command{ID: id, sandbox: s} }

// Wait waits for the command's end.
func (c *Command) Wait(ctx context.Context) (CommandResult, error) {
	res, err := c.sandbox.client.Wait(ctx, c.sandbox.ID, c.ID)
	if err != nil {
		return CommandResult{}, err
	}
	return commandResult(res), nil
}

// Stdin sends all of r to the command's standard input, which Cmd.OpenStdin keeps open, and closes it.
func (c *Command) Stdin(ctx context.Context, r io.Reader) error {
	return c.sandbox.client.Stdin(ctx, c.sandbox.ID, c.ID, r)
}

// Kill ends the command with all its processes.
func (c *Command) Kill(ctx context.Context) error {
	_, err := c.sandbox.client.Signal(ctx, c.sandbox.ID, c.ID, "SIGKILL")
	return err
}

// Output returns what the command has written so far, as far as that is kept.
func (c *Command) Output(ctx context.Context) (stdout, stderr string, err error) {
	for stream, text := range map[string]*string{"stdout": &stdout, "stderr": &stderr} {
		body, _, err := c.sandbox.client.Logs(ctx, c.sandbox.ID, c.ID, stream)
		if err != nil {
			return "", "", err
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			return "", "", err
		}
		*text = string(data)
	}
	return stdout, stderr, nil
}

// A CodeResult is what running code gave. Code that failed is no error: see Error and ErrorDetail.
type CodeResult struct{ proto.Outcome }

// Text returns the value of the last expression; "" if there is none.
func (r CodeResult) Text() string {
	if r.MainResult == nil || *r.MainResult >= len(r.Results) {
		return ""
	}
	return r.Results[*r.MainResult]
}

// Stdout returns what the code printed.
func (r CodeResult) Stdout() string { return strings.Join(r.Logs.Stdout, "") }

// PNG returns the first figure that the code showed; nil if there is none.
func (r CodeResult) PNG() []byte {
	for _, forms := range r.Rich {
		var picture []byte // JSON has bytes in base64
		if form, ok := forms["image/png"]; ok && json.Unmarshal(form, &picture) == nil {
			return picture
		}
	}
	return nil
}

// RunCode runs Python. Use Client.RunCode or Client.RunCell for other languages, and to keep variables in a context.
func (s *Sandbox) RunCode(ctx context.Context, code string) (CodeResult, error) {
	out, err := s.client.RunCode(ctx, proto.Program{Code: code, Container: s.ID, Cwd: workspace})
	return CodeResult{out}, err
}

// PortURL returns a signed URL of a port, which browsers can open. It is valid for an hour.
func (s *Sandbox) PortURL(ctx context.Context, port uint16) (string, error) {
	signed, err := s.client.SignPort(ctx, s.ID, port, time.Hour)
	return signed.URL, err
}

// Snapshot keeps all its files as they are now.
func (s *Sandbox) Snapshot(ctx context.Context) (proto.Snapshot, error) {
	return s.client.CreateSnapshot(ctx, s.ID, proto.CreateSnapshot{})
}

// Restore gives it the files of a snapshot, by ID or name, and ends its processes.
func (s *Sandbox) Restore(ctx context.Context, snapshot string) (err error) {
	s.Info, err = s.client.Restore(ctx, s.ID, snapshot)
	return err
}

// Fork makes copies, 1 to 100.
func (s *Sandbox) Fork(ctx context.Context, count int) (copies []*Sandbox, err error) {
	made, err := s.client.Fork(ctx, s.ID, count)
	for _, info := range made {
		copies = append(copies, &Sandbox{ID: info.ID, Info: info, client: s.client})
	}
	return copies, err
}

// Renew moves the end of its lease to at least that long from now; 0 is the idle timeout.
func (s *Sandbox) Renew(ctx context.Context, d time.Duration) (err error) {
	s.Info, err = s.client.Extend(ctx, s.ID, int64(d.Seconds()))
	return err
}

// Pause freezes its processes until the next use.
func (s *Sandbox) Pause(ctx context.Context) (err error) {
	s.Info, err = s.client.Pause(ctx, s.ID)
	return err
}

// Resume continues its processes.
func (s *Sandbox) Resume(ctx context.Context) (err error) {
	s.Info, err = s.client.Resume(ctx, s.ID)
	return err
}

// Delete ends its commands and removes it with its files.
func (s *Sandbox) Delete(ctx context.Context) error {
	_, err := s.client.Delete(ctx, s.ID, false)
	return err
}
