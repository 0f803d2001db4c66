package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/url"
	"path"
	"slices"
	"strconv"
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

	fileTemplate      = fileURI + "{id}" + rangeTemplate
	workspaceTemplate = containerURI + "{container}/workspace/{+path}" + rangeTemplate
	manifestTemplate  = containerURI + "{container}/jobs/{job}/manifest.json" + rangeTemplate

	rangeTemplate = "{?offset,length}" // in bytes
)

// Bounds of a resource or a range of it. It travels in one message of type application/json, in base64 if it is not
// text. Clients bound the events of a stream, and messages over pipes: the TypeScript SDK takes 10 MiB there.
const (
	maxResource     = 4 << 20 // bytes
	maxResourceJSON = 8 << 20 // bytes of text as JSON; a text with too many control characters is sent as base64
)

// pageSize is the number of resources on a page.
const pageSize = 100

// addTemplates registers the resource templates with a server.
func (e *Edge) addTemplates(server *sdk.Server) {
	add := func(t *sdk.ResourceTemplate, read func(_ context.Context, who *peer, uri string, part byteRange) (
		*sdk.ResourceContents, error)) {
		server.AddResourceTemplate(t, func(ctx context.Context, req *sdk.ReadResourceRequest) (
			*sdk.ReadResourceResult, error) {
			res, err := forPeer(e, ctx, "resources/read", req, func(ctx context.Context, who *peer) (
				*sdk.ReadResourceResult, error) {
				uri, part, err := splitRange(req.Params.URI)
				if err != nil {
					return nil, err
				}
				c, err := read(ctx, who, uri, part)
				if err != nil {
					return nil, err
				}
				c.URI = req.Params.URI
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
			})
			if err != nil {
				return nil, err
			}
			return res.(*sdk.ReadResourceResult), nil
		})
	}
	add(&sdk.ResourceTemplate{Name: "file", Title: "Stored file", URITemplate: fileTemplate,
		Description: "A stored file: uploaded, or put into $OUTPUT_DIR by a command. " + rangeHelp},
		e.readStored)
	add(&sdk.ResourceTemplate{Name: "workspace", Title: "File of a container", URITemplate: workspaceTemplate,
		Description: "A file below /workspace of a container. " + rangeHelp}, e.readWorkspace)
	add(&sdk.ResourceTemplate{Name: "manifest", Title: "Manifest of a job", URITemplate: manifestTemplate,
		MIMEType:    "application/json",
		Description: "The files of a job's directory, and which command made them."}, e.readManifest)
}

// rangeHelp tells clients how to read large resources.
const rangeHelp = "Up to 4 MiB at once; read a larger file in ranges with ?offset=BYTES&length=BYTES."

// A byteRange is a range of a resource, in bytes.
type byteRange struct{ offset, length int64 }

// whole is the range of a URI without one.
var whole = byteRange{0, -1}

// splitRange splits a URI into the resource and the requested range of it. A question mark that is part of a file's
// name stays if no range follows it.
func splitRange(uri string) (resource string, part byteRange, err error) {
	i := strings.LastIndexByte(uri, '?')
	if i < 0 {
		return uri, whole, nil
	}
	query, err := url.ParseQuery(uri[i+1:])
	if err != nil || len(query) == 0 {
		return uri, whole, nil
	}
	part = byteRange{0, maxResource}
	for key, values := range query {
		at, given := map[string]*int64{"offset": &part.offset, "length": &part.length}[key], values[len(values)-1]
		if at == nil {
			return uri, whole, nil
		}
		if *at, err = strconv.ParseInt(given, 10, 64); err != nil || *at < 0 {
			return "", whole, proto.Invalid("uri", "%s must be a number of bytes, not %.40q", key, given)
		}
	}
	if part.length > maxResource {
		return "", whole, proto.Errorf(proto.TooLarge, "", "uri", "length must be at most %d; read the next range in "+
			"another request", maxResource)
	}
	return uri[:i], part, nil
}

