package ports

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"berth/api/ports/address"
	"berth/proto"
)

func TestCutToken(t *testing.T) {
	for query, want := range map[string][2]string{
		"": {"", ""}, "a=1": {"a=1", ""}, "berth_token=x": {"", "x"}, "a=1&berth_token=x&b=%zz;c": {"a=1&b=%zz;c", "x"},
		"berth%5ftoken=x": {"", "x"}, "berth_token=x&berth_token=y": {"", "y"}, "berth_token": {"", ""},
		"my_berth_token=x": {"my_berth_token=x", ""}, "&&": {"&&", ""},
	} {
		if rest, token := cutToken(query); rest != want[0] || token != want[1] {
			t.Errorf("%q: %q, %q", query, rest, token)
		}
	}
}

func TestHideToken(t *testing.T) {
	h := http.Header{"Cookie": {"a=b; berth-port=secret;c", "__Host-berth-port=secret", "d=e"},
		"Referer": {"https://x.test/p?a=1&berth_token=secret"}}
	hideToken(h)
	if got := h.Values("Cookie"); !slices.Equal(got, []string{"a=b; c; d=e"}) {
		t.Errorf("the cookies are %q", got)
	}
	if got := h.Get("Referer"); got != "https://x.test/p?a=1" {
		t.Errorf("the referrer is %q", got)
	}
	h = http.Header{"Cookie": {"berth-port=secret"}, "Referer": {"https://x.test/p?berth_token=secret"}}
	if hideToken(h); len(h.Values("Cookie")) != 0 || h.Get("Referer") != "https://x.test/p" {
		t.Errorf("%v is left", h)
	}
}

// TestCookieCounts checks which pages may have a browser send the cookie of a port.
func TestCookieCounts(t *testing.T) {
	id, other := proto.NewID(proto.ContainerPrefix), proto.NewID(proto.ContainerPrefix)
	e := &Edge{cfg: Config{Domain: address.Domain{Scheme: "https", Name: "a.test"}}}
	host := "80-" + proto.HostID(id) + ".a.test"
	ours, theirs := "https://81-"+proto.HostID(id)+".a.test", "https://80-"+proto.HostID(other)+".a.test"
	for name, c := range map[string]struct {
		method string
		header map[string]string
		ok     bool
	}{
		"a program":                       {"POST", nil, true},
		"the page itself":                 {"POST", map[string]string{"Origin": "https://" + host}, true},
		"another port":                    {"POST", map[string]string{"Origin": ours, "Sec-Fetch-Site": "same-site"}, true},
		"another container":               {"POST", map[string]string{"Origin": theirs, "Sec-Fetch-Site": "same-site"}, false},
		"another container, old browser":  {"POST", map[string]string{"Origin": theirs}, false},
		"the page, hiding its origin":     {"POST", map[string]string{"Origin": "null", "Sec-Fetch-Site": "same-origin"}, true},
		"a hidden origin":                 {"POST", map[string]string{"Origin": "null", "Sec-Fetch-Site": "same-site"}, false},
		"a foreign site":                  {"GET", map[string]string{"Origin": "https://evil.test"}, false},
		"an image of another container":   {"GET", map[string]string{"Sec-Fetch-Site": "same-site", "Referer": theirs}, false},
		"an image of another port":        {"GET", map[string]string{"Sec-Fetch-Site": "same-site", "Referer": ours + "/x"}, true},
		"an image without a referrer":     {"GET", map[string]string{"Sec-Fetch-Site": "same-site"}, false},
		"a link that was followed":        {"GET", navigation("document"), true},
		"a frame of another site":         {"GET", navigation("iframe"), false},
		"a form of another site":          {"POST", navigation("document"), false},
		"an address typed by the user":    {"GET", map[string]string{"Sec-Fetch-Site": "none"}, true},
		"one of two origins is a foreign": {"GET", map[string]string{"Origin": "https://" + host, "Origin2": theirs}, false},
	} {
		r := httptest.NewRequest(c.method, "https://"+host+"/", nil)
		for key, value := range c.header {
			if key == "Origin2" {
				key = "Origin"
			}
			r.Header.Add(key, value)
		}
		if err := e.cookieCounts(r, id); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func navigation(dest string) map[string]string {
	return map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": dest}
}

// TestCookiesStayWithTheirPort checks that an application sets cookies for its own host alone, and not berth's.
func TestCookiesStayWithTheirPort(t *testing.T) {
	p := &relay{t: target{}}
	h := http.Header{"Set-Cookie": {"a=b; Domain=a.test; Path=/x; HttpOnly", "berth-port=stolen", "__Host-berth-port=x",
		"berth-console-7117=x; Path=/", "__Host-berth-console=x; Path=/; Secure",
		"c=d; SameSite=None; Secure", "broken"}, "Clear-Site-Data": {`"cookies"`}, "Location": {"/there"}}
	p.cleanAnswer(h)
	if got := h.Values("Set-Cookie"); !slices.Equal(got, []string{"a=b; Path=/x; HttpOnly", "c=d; Secure; SameSite=None"}) {
		t.Errorf("the cookies are %q", got)
	}
	if h.Get("Clear-Site-Data") != "" || h.Get("Location") != "/there" || h.Get("Content-Security-Policy") != "" {
		t.Errorf("the answer has %v", h)
	}
}
