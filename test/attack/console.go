package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"berth/proto"
)

// The console's login is a cookie, which browsers send with requests of pages that are not the daemon's. What
// applications write is shown in the console, and so could act for the person who looks at it.
var _ = register(
	Case{
		Group: 41, Name: "console/links",
		Tries: "use a one-time link twice and in twenty browsers at once, from foreign pages, cut, and as API key or " +
			"cookie; make a link with a login",
		Wants: "one browser is logged in, and nothing else is",
		Run:   consoleLinks,
	},
	// A form of any page may send a cookie (CWE-352); SameSite alone does not tell ports of one host apart.
	Case{
		Group: 41, Name: "console/foreign-pages",
		Tries: "use a login on every route as pages of other sites, of other ports of the host, of a sandbox and " +
			"forms would, and for a websocket",
		Wants: "403, and nothing is made or changed",
		Run:   consoleForeignPages,
	},
	// Applications of containers have host names of their own below the daemon's, and get the browser's requests.
	Case{
		Group: 41, Name: "console/cookie",
		Tries: "take a login to the host name and the path of a port, and to the edges that are not the console's",
		Wants: "no application gets the cookie, and no other edge accepts it",
		Run:   consoleCookie,
	},
	Case{
		Group: 41, Name: "console/content",
		Tries: "have a file of a container with HTML, SVG or script served as a page or a script of the API's " +
			"origin; look for pages of the console without a policy",
		Wants: "no file is anything that a browser runs, and every page has its policy",
		Run:   consoleContent,
	},
)

// ownPage returns the header that a browser sends for a page of the daemon.
func (t *Target) ownPage() http.Header {
	u, err := url.Parse(t.Host)
	if err != nil {
		return http.Header{} // the client has checked it
	}
	return http.Header{"Origin": {u.Scheme + "://" + u.Host}, "Sec-Fetch-Site": {"same-origin"}}
}

// with returns a copy of a header with another value of one field.
func with(h http.Header, name string, values ...string) http.Header {
	h = h.Clone()
	h[name] = values
	return h
}

// consoleLink asks for a link and returns its secret.
func (t *Target) consoleLink(ctx context.Context) (string, error) {
	a, err := t.Raw(ctx, "POST", "/v1/console/links", t.KeyHeader(), nil)
	if err != nil {
		return "", err
	}
	var link proto.ConsoleLink
	if err := json.Unmarshal(a.Body, &link); err != nil || a.Status != http.StatusCreated {
		return "", fmt.Errorf("asking for a link: %d %.200s %w", a.Status, a.Body, err)
	}
	_, secret, _ := strings.Cut(link.Path, "#login=")
	return secret, nil
}

// redeem exchanges the secret of a link, and returns the answer and the cookie, "name=value"; "" without one.
func (t *Target) redeem(ctx context.Context, secret string, header http.Header) (a *Answer, cookie string, err error) {
	h := with(header, "Content-Type", "application/json")
	a, err = t.Raw(ctx, "POST", "/v1/console/login", h, strings.NewReader(fmt.Sprintf(`{"secret":%q}`, secret)))
	if err != nil {
		return nil, "", err
	}
	cookie, _, _ = strings.Cut(a.Header.Get("Set-Cookie"), ";")
	return a, cookie, nil
}

// consoleLogin logs a browser in and returns its cookie. The login ends with the case.
func (t *Target) consoleLogin(ctx context.Context) (string, error) {
	secret, err := t.consoleLink(ctx)
	if err != nil {
		return "", err
	}
	a, cookie, err := t.redeem(ctx, secret, t.ownPage())
	if err != nil {
		return "", err
	}
	if cookie == "" {
		return "", fmt.Errorf("logging in: %d %.200s", a.Status, a.Body)
	}
	t.Later(func(ctx context.Context) error {
		_, err := t.Raw(ctx, "DELETE", "/v1/console/login", with(t.ownPage(), "Cookie", cookie), nil)
		return err
	})
	return cookie, nil
}

