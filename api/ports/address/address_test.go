package address

import (
	"testing"

	"berth/proto"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Domain{
		"Preview.Example.org":       {Name: "preview.example.org"},
		"preview.test:8443":         {Name: "preview.test", Port: "8443"},
		"https://preview.test":      {Scheme: "https", Name: "preview.test"},
		"https://preview.test:8443": {Scheme: "https", Name: "preview.test", Port: "8443"},
		"localhost":                 {Name: "localhost"},
	} {
		if d, err := Parse(text); err != nil || d != want {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", ".", "a..b", "a b", "*.a", "127.0.0.1", "[::1]:80", "a:0", "a:x", "a:65536", "a/b",
		"ftp://a", "https://", "-a", "a-", "ü.test", "a_b.test"} {
		if d, err := Parse(text); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%q is read as %+v, %v", text, d, err)
		}
	}
}

// What an operator leaves out is the daemon's, except for the port behind a proxy.
func TestAt(t *testing.T) {
	for text, want := range map[string]string{
		"a.test": "http://a.test:8080", "a.test:80": "http://a.test", "https://a.test": "https://a.test",
		"https://a.test:443": "https://a.test", "https://a.test:8443": "https://a.test:8443", "a.test:9": "http://a.test:9",
	} {
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		d = d.At("http", "8080")
		got := d.Scheme + "://" + d.Name
		if d.Port != "" {
			got += ":" + d.Port
		}
		if got != want {
			t.Errorf("%s is %s, not %s", text, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	d := Domain{Scheme: "https", Name: "a.test", Port: "8443"}
	id := proto.NewID(proto.ContainerPrefix)
	host := proto.HostID(id)
	if got := d.URL(id, 80); got != "https://80-"+host+".a.test:8443" {
		t.Errorf("the URL is %s", got)
	}
	if got := (Domain{}).URL(id, 80); got != "" {
		t.Errorf("without a domain the URL is %s", got)
	}
	for text, want := range map[string]Place{
		"80-" + host + ".a.test": {id, "80"}, "80-" + host + ".A.TEST.:9": {id, "80"}, "x-" + host + ".a.test": {id, "x"},
		"80-x.a.test": {}, "80.a.test": {}, "b.80-" + host + ".a.test": {}, host + ".a.test": {},
		"80-" + host + ".a.test:80@b.test": {},
	} {
		if got, below := d.Find(text); !below || got != want {
			t.Errorf("%s is %+v, %v", text, got, below)
		}
	}
	for _, text := range []string{"a.test", "api.a.test", "127.0.0.1", "80-" + host + ".b.test", "80-" + host + "a.test", ""} {
		if got, below := d.Find(text); below {
			t.Errorf("%s is below the domain: %+v", text, got)
		}
	}
	if _, below := (Domain{}).Find("80-" + host + "."); below {
		t.Error("a host is below no domain")
	}
}

// Origins count as the same container's under the same domain, scheme and TCP port alone.
func TestSameContainer(t *testing.T) {
	d := Domain{Scheme: "https", Name: "a.test"}
	id, other := proto.NewID(proto.ContainerPrefix), proto.NewID(proto.ContainerPrefix)
	one := proto.HostID(id)
	host := "80-" + one + ".a.test:8443"
	for origin, want := range map[string]bool{
		"https://80-" + one + ".a.test:8443":                 true,
		"https://3000-" + one + ".A.test:8443":               true,
		"https://3000-" + one + ".a.test":                    false,
		"http://80-" + one + ".a.test:8443":                  false,
		"https://80-" + proto.HostID(other) + ".a.test:8443": false,
		"https://80-" + one + ".b.test:8443":                 false,
		"https://a.test:8443":                                false,
		"null":                                               false,
		"":                                                   false,
		"https://evil.test/80-" + one + ".a.test:8443":       false,
		"https://80-" + one + ".a.test:8443@evil.test":       false,
	} {
		if got := d.SameContainer(origin, host, id); got != want {
			t.Errorf("%s: %v", origin, got)
		}
	}
}
