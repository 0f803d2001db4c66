package placeholder

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/egress"
)

func TestWhereSecretsGo(t *testing.T) {
	s := New([]egress.Secret{{Name: "PLAIN", Hosts: []string{"example.com", "*.star.test"}},
		{Name: "PORTS", Hosts: []string{"example.com:80", "example.com:8443"}},
		{Name: "TLS", Hosts: []string{"tls.test:443"}}})
	for _, tt := range []struct {
		name      string
		port      uint16
		encrypted bool
		want      string
	}{
		{"example.com", 443, true, "PLAIN"}, {"example.com", 80, true, "PLAIN PORTS"}, {"example.com", 80, false,
			"PORTS"}, {"example.com", 8443, true, "PORTS"},
		{"example.com", 8443, false, "PORTS"}, {"example.com", 22, true, ""}, {"a.star.test", 443, true, "PLAIN"},
		{"a.star.test", 80, false, ""}, {"star.test", 443, true, ""}, {"a.example.com", 443, true, ""},
		{"tls.test", 443, true, "TLS"}, {"tls.test", 443, false, ""},
	} {
		var names []string
		for _, one := range s.at(egress.Target{Name: tt.name, Port: tt.port}, tt.encrypted) {
			names = append(names, one.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s:%d, encrypted %t: %q, want %q", tt.name, tt.port, tt.encrypted, got, tt.want)
		}
	}
}

// TestTwoSecretsInOnePassword checks Basic authentication whose name and password are both secrets. The answer
// repeats neither of them.
func TestTwoSecretsInOnePassword(t *testing.T) {
	list := []egress.Secret{{Name: "USER", Placeholder: "placeholder-1", Value: "first-value", Hosts: []string{
		"example.com"}}, {Name: "PASSWORD", Placeholder: "placeholder-2",
		Value: "second-value", Hosts: []string{"example.com"}}}
	req, _ := http.NewRequest("GET", "https://example.com/", nil)
	req.SetBasicAuth("placeholder-1", "placeholder-2")
	asked := req.Header.Get("Authorization")
	used, hide, err := New(list).Insert(req, egress.Target{Name: "example.com", Port: 443}, true)
	if user, password, _ := req.BasicAuth(); err != nil || user != "first-value" || password != "second-value" ||
		!slices.Equal(used, []string{"USER", "PASSWORD"}) {
		t.Fatalf("%q, %q, of %q, %v", user, password, used, err)
	}
	if got := hide.hide("you sent " + req.Header.Get("Authorization")); got != "you sent "+asked {
		t.Errorf("%q, want %q", got, asked)
	}
}
