package templates_test

import (
	"context"
	"testing"

	"berth/api/e2b/templates"
	"berth/build/wire"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A build is its owner's, and so is its name while it is under way. An image's name is no template's.
func TestOwners(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	all := templates.New(templates.Config{Dir: t.TempDir(), Images: adapter{st.Images}})
	defer all.Close()
	hers, err := all.Reserve(t.Context(), "ann", templates.Order{Name: "app:v1", Tags: []string{"stable"}})
	if err != nil || hers.TemplateID != "app" || len(hers.Tags) != 2 {
		t.Fatalf("%+v, %v", hers, err)
	}
	if s, err := all.Status(t.Context(), "ann", "app", hers.BuildID, 0); err != nil || s.State != "waiting" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, w := range []struct{ owner, template, id string }{{"bob", "app", hers.BuildID}, {"ann", "other", hers.BuildID},
		{"ann", "app", "0"}} {
		if _, err := all.Status(t.Context(), w.owner, w.template, w.id, 0); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("%+v: %v", w, err)
		}
		err := all.Start(t.Context(), proto.Caller{Owner: w.owner}, w.template, w.id, templates.Recipe{FromImage: "base"})
		if proto.CodeOf(err) != proto.NotFound {
			t.Errorf("start %+v: %v", w, err)
		}
	}
	if _, err := all.Reserve(t.Context(), "bob", templates.Order{Name: "app"}); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("her name: %v", err)
	}
	images, err := st.Images.List(t.Context())
	if err != nil || len(images) == 0 {
		t.Fatal(images, err)
	}
	name, _ := templates.SplitTag(images[0].Name)
	for _, order := range []templates.Order{{Name: name}, {Name: name + ":v2"}} {
		if _, err := all.Reserve(t.Context(), "ann", order); proto.CodeOf(err) != proto.PermissionDenied {
			t.Errorf("%s, the name of an image: %v", order.Name, err)
		}
	}
	err = all.Start(t.Context(), proto.Caller{Owner: "ann"}, "app", hers.BuildID, templates.Recipe{FromImage: "base",
		Steps: []templates.Step{{Type: "COPY", Args: []string{"a", "b"}, FilesHash: someHash}}})
	if proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("files that are not there: %v", err)
	}
}

const someHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// adapter is the store of the test stack as this package needs one.
type adapter struct{ session.Images }

func (adapter) Manifest(context.Context, string) (wire.Found, error) { panic("nothing is tagged here") }

func (adapter) NameBuilt(context.Context, string, wire.Built, func(proto.ImageProgress)) (proto.Image, error) {
	panic("nothing is built here")
}

func (adapter) KeepReserve(ctx context.Context, _, _ string) (context.Context, func()) {
	return ctx, func() {}
}
