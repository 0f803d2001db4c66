package sessiontest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"testing"

	"berth/proto"
	"berth/session"
)

// trees has a tree with one program for every key. The program's text is the mount's key.
type trees struct{}

func (trees) Tar(_ context.Context, _, key string) (io.ReadCloser, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	text := "#!/bin/sh\n" + key + "\n"
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/say", Mode: 0o755, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	return io.NopCloser(&buf), err
}

// fixtures provisions a session with mounts. It checks that the ordinary user can execute the content and change
// nothing, in the next generation too.
func (c conformance) fixtures(t *testing.T) {
	st, s := c.sessionWith(t, session.Config{Mounts: trees{}})
	for _, key := range []string{"echo one", "echo two"} {
		if err := s.Provision(t.Context(), []session.Mount{{Path: "/skills/say", Key: key}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(s *session.Session) {
		t.Helper()
		const try = "/skills/say/bin/say; stat -c '%u %a' /skills /skills/say /skills/say/bin/say; rm -rf " +
			"/skills/say/bin/say /skills/say 2>/dev/null; ls -A /skills"
		if out := Bash(t, s, try).Stdout; out != "two\n0 755\n0 755\n0 755\nsay\n" {
			t.Errorf("furnished with %q", out)
		}
	}
	check(s)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(s)
	st.Reopen(t)
	s, err := st.Sessions.Get(Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	check(s)
	if _, err := s.Run(t.Context(), proto.Cmd{Command: "rm -r /skills", User: proto.UserRoot}); err != nil {
		t.Fatal(err)
	}
	if err := s.Provision(t.Context(), []session.Mount{{Path: "/skills/say", Key: "echo two"}}); err != nil {
		t.Fatal(err)
	}
	check(s)
}