func consoleLinks(ctx context.Context, t *Target) (string, error) {
	secret, err := t.consoleLink(ctx)
	if err != nil {
		return "", err
	}
	own := t.ownPage()
	for name, try := range map[string]struct {
		secret string
		header http.Header
	}{
		"a foreign page":    {secret, with(own, "Sec-Fetch-Site", "cross-site")},
		"a page of a port":  {secret, with(own, "Sec-Fetch-Site", "same-site")},
		"a typed address":   {secret, with(own, "Sec-Fetch-Site", "none")},
		"a sandboxed page":  {secret, http.Header{"Origin": {"null"}}},
		"no page":           {secret, http.Header{}},
		"a cut secret":      {secret[:len(secret)-1], own},
		"a longer secret":   {secret + "A", own},
		"the key as secret": {t.Key, own},
		"none":              {"", own},
	} {
		if a, cookie, err := t.redeem(ctx, try.secret, try.header); err != nil {
			return "", err
		} else if cookie != "" || a.Status < 400 {
			return "", Breached("%s was logged in: %d", name, a.Status)
		}
	}
	for _, h := range []http.Header{{"X-Api-Key": {secret}}, {"Authorization": {"Bearer " + secret}},
		with(own, "Cookie", "berth-console="+secret)} {
		if a, err := t.Raw(ctx, "GET", "/v1/containers", h, nil); err != nil {
			return "", err
		} else if a.Status != http.StatusUnauthorized {
			return "", Breached("the secret of a link was answered %d as %v", a.Status, h)
		}
	}
	cookies, err := t.redeemAtOnce(ctx, secret, 20)
	if err != nil {
		return "", err
	}
	if len(cookies) != 1 {
		return "", Breached("one link logged %d of 20 browsers in", len(cookies))
	}
	browser := with(own, "Cookie", cookies[0])
	if a, err := t.Raw(ctx, "POST", "/v1/console/links", browser.Clone(), nil); err != nil {
		return "", err
	} else if a.Status != http.StatusForbidden {
		return "", Breached("a login makes links, so that it never ends: %d", a.Status)
	}
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} { // logging out, and once more
		if a, err := t.Raw(ctx, "DELETE", "/v1/console/login", browser.Clone(), nil); err != nil {
			return "", err
		} else if a.Status != want {
			return "", Breached("logging out was answered %d, not %d", a.Status, want)
		}
	}
	return "one of 20 browsers was logged in, until it logged out", nil
}

// redeemAtOnce exchanges one link in many browsers at the same time and returns the cookies that they got.
func (t *Target) redeemAtOnce(ctx context.Context, secret string, browsers int) (cookies []string, err error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range browsers {
		wait.Go(func() {
			_, cookie, e := t.redeem(ctx, secret, t.ownPage())
			mu.Lock()
			defer mu.Unlock()
			if e != nil {
				err = e
			} else if cookie != "" {
				cookies = append(cookies, cookie)
			}
		})
	}
	wait.Wait()
	return cookies, err
}

