package native

import (
	"strings"
	"testing"

	"berth/proto"
)

// TestRegistriesAreForAdmins checks that no other key reads, sets or uses credentials for registries, and that no
// answer has a password.
func TestRegistriesAreForAdmins(t *testing.T) {
	s := eventSite(t)
	other, err := s.Keys.Create(proto.Caller{}, proto.CreateKey{Owner: "other"})
	if err != nil {
		t.Fatal(err)
	}
	const one = "/v1/registries/ghcr.io"
	login := proto.SetRegistry{Username: "me", Password: "sesame"}
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"PUT", one, login}, {"GET", "/v1/registries", nil}, {"DELETE", one, nil},
		{"POST", "/v1/images/push", proto.PushImage{Name: "base"}},
	} {
		if res, text := s.do(t, r.method, r.path, r.body, "X-Api-Key", other.Secret); res.StatusCode != 403 {
			t.Errorf("%s %s by another owner: %d %s", r.method, r.path, res.StatusCode, text)
		}
		want := 200
		if r.method == "POST" {
			want = 501 // there are no registries here
		}
		res, text := s.do(t, r.method, r.path, r.body)
		if res.StatusCode != want || strings.Contains(string(text), "sesame") {
			t.Errorf("%s %s by an admin: %d %s", r.method, r.path, res.StatusCode, text)
		}
	}
}
