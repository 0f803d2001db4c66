package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"berth/api"
)

// Over TLS, the cookie has a name that no other host can set, and the plain name counts for nothing. Daemons on two
// ports of a host have two cookies.
func TestLoginCookies(t *testing.T) {
	at := func(url string, cookies ...string) *http.Request {
		r := httptest.NewRequest("POST", url, nil)
		for _, name := range cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: name})
		}
		return r
	}
	const plain, secure = "berth-console-7117", "__Host-berth-console-7117"
	if c := api.NewLoginCookie(at("http://127.0.0.1:7117/")); c.Name != plain || c.Secure || !c.HttpOnly ||
		c.SameSite != http.SameSiteStrictMode {
		t.Errorf("without TLS: %s", c)
	}
	if c := api.NewLoginCookie(at("https://berth.test:7117/")); c.Name != secure || !c.Secure || c.Domain != "" ||
		c.Path != "/" {
		t.Errorf("with TLS: %s", c)
	}
	proxied := at("http://berth.test/")
	proxied.Header.Set("Origin", "https://berth.test")
	if c := api.NewLoginCookie(proxied); c.Name != "__Host-berth-console" || !c.Secure {
		t.Errorf("behind a proxy with TLS: %s", c)
	}
	for name, try := range map[string]struct {
		r    *http.Request
		want string
	}{
		"plain":                  {at("http://berth.test:7117/", plain), plain},
		"plain over TLS":         {at("https://berth.test:7117/", plain), ""},
		"both":                   {at("http://berth.test:7117/", plain, secure), secure},
		"of another port":        {at("http://berth.test:7118/", plain), ""},
		"secure behind a proxy":  {at("http://berth.test:7117/", secure), secure},
		"secure over TLS":        {at("https://berth.test:7117/", plain, secure), secure},
		"another cookie's value": {at("http://berth.test:7117/", "berth-consoles"), ""},
	} {
		if got := api.LoginSecret(try.r); got != try.want {
			t.Errorf("%s: %q, want %q", name, got, try.want)
		}
	}
}