// listResources lists the stored files of the owner, newest first.
func (e *Edge) listResources(ctx context.Context, who *peer, p *sdk.ListResourcesParams) (*sdk.ListResourcesResult,
	error) {
	q := files.Query{Limit: pageSize}
	if p != nil {
		q.AfterID = p.Cursor
	}
	page, err := e.Files.List(ctx, who.owner, q)
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
func (e *Edge) readStored(ctx context.Context, who *peer, uri string, part byteRange) (_ *sdk.ResourceContents,
	err error) {
	id := strings.TrimPrefix(uri, fileURI)
	defer func() { e.audit(ctx, proto.AuditEntry{Act: "file.download", Item: id, Outcome: outcome(err)}) }()
	r, f, err := e.Files.Open(ctx, who.owner, id)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if _, err := r.Seek(min(part.offset, f.SizeBytes), io.SeekStart); err != nil {
		return nil, err
	}
	return contentsOf(uri, f.MIMEType, f.SizeBytes, part, r)
}

// readWorkspace reads a file of a container.
func (e *Edge) readWorkspace(ctx context.Context, who *peer, uri string, part byteRange) (_ *sdk.ResourceContents,
	err error) {
	id, rest, err := parts(uri, "/workspace/")
	if err != nil {
		return nil, err
	}
	name := "/workspace" + path.Clean("/"+rest)
	defer func() {
		e.audit(ctx, proto.AuditEntry{Act: "fs.read", Item: name, ContainerID: id, Outcome: outcome(err)})
	}()
	s, err := e.Sessions.Get(who.owner, id)
	if err != nil {
		return nil, err
	}
	r, f, err := s.ReadFile(ctx, proto.UserDefault, name, part.offset, part.length)
	if err != nil {
		return nil, s.HideError(err)
	}
	defer r.Close()
	return contentsOf(uri, mime.TypeByExtension(path.Ext(name)), f.SizeBytes, part, r)
}

// readManifest reads what a job's directory holds.
func (e *Edge) readManifest(ctx context.Context, who *peer, uri string, part byteRange) (_ *sdk.ResourceContents,
	err error) {
	id, rest, err := parts(uri, "/jobs/")
	if err != nil {
		return nil, err
	}
	job := strings.TrimSuffix(rest, "/manifest.json")
	defer func() {
		e.audit(ctx, proto.AuditEntry{Act: "job.read", Item: job, ContainerID: id, Outcome: outcome(err)})
	}()
	s, err := e.Sessions.Get(who.owner, id)
	if err != nil {
		return nil, err
	}
	m, err := e.Jobs.Manifest(ctx, s, job)
	if err != nil {
		return nil, s.HideError(err)
	}
	data := encode(m)
	from := data[min(part.offset, int64(len(data))):]
	return contentsOf(uri, "application/json", int64(len(data)), part, bytes.NewReader(from))
}

// parts splits a URI into the container and the rest after the mark.
func parts(uri, mark string) (container, rest string, err error) {
	container, rest, _ = strings.Cut(strings.TrimPrefix(uri, containerURI), mark)
	if container == "" {
		return "", "", proto.Errorf(proto.NotFound, "", "uri", "The URI %.200q names no container.", uri)
	}
	if rest, err = url.PathUnescape(rest); err != nil || strings.ContainsRune(rest, 0) {
		return "", "", proto.Errorf(proto.InvalidArgument, "", "uri", "the URI %.200q cannot be read; "+
			"percent-encode what is not plain in it", uri)
	}
	return container, rest, nil
}

// metaRange is the key of the range of a resource in the metadata of its content.
const metaRange = "berth/range"

// contentsOf reads the part of a resource at which r begins: as text if the part is text, as bytes otherwise. size is
// that of the whole resource.
func contentsOf(uri, media string, size int64, part byteRange, r io.Reader) (*sdk.ResourceContents, error) {
	limit := int64(maxResource)
	if part != whole {
		limit = part.length
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	out := &sdk.ResourceContents{URI: uri, MIMEType: media}
	switch {
	case part != whole:
		data = data[:min(limit, int64(len(data)))]
		out.Meta = sdk.Meta{metaRange: map[string]int64{"offset": part.offset, "length": int64(len(data)),
			"size": size}}
	case int64(len(data)) > limit:
		return nil, proto.Errorf(proto.TooLarge, "", "uri", "%.200s has %d bytes, and at most %d can be read at once; "+
			"read it in ranges, such as %.200s", uri, size, maxResource, rangeOf(uri))
	}
	// the SDK omits an empty text, and clients refuse a content with neither text nor blob
	if len(data) > 0 && isText(data) && jsonLen(string(data)) <= maxResourceJSON {
		out.Text = string(data)
		return out, nil
	}
	out.Blob = data
	return out, nil
}

// rangeOf returns the URI of the first range of a resource.
func rangeOf(uri string) string { return fmt.Sprintf("%s?offset=0&length=%d", uri, maxResource) }

func isText(data []byte) bool { return utf8.Valid(data) && !slices.Contains(data, 0) }

// link adds a stored file to a result.
func (c *call) link(ctx context.Context, res *sdk.CallToolResult, id string) {
	f, err := c.Files.Get(ctx, c.peer.owner, id)
	if err != nil { // deleted in the meantime
		c.notes = append(c.notes, fmt.Sprintf("the file %s was deleted in the meantime", id))
		return
	}
	res.Content = append(res.Content, linkTo(f))
}

// linkTo returns a link to a stored file. The description of a large one says how to read it.
func linkTo(f proto.StoredFile) *sdk.ResourceLink {
	uri := fileURI + f.ID
	l := &sdk.ResourceLink{URI: uri, Name: f.Filename, MIMEType: f.MIMEType, Size: &f.SizeBytes}
	if f.SizeBytes > maxResource {
		l.Description = fmt.Sprintf("%d bytes; read it in ranges of at most %d bytes, such as %s", f.SizeBytes,
			maxResource, rangeOf(uri))
	}
	return l
}
