package egress

import (
	"net/netip"
	"strings"
	"testing"

	"berth/proto"
)

// TestTargets checks that each target has one reading. A target with two readings is refused.
func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"example.com:443": "example.com:443", "EXAMPLE.com:80": "example.com:80", "example.com.:80": "example.com:80",
		"xn--bcher-kva.example:443": "xn--bcher-kva.example:443",
		"93.184.216.34:80":          "93.184.216.34:80", "[2606:4700:4700::1111]:443": "[2606:4700:4700::1111]:443",
		"[::ffff:127.0.0.1]:80": "127.0.0.1:80", "[2606:4700:4700:0:0:0:0:1111]:443": "[2606:4700:4700::1111]:443",
		"[::ffff:a9fe:a9fe]:80": "169.254.169.254:80", "a:1": "a:1",

		"0x7f.1:80": "", "017700000001:80": "", "2130706433:80": "", "127.1:80": "", "0177.0.0.1:80": "",
		"127.0.0.1.:80": "", "127.0.0.0x1:80": "", "1.2.3.4.5:80": "", "256.1.1.1:80": "", "0x:80": "",
		"user:pass@example.com:80": "", "user@example.com:80": "", "example.com:80:443": "", "example.com": "",
		"example.com:": "", ":80": "", "": "",
		"example.com:0": "", "example.com:65536": "", "example.com:+80": "", "example.com:080": "",
		"example.com: 80": "", "example.com:http": "",
		"example.com..:80": "", ".example.com:80": "", "a..b:80": "", "-a.example:80": "", "a_b.example:80": "",
		"xn--\x00:80": "", "xn--a:80": "",
		"exa\x00mple.com:80": "", "example.com\r\n:80": "", "example.com%00:80": "", "ex%61mple.com:80": "",
		"example.com/:80": "", "example.com\\.evil:80": "", "example.com#@evil:80": "", "example.com?:80": "",
		"[::1:80": "", "[::1]80": "", "::1:80": "", "[127.0.0.1]:80": "", "[fe80::1%25eth0]:80": "",
		"[fe80::1%lo]:80": "", "[::1]]:80": "", "[[::1]]:80": "",
		"１２７.0.0.1:80": "", "ｅxample.com:80": "", "bücher.example:80": "", strings.Repeat("a", 300) + ":80": "",
		strings.Repeat("a", 64) + ".example:80": "",
	} {
		got, err := ParseTarget(text, 0)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is read as %s", text, got)
		case want == "" && RefusalOf(err).Reason != "bad_target":
			t.Errorf("%q: %v", text, err)
		case want != "" && (err != nil || got.String() != want):
			t.Errorf("%q is read as %s, %v", text, got, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	list := func(allow ...string) proto.Network { return proto.Network{Mode: proto.NetworkAllowlist, Allow: allow} }
	for _, tt := range []struct {
		asked proto.Network
		want  string // "" if the target is refused
		yes   string // targets that it allows
		no    string
	}{
		{proto.Network{}, "none", "", "a.example:80"},
		{proto.Network{Mode: "none"}, "none", "", "a.example:80"},
		{proto.Network{Mode: "open"}, "open", "a.example:80 a.example:25 8.8.8.8:443", ""},
		{list(), "allowlist", "", "a.example:80"},
		{proto.Network{Allow: []string{"a.example"}}, "allowlist a.example", "a.example:80 a.example:443 A.Example.:80",
			"a.example:8080 b.example:80 x.a.example:80 xa.example:80"},
		{list("Api.GitHub.com:443", "api.github.com:443"), "allowlist api.github.com:443", "api.github.com:443",
			"api.github.com:80 api.github.com:8443"},
		{list("*.example.com"), "allowlist *.example.com", "a.example.com:443 b.example.com:80",
			"example.com:443 a.b.example.com:443 aexample.com:443 a.example.com:22"},
		{list("*.example.com:8443"), "allowlist *.example.com:8443", "a.example.com:8443", "a.example.com:443"},
		{list("bücher.example"), "allowlist xn--bcher-kva.example", "xn--bcher-kva.example:80", "bucher.example:80"},
		{list("git.example:22"), "allowlist git.example:22", "git.example:22", "git.example:443"},
		{list("93.184.216.34"), "allowlist 93.184.216.34", "93.184.216.34:443", "93.184.216.35:443 a.example:443"},
		{list("[2606:4700::1111]:853"), "allowlist [2606:4700::1111]:853", "[2606:4700:0::1111]:853",
			"[2606:4700::1111]:443"},
		{proto.Network{Mode: "all"}, "", "", ""}, {proto.Network{Mode: "open", Allow: []string{"a.example"}}, "", "",
			""}, {proto.Network{Mode: "none", Allow: []string{"a.example"}}, "", "", ""},
		{list("https://a.example"), "", "", ""}, {list("a.example/path"), "", "", ""}, {list("a.example:0"), "", "",
			""}, {list("a.example:"), "", "", ""}, {list("a.example:80:80"), "", "", ""},
		{list("*"), "", "", ""}, {list("*.com"), "", "", ""}, {list("*.*.example.com"), "", "", ""},
		{list("a*.example.com"), "", "", ""}, {list("a.*.example"), "", "", ""}, {list("*.93.184.216.34"), "", "", ""},
		{list(""), "", "", ""}, {list("u@a.example"), "", "", ""}, {list("10.0.0.0/8"), "", "", ""},
		{list("１６９.２５４.１６９.２５４"), "", "", ""}, {list("２１３０７０６４３３"), "", "", ""}, // digits become ASCII ones
		{list("2130706433"), "", "", ""}, {list("a.example\r\n"), "", "", ""}, {list("a b"), "", "", ""},
		{proto.Network{Allow: make([]string, maxRules+1)}, "", "", ""},
	} {
		p, wire, err := ParsePolicy(tt.asked)
		if got := strings.TrimSpace(string(wire.Mode) + " " + strings.Join(wire.Allow, " ")); err == nil &&
			got != tt.want || err != nil && tt.want != "" {
			t.Errorf("%v: %q, %v", tt.asked, got, err)
		}
		if err != nil && (proto.CodeOf(err) != proto.InvalidArgument ||
			!strings.HasPrefix(proto.AsError(err).Item, "network.")) {
			t.Errorf("%v: the error names no field: %v", tt.asked, err)
		}
		for _, target := range strings.Fields(tt.yes) {
			if to, err := ParseTarget(target, 0); err != nil || !p.Allows(to) {
				t.Errorf("%v does not allow %s: %v", tt.asked, target, err)
			}
		}
		for _, target := range strings.Fields(tt.no) {
			if to, err := ParseTarget(target, 0); err != nil || p.Allows(to) {
				t.Errorf("%v allows %s: %v", tt.asked, target, err)
			}
		}
	}
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:80", "0x7f.1:80", "a@b:1", "127.0.0.1:65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTarget(text, 0)
		if err != nil {
			if RefusalOf(err).Reason != "bad_target" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if again, err := ParseTarget(got.String(), 0); err != nil || again != got {
			t.Fatalf("%q is %s, and that is %s, %v", text, got, again, err)
		}
		if got.Port == 0 || got.Addr.Is4In6() || got.Name != strings.ToLower(got.Name) ||
			(got.Name == "") == (got.Addr == netip.Addr{}) {
			t.Fatalf("%q is %+v", text, got)
		}
	})
}

func FuzzRule(f *testing.F) {
	for _, s := range []string{"*.example.com:8443", "bücher.example", "[::1]", "1.2.3.4:80", "a:b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Fatalf("%q is %s, and that is %s, %v", text, r, again, err)
		}
	})
}

// TestNoneHasNoRules checks that a list counts in its own mode alone.
func TestNoneHasNoRules(t *testing.T) {
	for _, mode := range []proto.NetworkMode{"", proto.NetworkNone, "other"} {
		p := Policy{Mode: mode, Rules: []Rule{{Name: "a.example"}}}
		if p.Allows(Target{Name: "a.example", Port: 443}) {
			t.Errorf("mode %q allows a host", mode)
		}
	}
}

// TestDeniedNames checks that a name which is denied is not asked for either, as long as no port of it is left.
func TestDeniedNames(t *testing.T) {
	p, _, err := ParsePolicy(proto.Network{Mode: proto.NetworkAllowlist, Allow: []string{"*.example.com",
		"db.example.com:5432"}, Deny: []string{"evil.example.com", "db.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"good.example.com": true, "evil.example.com": false,
		"db.example.com": true} {
		if got := p.AllowsName(name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
