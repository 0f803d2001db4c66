package templates

import (
	"context"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"berth/proto"
)

// latest is the tag of an image whose name has none. Clients call it default.
const (
	latest     = "latest"
	defaultTag = "default"
)

// maxTags bounds the tags in one request.
const maxTags = 32

// A Name is a template with some of its tags.
type Name struct {
	Template string   // without a tag
	Tags     []string // as clients spell them; never empty
}

// ParseName reads the name of a template, which may have a tag, and more tags.
func ParseName(text string, more []string) (n Name, err error) {
	name, tag := SplitTag(strings.ToLower(strings.TrimSpace(text)))
	n.Template = name
	if tag != "" {
		n.Tags = []string{tag}
	}
	for _, tag := range more {
		if !slices.Contains(n.Tags, tag) {
			n.Tags = append(n.Tags, tag)
		}
	}
	if len(n.Tags) == 0 {
		n.Tags = []string{defaultTag}
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil || !reference.IsNameOnly(named) || reference.Domain(named) != "docker.io" ||
		name == "sha256" { // with a tag it is a digest
		return n, proto.Invalid("name", "name %.80q must have lower-case letters, digits, hyphens and underscores, "+
			"such as my-template or my-template:v1", text)
	}
	if len(n.Tags) > maxTags {
		return n, proto.Invalid("tags", "at most %d tags can be given at once", maxTags)
	}
	for _, tag := range n.Tags {
		if _, err := reference.WithTag(named, imageTag(tag)); err != nil || uuidForm.MatchString(tag) {
			return n, proto.Invalid("tags", "tag %.80q must have letters, digits, dots, hyphens and underscores, and "+
				"be no UUID", tag)
		}
	}
	return n, nil
}

// SplitTag splits a name into that of the template and its tag.
func SplitTag(text string) (name, tag string) {
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, '/') {
		return text[:i], text[i+1:]
	}
	return text, ""
}

func imageTag(tag string) string {
	if tag == defaultTag {
		return latest
	}
	return tag
}

// images returns the names of the template as those of images.
func (n Name) images() (list []string) {
	for _, tag := range n.Tags {
		list = append(list, n.Template+":"+imageTag(tag))
	}
	return list
}

// A Tagged is an image of a template with its tag as clients spell it.
type Tagged struct {
	proto.Image
	Tag string
}

// Tagged returns all images of a template.
func (t *Templates) Tagged(ctx context.Context, template string) (list []Tagged, err error) {
	images, err := t.cfg.Images.List(ctx)
	for _, img := range images {
		name, tag := SplitTag(img.Name)
		if tag == "" || tag == latest {
			tag = defaultTag
		}
		if name == template {
			list = append(list, Tagged{img, tag})
		}
	}
	return list, err
}

// Find returns the image that a client names by the ID of its build, as NAME:UUID. ok is false for other names.
func (t *Templates) Find(ctx context.Context, ref string) (img proto.Image, ok bool, err error) {
	name, tag := SplitTag(ref)
	if !uuidForm.MatchString(tag) {
		return img, false, nil
	}
	list, err := t.Tagged(ctx, name)
	if err != nil {
		return img, true, err
	}
	for _, i := range list {
		if BuildID(i.Image) == tag {
			return i.Image, true, nil
		}
	}
	return img, true, proto.Errorf(proto.NotFound, "", ref, "tag '%s' does not exist for template '%.80s'", tag, name)
}

// mayChange refuses to change a template that another owner made, or an image that is no template. The caller of
// mayChange holds no lock.
func (t *Templates) mayChange(ctx context.Context, owner, template string) error {
	if slices.Contains(t.cfg.Reserved, template) {
		return taken(template)
	}
	list, err := t.Tagged(ctx, template)
	for _, img := range list {
		if FactsOf(img.Image).Owner != fingerprint(owner) {
			return taken(template)
		}
	}
	return err
}

func taken(template string) error {
	return proto.Errorf(proto.PermissionDenied, "", template, "the name %.80q is taken by an image that is no "+
		"template of yours; choose another", template)
}

// AddTags gives a template that target names more tags.
func (t *Templates) AddTags(ctx context.Context, owner, target string, tags []string) (proto.Image, Name, error) {
	n, err := ParseName(target, nil)
	if err != nil {
		return proto.Image{}, n, err
	}
	more, err := ParseName(n.Template, tags)
	if err == nil {
		err = t.mayChange(ctx, owner, n.Template)
	}
	if err != nil {
		return proto.Image{}, n, err
	}
	img, err := t.cfg.Images.Resolve(ctx, n.images()[0])
	if err != nil {
		return img, n, unknown(target, err)
	}
	found, err := t.cfg.Images.Manifest(ctx, img.Digest)
	for _, name := range more.images() {
		if err == nil {
			_, err = t.cfg.Images.NameBuilt(ctx, name, builtOf(found), nil)
		}
	}
	return img, more, err
}

// RemoveTags removes tags of a template.
func (t *Templates) RemoveTags(ctx context.Context, owner, template string, tags []string) error {
	if len(tags) == 0 {
		return proto.Invalid("tags", "tags must name what to remove")
	}
	n, err := ParseName(template, nil)
	if err == nil {
		n, err = ParseName(n.Template, tags)
	}
	if err == nil {
		err = t.mayChange(ctx, owner, n.Template)
	}
	if err != nil {
		return err
	}
	for _, name := range n.images() {
		if err := t.cfg.Images.Remove(ctx, name); err != nil {
			return unknown(name, err)
		}
	}
	return nil
}

// Remove removes a template with all its tags. ok is false if there is none of that name.
func (t *Templates) Remove(ctx context.Context, owner, ref string) (ok bool, err error) {
	name, _ := SplitTag(ref)
	list, err := t.Tagged(ctx, name)
	if err != nil || len(list) == 0 {
		return false, err
	}
	if err := t.mayChange(ctx, owner, name); err != nil {
		return true, err
	}
	for _, img := range list {
		if err := t.cfg.Images.Remove(ctx, img.Name); err != nil {
			return true, err
		}
	}
	return true, nil
}

// unknown words an error about an image as one about a template.
func unknown(name string, err error) error {
	if proto.CodeOf(err) == proto.NotFound {
		return proto.Errorf(proto.NotFound, "", name, "template %.80q was not found", name)
	}
	return err
}
