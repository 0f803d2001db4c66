package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"berth/files"
	"berth/files/filename"
	"berth/proto"
	"berth/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var uploadTool = tool{&sdk.Tool{
	Name: "upload_file", Title: "Put a file into the container",
	Description: "Writes a file in the container: a stored file, by its ID, or content given as text or base64. " +
		"An existing file is replaced.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), IdempotentHint: true, OpenWorldHint: no()},
	InputSchema: object([]string{"path"}, fields{
		"path":      text1("Where to: absolute, or relative to /workspace."),
		"file_id":   text1("ID of a stored file, as in a link berth://files/ID."),
		"text":      text1("The content, if it is text."),
		"base64":    text1("The content, if it is not."),
		"container": containerField,
	}),
}, runUpload}

type uploadInput struct {
	Path      string  `json:"path"`
	FileID    string  `json:"file_id,omitempty"`
	Text      *string `json:"text,omitempty"`
	Base64    *string `json:"base64,omitempty"`
	Container string  `json:"container,omitempty"`
}

// open opens the content that an input names.
func (in uploadInput) open(ctx context.Context, c *call) (io.ReadCloser, error) {
	if in.FileID != "" || in.Text != nil && *in.Text != "" { // then what is empty is as good as left out
		if in.Base64 != nil && *in.Base64 == "" {
			in.Base64 = nil
		}
	}
	if in.FileID != "" || in.Base64 != nil {
		if in.Text != nil && *in.Text == "" {
			in.Text = nil
		}
	}
	given := 0
	for _, is := range []bool{in.FileID != "", in.Text != nil, in.Base64 != nil} {
		if is {
			given++
		}
	}
	switch {
	case in.Path == "":
		return nil, missing("path", "where to put the file")
	case given != 1:
		return nil, proto.Invalid("file_id", "set exactly one of file_id, text and base64")
	case in.FileID != "":
		r, _, err := c.Files.Open(ctx, c.peer.owner, strings.TrimPrefix(in.FileID, fileURI))
		return r, err
	case in.Text != nil:
		return io.NopCloser(strings.NewReader(*in.Text)), nil
	}
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(*in.Base64, "= \r\n"))
	var at base64.CorruptInputError
	if errors.As(err, &at) {
		return nil, proto.Invalid("base64", "base64 is malformed at byte %d; send a text as text", int64(at))
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func runUpload(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in uploadInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	name := inWorkspace(in.Path)
	c.addAuditItems(name, in.FileID)
	content, err := in.open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	f, err := s.WriteFile(ctx, proto.UserDefault, name, session.WriteOptions{}, content)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{text(fmt.Sprintf("%s has %d bytes now", name, f.SizeBytes))}}, nil
}

// inWorkspace resolves a path relative to the workspace. The kernel of the container checks access.
func inWorkspace(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return "/workspace/" + p
}

var downloadTool = tool{&sdk.Tool{
	Name: "download_file", Title: "Get a file out of the container",
	Description: "Stores a file of the container, so that it outlives the container, and returns a link. A small " +
		"file is also returned as text, as an image, or as bytes.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	InputSchema: object([]string{"path"}, fields{
		"path":      text1("The file: absolute, or relative to /workspace."),
		"container": containerField,
	}),
}, runDownload}

type downloadInput struct {
	Path      string `json:"path"`
	Container string `json:"container,omitempty"`
}

// maxAlong bounds the content that accompanies a link, in bytes.
const maxAlong = 256 << 10

func runDownload(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in downloadInput
	if err := c.input(&in); err != nil {
		return nil, err
	}
	if in.Path == "" {
		return nil, missing("path", "the path of a file")
	}
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	name := inWorkspace(in.Path)
	c.addAuditItems(name)
	r, fi, err := s.ReadFile(ctx, proto.UserDefault, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := c.Files.Put(ctx, files.Upload{Owner: c.peer.owner, Filename: filename.FromPath(name), Downloadable: true,
		Scope: s.ID(), SizeBytes: fi.SizeBytes}, r)
	if err != nil {
		return nil, err
	}
	c.addAuditItems(f.ID)
	res := &sdk.CallToolResult{Content: []sdk.Content{linkTo(f)}}
	if f.SizeBytes <= maxAlong {
		err = c.along(ctx, res, f)
	}
	return res, err
}

// along adds the content of a stored file to a result.
func (c *call) along(ctx context.Context, res *sdk.CallToolResult, f proto.StoredFile) error {
	r, _, err := c.Files.Open(ctx, c.peer.owner, f.ID)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := contentsOf(fileURI+f.ID, f.MIMEType, f.SizeBytes, whole, r)
	if err != nil {
		return err
	}
	if !c.takeRoom(len(encode(got))) {
		return nil // the link is enough
	}
	for _, m := range shown {
		if strings.HasPrefix(f.MIMEType, m) && got.Blob != nil {
			res.Content = append(res.Content, &sdk.ImageContent{MIMEType: m, Data: got.Blob})
			return nil
		}
	}
	res.Content = append(res.Content, &sdk.EmbeddedResource{Resource: got})
	return nil
}