func consoleForeignPages(ctx context.Context, t *Target) (string, error) {
	cookie, err := t.consoleLogin(ctx)
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	own := with(t.ownPage(), "Cookie", cookie)
	a, err := t.Raw(ctx, "GET", "/v1/containers/"+con.ID, own.Clone(), nil)
	if err != nil || a.Status != http.StatusOK {
		return "", fmt.Errorf("the login does not work: %+v %w", a, err)
	}
	origin := own.Get("Origin")
	pages := []http.Header{
		with(own, "Sec-Fetch-Site", "cross-site"), with(own, "Sec-Fetch-Site", "same-site"),
		with(own, "Sec-Fetch-Site", "none"), {"Origin": {"https://attacker.example"}}, {"Origin": {"null"}},
		{"Origin": {origin + "0"}}, {"Origin": {origin + ".attacker.example"}},
		{"Origin": {origin, "https://attacker.example"}}, {"Origin": {strings.Replace(origin, "://", "://x.", 1)}},
	}
	routes, err := t.routes(ctx)
	if err != nil {
		return "", err
	}
	tried := 0
	for i, r := range routes {
		if r.public || !strings.HasPrefix(r.path, "/v1/containers") {
			continue
		}
		page := with(pages[i%len(pages)], "Cookie", cookie)
		page.Set("Content-Type", "text/plain") // as a form sends it, without asking first
		a, err := t.Raw(ctx, r.method, r.at(map[string]string{"id": con.ID}), page, r.sample())
		if err != nil {
			return "", err
		}
		if a.Status != http.StatusForbidden {
			t.forget(a)
			return "", Breached("%s %s of a page with %v was answered %d %.200s", r.method, r.path, page, a.Status,
				a.Body)
		}
		tried++
	}
	for _, page := range append(pages, http.Header{}) { // without an origin, too: no browser leaves it out
		if err := t.refusedSocket(ctx, con.ID, fmt.Sprintf("a page with %v", page), with(page, "Cookie", cookie), "",
			http.StatusForbidden); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d routes and %d websockets, all 403", tried, len(pages)+1), nil
}

func consoleCookie(ctx context.Context, t *Target) (string, error) {
	cookie, err := t.consoleLogin(ctx)
	if err != nil {
		return "", err
	}
	_, secret, _ := strings.Cut(cookie, "=")
	con, host, err := t.echo(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	page := []string{"Cookie", "a=1; " + cookie + "; b=2", "Origin", t.ownPage().Get("Origin"), "Sec-Fetch-Site",
		"same-origin"}
	doors := []doorway{{"GET", "", "/v1/containers/" + con.ID + "/ports/" + echoPort + "/", page}}
	if host != "" {
		doors = append(doors, doorway{"GET", host, "/", page}, doorway{"POST", host, "/v1/containers", page},
			doorway{"GET", host, "/v1/console/login", page})
	}
	for _, d := range doors { // and with a key, which opens the door
		doors = append(doors, doorway{d.method, d.host, d.path, append([]string{"X-Api-Key", t.Key}, d.header...)})
	}
	reached := 0
	for _, d := range doors {
		got, err := t.visit(ctx, d.method, d.host, d.path, d.header...)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(got.body), secret) {
			return "", Breached("%s %s %s gives the application the login: %.300s", d.method, d.host, d.path, got.body)
		}
		if strings.Contains(string(got.body), echoMark) {
			reached++
		}
		if d.header[0] == "Cookie" && got.status < 400 {
			return "", Breached("%s %s %s was answered %d with the login of the console", d.method, d.host, d.path,
				got.status)
		}
	}
	if reached == 0 {
		return "", fmt.Errorf("no request of %d reached the application", len(doors))
	}
	edges := []struct{ method, path string }{{"POST", "/mcp"}, {"POST", "/v1/messages"}, {"GET", "/v1/files"},
		{"GET", "/v1/models"}, {"GET", "/sandboxes"}, {"GET", "/v1/skills"}}
	for _, e := range edges {
		a, err := t.Raw(ctx, e.method, e.path, with(t.ownPage(), "Cookie", cookie), nil)
		if err != nil {
			return "", err
		}
		if a.Status < 400 {
			return "", Breached("%s %s takes the login of the console: %d", e.method, e.path, a.Status)
		}
	}
	return fmt.Sprintf("%d ways to an application and %d edges", len(doors), len(edges)), nil
}

func consoleContent(ctx context.Context, t *Target) (string, error) {
	cookie, err := t.consoleLogin(ctx)
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	own := with(t.ownPage(), "Cookie", cookie)
	names := []string{"page.html", "picture.svg", "code.js", "code.mjs", "page.xhtml", "style.css", "feed.xml",
		"<img src=x onerror=alert(1)>.html"}
	for _, name := range names {
		at := "/v1/containers/" + con.ID + "/fs/content?path=" + url.QueryEscape(name)
		if a, err := t.Raw(ctx, "PUT", at, own.Clone(), strings.NewReader(
			"<script>alert(1)</script>")); err != nil || a.Status >= 300 {
			return "", fmt.Errorf("writing %s: %+v %w", name, a, err)
		}
		a, err := t.Raw(ctx, "GET", at, own.Clone(), nil)
		if err != nil {
			return "", err
		}
		media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
		if media != "application/octet-stream" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
			return "", Breached("%s is served as %q, nosniff %q", name, media, a.Header.Get("X-Content-Type-Options"))
		}
	}
	for path, want := range map[string]string{"/console": "default-src 'none'",
		"/console/preview": "sandbox allow-scripts; default-src 'none'"} {
		a, err := t.Raw(ctx, "GET", path, nil, nil)
		if err != nil {
			return "", err
		}
		policy := a.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, want) || strings.Contains(policy, "unsafe") ||
			strings.Contains(policy, "allow-same-origin") {
			return "", Breached("%s has the policy %q", path, policy)
		}
	}
	return fmt.Sprintf("%d files are bytes, and both pages have their policy", len(names)), nil
}
