package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"unicode/utf8"

	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// maxEmbedded is the maximum total size of stored files that one request embeds, in bytes. It equals the maximum size
// of a request.
const maxEmbedded = 32 << 20

// shownImages are the media types of images that models can read.
var shownImages = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// namesFiles reports whether JSON may refer to stored files.
func namesFiles(raw []byte) bool { return bytes.Contains(raw, []byte(`"file_id"`)) }

// embed replaces references to stored files by their content. It changes images and documents with a source of the
// type file, which no upstream could read. A file that is not stored here may belong to the upstream, so its
// reference stays.
func (s *Service) embed(ctx context.Context, owner string, body []byte) ([]byte, error) {
	o, err := rawjson.Parse(body)
	if err != nil {
		return nil, err
	}
	e := &embedding{files: s.cfg.Files, ctx: ctx, owner: owner, left: maxEmbedded}
	messages, err := e.each(o.Get("messages"), e.content)
	if err != nil || e.left == maxEmbedded {
		return body, err
	}
	return o.With("messages", messages).Raw(), nil
}

// An embedding is the state of one call of embed.
type embedding struct {
	files Files
	ctx   context.Context
	owner string
	left  int64 // bytes left of maxEmbedded
}

// content embeds files in the content of a message or of a tool result. It returns nil if nothing changes.
func (e *embedding) content(o rawjson.Object) (rawjson.Object, error) {
	before := e.left
	content, err := e.each(o.Get("content"), e.block)
	if err != nil || e.left == before {
		return nil, err
	}
	return o.With("content", content), nil
}

// each applies change to each object of an array. It returns anything but an array unchanged.
func (e *embedding) each(raw json.RawMessage, change func(rawjson.Object) (rawjson.Object, error)) (json.RawMessage,
	error) {
	if len(raw) == 0 || raw[0] != '[' || !namesFiles(raw) {
		return raw, nil
	}
	list, err := rawjson.ParseArray(raw)
	if err != nil {
		return nil, err
	}
	for i, one := range list {
		o, err := rawjson.Parse(one)
		if err != nil {
			continue // the upstream reports the error
		}
		changed, err := change(o)
		if err != nil {
			return nil, err
		}
		if changed != nil {
			list[i] = changed.Raw()
		}
	}
	return rawjson.Join(list), nil
}

// block embeds a file in a content block. It returns nil if the block does not change.
func (e *embedding) block(b rawjson.Object) (rawjson.Object, error) {
	kind := b.Text("type")
	if kind == "tool_result" {
		return e.content(b)
	}
	source, err := rawjson.Parse(b.Get("source"))
	if err != nil || source.Text("type") != "file" || kind != "image" && kind != "document" {
		return nil, nil
	}
	source, err = e.source(kind, source.Text("file_id"))
	if err != nil || source == nil {
		return nil, err
	}
	return b.With("source", source.Raw()), nil
}

// source returns the source of an image or a document with the file's content, or nil if the file is not stored here.
func (e *embedding) source(kind, id string) (rawjson.Object, error) {
	if !proto.ValidID(proto.FilePrefix, id) {
		return nil, nil
	}
	r, f, err := e.files.Open(e.ctx, e.owner, id)
	if proto.CodeOf(err) == proto.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if f.SizeBytes > e.left {
		return nil, proto.Errorf(proto.TooLarge, "", id, "The files in the messages have more than %d bytes "+
			"together; file `%s` has %d. Give it to the container as a container_upload block.", maxEmbedded, id,
			f.SizeBytes)
	}
	e.left -= max(1, f.SizeBytes)
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	encoded := rawjson.Object{}.With("type", "base64").With("media_type", f.MIMEType).With("data", data)
	switch {
	case kind == "image" && slices.Contains(shownImages, f.MIMEType), kind == "document" &&
		f.MIMEType == "application/pdf":
		return encoded, nil
	case kind == "document" && utf8.Valid(data) && !bytes.ContainsRune(data, 0):
		return rawjson.Object{}.With("type", "text").With("media_type", "text/plain").With("data", string(data)), nil
	}
	return nil, proto.Invalid("messages", "messages: file %s is %s, and no %s that a model can read: an image is "+
		"JPEG, PNG, GIF or WebP, a document PDF or text. Give it to the container as a container_upload block.", id,
		f.MIMEType, kind)
}
