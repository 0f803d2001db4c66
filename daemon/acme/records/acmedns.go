package records

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// An acmeDNS sets records at an acme-dns server. The domain's _acme-challenge is a CNAME to a name there. The server
// keeps the last two values of the name and has no call that removes one.
type acmeDNS struct {
	url, username, password, subdomain string
	client                             *http.Client
}

func newAcmeDNS(settings map[string]string) (Provider, error) {
	if err := required(settings, "url", "username", "password", "subdomain"); err != nil {
		return nil, err
	}
	u, err := url.Parse(settings["url"])
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("url: write the acme-dns server as https://auth.example.org")
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &acmeDNS{url: u.JoinPath("update").String(), username: settings["username"], password: settings["password"],
		subdomain: settings["subdomain"], client: &http.Client{Timeout: 30 * time.Second, CheckRedirect: refuse}}, nil
}

// Add implements Provider.
func (a *acmeDNS) Add(ctx context.Context, _, value string) error {
	body, err := json.Marshal(map[string]string{"subdomain": a.subdomain, "txt": value})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-User", a.username)
	req.Header.Set("X-Api-Key", a.password)
	res, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 200)) // only for the error
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %q; check username, password and subdomain", a.url, res.Status, text)
	}
	return nil
}

// Remove implements Provider.
func (a *acmeDNS) Remove(context.Context, string, string) error { return nil }
