package mcp

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/files"
	"berth/proto"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// URIs of resources.
const (
	scheme       = "berth"
	fileURI      = scheme + "://files/"      // followed by the ID of a stored file
	containerURI = scheme + "://containers/" // followed by the ID of a container and a path

	fileTemplate      = fileURI + "{id}"
	workspaceTemplate = containerURI + "{container}/workspace/{+path}"
	manifestTemplate  = containerURI + "{container}/jobs/{job}/manifest.json"
)

// maxResource bounds a resource, in bytes. It travels in one message, in base64 if it is not text.
const maxResource = 4 << 20

// pageSize is the number of resources on a page.
const pageSize = 100

// addTemplates registers the resource templates.
func (e *Edge) addTemplates() {
	type reader func(ctx context.Context, v *mcpSession, uri string) (*sdk.ResourceContents, error)
	add := func(t *sdk.ResourceTemplate, read reader) {
		e.server.AddResourceTemplate(t, func(ctx context.Context, req *sdk.ReadResourceRequest) (
			*sdk.ReadResourceResult, error) {
			res, err := inSession(e, ctx, req, func(ctx context.Context, v *mcpSession) (*sdk.ReadResourceResult,
				error) {
				c, err := read(ctx, v, req.Params.URI)
				if err != nil {
					return nil, err
				}
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
			})
			if err != nil {
				return nil, err
			}
			return res.(*sdk.ReadResourceResult), nil
		})
	}
	add(&sdk.ResourceTemplate{Name: "file", Title: "Stored file", URITemplate: fileTemplate,
		Description: "A stored file: one that was uploaded, or that a command put into $OUTPUT_DIR. Up to 4 MiB."},
		e.readStored)
	add(&sdk.ResourceTemplate{Name: "workspace", Title: "File of a container", URITemplate: workspaceTemplate,
		Description: "A file below /workspace of a container. Up to 4 MiB."}, e.readWorkspace)
	add(&sdk.ResourceTemplate{Name: "manifest", Title: "Manifest of a job", URITemplate: manifestTemplate,
		MIMEType:    "application/json",
		Description: "What a job's directory holds, and which command made it."}, e.readManifest)
}

// listResources lists the stored files of the owner, newest first.
func (e *Edge) listResources(ctx context.Context, v *mcpSession, p *sdk.ListResourcesParams) (*sdk.ListResourcesResult,
	error) {
	q := files.Query{Limit: pageSize}
	if p != nil {
		q.AfterID = p.Cursor
	}
	page, err := e.Files.List(ctx, v.owner, q)
	if err != nil {
		return nil, err
	}
	res := &sdk.ListResourcesResult{Cacheable: privateCache, Resources: []*sdk.Resource{}}
	for _, f := range page.Files {
		res.Resources = append(res.Resources, &sdk.Resource{URI: fileURI + f.ID, Name: f.Filename, MIMEType: f.MIMEType,
			Size: f.SizeBytes})
		res.NextCursor = f.ID
	}
	if !page.More {
		res.NextCursor = ""
	}
	return res, nil
}

// readStored reads a stored file.
func (e *Edge) readStored(ctx context.Context, v *mcpSession, uri string) (_ *sdk.ResourceContents, err error) {
	id := strings.TrimPrefix(uri, fileURI)
	defer func() { e.audit(ctx, proto.AuditEntry{Act: "file.download", Item: id, Outcome: outcome(err)}) }()
	r, f, err := e.Files.Open(ctx, v.owner, id)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return contentsOf(uri, f.MIMEType, f.SizeBytes, r)
}

// readWorkspace reads a file of a container.
func (e *Edge) readWorkspace(ctx context.Context, v *mcpSession, uri string) (_ *sdk.ResourceContents, err error) {
	id, rest, err := parts(uri, "/workspace/")
	if err != nil {
		return nil, err
	}
	name := "/workspace" + path.Clean("/"+rest)
	defer func() {
		e.audit(ctx, proto.AuditEntry{Act: "fs.read", Item: name, ContainerID: id, Outcome: outcome(err)})
	}()
	s, err := e.Sessions.Get(v.owner, id)
	if err != nil {
		return nil, err
	}
	r, f, err := s.ReadFile(ctx, proto.UserDefault, name, 0, -1)
	if err != nil {
		return nil, s.HideError(err)
	}
	defer r.Close()
	return contentsOf(uri, mime.TypeByExtension(path.Ext(name)), f.SizeBytes, r)
}

// readManifest reads what a job's directory holds.
func (e *Edge) readManifest(ctx context.Context, v *mcpSession, uri string) (_ *sdk.ResourceContents, err error) {
	id, rest, err := parts(uri, "/jobs/")
	if err != nil {
		return nil, err
	}
	job := strings.TrimSuffix(rest, "/manifest.json")
	defer func() {
		e.audit(ctx, proto.AuditEntry{Act: "job.read", Item: job, ContainerID: id, Outcome: outcome(err)})
	}()
	s, err := e.Sessions.Get(v.owner, id)
	if err != nil {
		return nil, err
	}
	m, err := e.Jobs.Manifest(ctx, s, job)
	if err != nil {
		return nil, s.HideError(err)
	}
	return &sdk.ResourceContents{URI: uri, MIMEType: "application/json", Text: string(encode(m))}, nil
}

// parts splits a URI into the container and the rest after the mark.
func parts(uri, mark string) (container, rest string, err error) {
	container, rest, _ = strings.Cut(strings.TrimPrefix(uri, containerURI), mark)
	if !proto.ValidID(proto.ContainerPrefix, container) {
		return "", "", proto.Errorf(proto.NotFound, "", "uri", "The URI %.200q names no container.", uri)
	}
	if rest, err = url.PathUnescape(rest); err != nil || strings.ContainsRune(rest, 0) {
		return "", "", proto.Errorf(proto.InvalidArgument, "", "uri", "the URI %.200q cannot be read; "+
			"percent-encode what is not plain in it", uri)
	}
	return container, rest, nil
}

// contentsOf reads r as text if it is text, and as bytes otherwise.
func contentsOf(uri, media string, size int64, r io.Reader) (*sdk.ResourceContents, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxResource+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxResource {
		return nil, proto.Errorf(proto.TooLarge, "", "uri", "%s has %d bytes, and no more than %d can be read here; "+
			"download it over the HTTP API", uri, size, maxResource)
	}
	out := &sdk.ResourceContents{URI: uri, MIMEType: media}
	if isText(data) {
		out.Text = string(data)
		return out, nil
	}
	out.Blob = data
	return out, nil
}

func isText(data []byte) bool { return utf8.Valid(data) && !slices.Contains(data, 0) }

// link adds a stored file to a result.
func (c *call) link(ctx context.Context, res *sdk.CallToolResult, id string) {
	f, err := c.Files.Get(ctx, c.visit.owner, id)
	if err != nil { // deleted in the meantime
		c.notes = append(c.notes, fmt.Sprintf("the file %s is not there any more", id))
		return
	}
	res.Content = append(res.Content, linkTo(f))
}

func linkTo(f proto.StoredFile) *sdk.ResourceLink {
	return &sdk.ResourceLink{URI: fileURI + f.ID, Name: f.Filename, MIMEType: f.MIMEType, Size: &f.SizeBytes}
}
