// Package buildform reads the body of a request to build an image: a build context alone, or a form with secrets before
// the context. The context is read as it arrives; what a secret is for is package build's affair.
package buildform

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"berth/api/forms"
	"berth/api/openapi"
	"berth/proto"
)

// Media is the media type of a form.
const Media = "multipart/form-data"

// Schema describes a form.
var Schema = openapi.Schema{"type": "object", "required": []string{"context"}, "properties": openapi.Schema{
	"secret": openapi.Schema{"type": "array", "items": binary, "maxItems": proto.MaxBuildSecrets,
		"description": "Secrets for RUN --mount=type=secret. The filename of each part is the ID. They come before " +
			"the context."},
	"context": openapi.Schema{"type": "string", "format": "binary", "description": "The build context; the last part."},
}}

var binary = openapi.Schema{"type": "string", "format": "binary"}

// how says how a form is sent.
const how = "send secrets as parts named secret, with the ID as the filename, and then the tar as the part context"

// Open returns the secrets of a request and a reader of its context. With the end of the context, the reader checks
// that the body ends, too.
func Open(r *http.Request) (secrets map[string][]byte, context io.Reader, err error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != Media {
		return nil, r.Body, nil
	}
	parts, err := forms.Open(r)
	if err != nil {
		return nil, nil, err
	}
	secrets = map[string][]byte{}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return nil, nil, proto.Invalid("context", "the form has no build context; %s.", how)
		}
		if err != nil {
			return nil, nil, unread(err)
		}
		d, err := forms.ParseDisposition(part.Header.Get("Content-Disposition"))
		if err != nil {
			return nil, nil, err
		}
		switch d["name"] {
		case "context":
			return secrets, &lastPart{part, parts}, nil
		case "secret":
			if err := addSecret(secrets, d["filename"], part); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, proto.Invalid("form", "the form has a part named %.80q; %s.", d["name"], how)
		}
	}
}

// addSecret reads a secret within its bounds.
func addSecret(secrets map[string][]byte, id string, part io.Reader) error {
	if _, again := secrets[id]; again {
		return proto.Invalid("secret", "the form has two secrets with the ID %.140q; send one.", id)
	}
	value, err := io.ReadAll(io.LimitReader(part, proto.MaxBuildSecretBytes+1))
	if err != nil {
		return unread(err)
	}
	secrets[id] = value
	return proto.CheckBuildSecrets(secrets)
}

// unread is the error for a form that cannot be read. Errors of the body itself are kept.
func unread(err error) error {
	var known *proto.Error
	if errors.As(err, &known) {
		return err
	}
	return proto.Invalid("form", "the form is not complete; %s.", how)
}

// A lastPart reads a part that must be the last one.
type lastPart struct {
	part  io.Reader
	parts forms.Parts
}

// Read implements io.Reader.
func (l *lastPart) Read(p []byte) (int, error) {
	n, err := l.part.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err != io.EOF:
		return n, unread(err)
	}
	switch _, err := l.parts.NextRawPart(); {
	case err == nil:
		return n, proto.Invalid("context", "the form has a part after the build context; %s.", how)
	case err != io.EOF:
		return n, unread(err)
	}
	return n, io.EOF
}
